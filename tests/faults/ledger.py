"""Every operation ends exactly once: what each item of a workload ended with."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from aiougds import UGDSError

OK: Final = "ok"
CANCELLED: Final = "cancelled"


def outcome(result: int | UGDSError) -> str:
    """Return the word for what an item ended with: ``ok``, or its error's name."""
    return OK if isinstance(result, int) else type(result).__name__


class Ledger:
    """Items, and how each of them ended; a second end is an error at once."""

    __slots__ = ("_lock", "doubled", "ends", "expected")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.expected: set[str] = set()
        self.ends: dict[str, str] = {}
        self.doubled: list[str] = []

    def expect(self, items: Iterable[str]) -> None:
        """Announce items that have to end."""
        with self._lock:
            for item in items:
                assert item not in self.expected, f"{item} was announced twice"
                self.expected.add(item)

    def end(self, item: str, result: int | UGDSError, nbytes: int) -> None:
        """Note the end of one item; all its bytes were moved, or it failed."""
        if isinstance(result, int):
            assert result == nbytes, f"{item}: {result} bytes instead of {nbytes}"
        self._note(item, outcome(result))

    def cut(self, items: Iterable[str]) -> None:
        """Note that the caller was cancelled before these items had a result."""
        for item in items:
            with self._lock:
                if item not in self.ends:
                    self.ends[item] = CANCELLED

    def _note(self, item: str, word: str) -> None:
        with self._lock:
            if item in self.ends:
                self.doubled.append(item)
            self.ends[item] = word

    def check(self) -> None:
        """Assert that each announced item has ended, and ended once."""
        assert self.doubled == [], "ended twice"
        assert set(self.ends) == self.expected, "lost, or never announced"

    def words(self, items: Iterable[str]) -> set[str]:
        """Return how some items ended."""
        return {self.ends[item] for item in items}
