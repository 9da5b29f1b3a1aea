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


class _Table:
    __slots__ = ("by_key", "classes", "dead", "lock", "serial")

    def __init__(self, serial: int = 0) -> None:
        self.lock = threading.Lock()
        self.serial = serial
        # size class -> sorted (start, serial); (start, serial) -> (end, registration)
        self.classes: dict[int, list[tuple[int, int]]] = {}
        self.by_key: dict[tuple[int, int], tuple[int, weakref.ref[PinnedMemory]]] = {}
        # A destructor may run while the lock is held here, so it only leaves a note.
        self.dead: deque[tuple[int, int, int]] = deque()

    def bury(self) -> None:
        while self.dead:
            start, nbytes, serial = self.dead.popleft()
            size = nbytes.bit_length()
            key = (start, serial)
            if self.by_key.pop(key, None) is not None:
                keys = self.classes[size]
                del keys[bisect_left(keys, key)]
                if not keys:
                    del self.classes[size]


class Intervals:
    """Registrations by address range; it keeps none of them alive."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table = _Table()

    def add(self, start: int, nbytes: int, registration: PinnedMemory) -> int:
        """Insert a range; the answer names it for :meth:`remove`."""
        table = self._table
        reference = weakref.ref(registration)
        with table.lock:
            table.bury()
            table.serial += 1
            key = (start, table.serial)
            table.by_key[key] = (start + nbytes, reference)
            insort(table.classes.setdefault(nbytes.bit_length(), []), key)
            return key[1]

    def remove(self, start: int, nbytes: int, serial: int) -> None:
        """Take a range out again."""
        self._table.dead.append((start, nbytes, serial))

    def holders(self, start: int, nbytes: int) -> list[PinnedMemory]:
        """Return registrations that hold [start, start + nbytes), smallest first."""
        table = self._table
        found: list[PinnedMemory] = []
        with table.lock:
            table.bury()
            for size in sorted(table.classes):
                keys = table.classes[size]
                at = bisect_right(keys, (start, table.serial))
                while at and keys[at - 1][0] + (1 << size) > start:
                    at -= 1
                    end, reference = table.by_key[keys[at]]
                    registration = reference()
                    if registration is not None and start + nbytes <= end:
                        found.append(registration)
        return [holder for holder in found if not holder.closed]

    def forget(self) -> None:
        """In a fork's child: nothing is registered, and the lock may be held.

        A new table: a call that is on its way, when a signal's handler forks, ends with
        the old one. Serials go on, so that what is removed late is not mistaken.
        """
        self._table = _Table(self._table.serial)


registered: Final = Intervals()
