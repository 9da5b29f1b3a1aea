"""Checkpoints: what is in the slots, page by page, while puts and gets go on.

A page is caught at any time after the checkpoint has begun; the journal is replayed
from where it stood then, and brings every page to the same moment. Its head is written
last, when all pages, and all data that they speak of, are durable. Of the two regions
the one that does not hold the last whole checkpoint is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import RangeBusyError
from aiougds.store._layout import BLOCK, PAGE_SLOTS
from aiougds.store._records import CheckpointHead, page

if TYPE_CHECKING:
    from aiougds._registration import Registration
    from aiougds._transfer import Clock
    from aiougds.store._disk import Disk
    from aiougds.store._slots import Slots

AT_ONCE: Final = 4  # pages of one write


class Checkpoints:
    """The checkpoints of one device."""

    __slots__ = (
        "_buffer", "_count", "_disk", "_epoch", "_nbytes", "_next",
        "_replay_from", "_slots", "_stuck", "count", "last", "running", "spare",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, slots: Slots, last: CheckpointHead, buffer: Registration
    ) -> None:
        self._disk = disk
        self._slots = slots
        self.last = last
        self.running = False
        self._stuck = False
        self.count = 0
        self._buffer = buffer
        self.spare: list[Registration] = []
        """Memory that took the place of what was given up."""
        self._count = len(slots.columns.keys)
        self._next = 0  # first slot of the next page
        self._nbytes = 0  # of pages written
        self._replay_from = self._epoch = 0

    def begin(self, replay_from: int, epoch: int) -> None:
        """Start one: what is journaled from that block on is replayed over it."""
        self.running = True
        self._next = self._nbytes = 0
        self._replay_from, self._epoch = replay_from, epoch

    def _base(self) -> int:
        """Return where the region of the checkpoint begins."""
        superblock = self._disk.superblock
        odd = (self.last.number + 1) % 2
        return superblock.checkpoint + odd * superblock.checkpoint_bytes

    async def advance(self, rounds: int, clock: Clock) -> bool:
        """Write pages, so many that it is whole after these rounds; True: it is."""
        if self._stuck:
            # The same place must not be written twice at a time.
            if self._disk.is_stuck():
                if rounds > 0:
                    return False
                raise RangeBusyError(
                    "the journal is full, and a page of the checkpoint that would "
                    "make room was given up before the device has answered"
                )
            self._stuck = False
        left = -(-(self._count - self._next) // PAGE_SLOTS)
        due = left if rounds <= 0 else -(-left // rounds)
        while due > 0:
            due -= await self._pages(min(due, AT_ONCE), clock)
        if self._next < self._count:
            return False
        await self._end(clock)
        return True

    async def _pages(self, most: int, clock: Clock) -> int:
        disk, buffer = self._disk, self._buffer
        view = buffer.view
        first, used, made = self._next, 0, 0
        while made < most:
            count = min(PAGE_SLOTS, self._count - first)
            data = page(
                disk.store, self.last.number + 1, self._slots.columns, first, count
            )
            view[used : used + len(data)] = data
            used += -(-len(data) // BLOCK) * BLOCK
            first += count
            made += 1
        at = self._base() + BLOCK + self._nbytes
        await self._write(buffer, used, at, clock)
        self._next = first
        self._nbytes += used
        return made

    async def _end(self, clock: Clock) -> None:
        disk = self._disk
        pages = -(-self._count // PAGE_SLOTS)
        number = self.last.number + 1
        head = CheckpointHead(
            number, self._replay_from, self._epoch, pages, self._nbytes
        )
        if disk.fua:
            await disk.puts.flush(timeout_s=clock.left())
            disk.check_power()
        self._buffer.view[:BLOCK] = head.pack(disk.store).ljust(BLOCK, b"\0")
        await self._write(self._buffer, BLOCK, self._base(), clock)
        self.last = head
        self.running = False
        self.count += 1

    async def _write(
        self, buffer: Registration, nbytes: int, at: int, clock: Clock
    ) -> None:
        disk = self._disk
        durable = disk.fua and nbytes == BLOCK and at == self._base()
        try:
            await disk.puts.write(
                buffer[:nbytes], offset=at, fua=durable, timeout_s=clock.left()
            )
        except BaseException:
            self._stuck = disk.is_stuck()
            if self._stuck:
                self._buffer = await disk.ns.allocate(buffer.nbytes)
                self.spare.append(self._buffer)
            raise
