"""Which live registration holds an address: a process-wide index of intervals.

Intervals may overlap. They are kept in sorted lists by size class (powers of two), so
a look-up walks back over no more than twice the length of its class.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiougds._pinned import PinnedMemory


class Intervals:
    """Registrations by address range; it keeps none of them alive."""

    __slots__ = ("_by_key", "_classes", "_dead", "_lock", "_serial")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serial = 0
        # size class -> sorted (start, serial); (start, serial) -> (end, registration)
        self._classes: dict[int, list[tuple[int, int]]] = {}
        self._by_key: dict[tuple[int, int], tuple[int, weakref.ref[PinnedMemory]]] = {}
        # A destructor may run while the lock is held here, so it only leaves a note.
        self._dead: deque[tuple[int, int, int]] = deque()

    def add(self, start: int, nbytes: int, registration: PinnedMemory) -> int:
        """Insert a range; the answer names it for :meth:`remove`."""
        reference = weakref.ref(registration)
        with self._lock:
            self._bury()
            self._serial += 1
            key = (start, self._serial)
            self._by_key[key] = (start + nbytes, reference)
            insort(self._classes.setdefault(nbytes.bit_length(), []), key)
            return key[1]

    def remove(self, start: int, nbytes: int, serial: int) -> None:
        """Take a range out again."""
        self._dead.append((start, nbytes, serial))

    def _bury(self) -> None:
        while self._dead:
            start, nbytes, serial = self._dead.popleft()
            size = nbytes.bit_length()
            key = (start, serial)
            if self._by_key.pop(key, None) is not None:
                keys = self._classes[size]
                del keys[bisect_left(keys, key)]
                if not keys:
                    del self._classes[size]

    def holders(self, start: int, nbytes: int) -> list[PinnedMemory]:
        """Return registrations that hold [start, start + nbytes), smallest first."""
        found: list[PinnedMemory] = []
        with self._lock:
            self._bury()
            for size in sorted(self._classes):
                keys = self._classes[size]
                at = bisect_right(keys, (start, self._serial))
                while at and keys[at - 1][0] + (1 << size) > start:
                    at -= 1
                    end, reference = self._by_key[keys[at]]
                    registration = reference()
                    if registration is not None and start + nbytes <= end:
                        found.append(registration)
        return [holder for holder in found if not holder.closed]

    def forget(self) -> None:
        """In a fork's child: nothing is registered, and the lock may be held."""
        self._lock = threading.Lock()
        self._classes.clear()
        self._by_key.clear()
        self._dead.clear()


registered: Final = Intervals()
