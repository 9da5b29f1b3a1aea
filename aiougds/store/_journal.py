"""The journal: what becomes durable, in order, many puts with one write.

There is no task of its own. Whoever waits first leads: it writes what is there by
then, tells the others, and hands over to one of those that came meanwhile. A leader
that is cancelled leaves its blocks behind; the next one writes the same once more.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from aiougds._errors import (
    BrokenError,
    ClosedError,
    OperationTimeoutError,
    RangeBusyError,
)
from aiougds.store._checkpoint import Checkpoints
from aiougds.store._disk import ALONE
from aiougds.store._entries import Commit, Put
from aiougds.store._errors import StoreBrokenError
from aiougds.store._layout import BLOCK
from aiougds.store._records import blocks_of, delete_record, journal_block, put_record

if TYPE_CHECKING:
    from aiougds._pinned import RegistrationSlice
    from aiougds._registration import Registration
    from aiougds._transfer import Clock
    from aiougds.store._disk import Disk
    from aiougds.store._entries import Owner
    from aiougds.store._recovery import Recovered
    from aiougds.store._slots import Slots

MOST_BLOCKS: Final = 16  # of one commit


class Journal:
    """The journal of one device, and its checkpoints."""

    __slots__ = (
        "_buffer", "_disk", "_epoch", "_late", "_one", "_owner", "_pending", "_ring",
        "_spare", "_tail", "_unfinished", "_view", "_waiters", "added", "blocks",
        "broken", "busy", "checkpoints", "closed", "commits", "done", "head", "writing",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        slots: Slots,
        recovered: Recovered,
        buffer: Registration,
        pages: Registration,
        owner: Owner,
    ) -> None:
        self._disk = disk
        self._owner = owner
        self._ring = disk.superblock.journal_blocks
        self._epoch = recovered.epoch
        self.head = recovered.head  # sequence of the next block
        self._tail = recovered.checkpoint.replay_from
        self._write_from(buffer)
        self._spare: list[Registration] = []  # took the place of what was given up
        self.checkpoints = Checkpoints(disk, slots, recovered.checkpoint, pages)
        self._pending: deque[tuple[bytes, Put | int]] = deque()
        self.added = 0
        """Records so far; the number of the last one is what to settle."""
        self.done = 0
        """Records that are durable."""
        self._waiters: list[tuple[int, list[object]]] = []
        self.writing = 0
        """Puts whose bytes are on their way to the device."""
        self.busy = False
        self._unfinished: Commit | None = None
        self.broken: BrokenError | None = None
        self.closed = False
        # The first block of a write that was given up, and may still happen.
        self._late: int | None = None
        self.commits = 0
        self.blocks = 0

    # ---- adding ----

    def put(self, put: Put) -> None:
        """Add a chunk whose bytes are on the device."""
        record = put_record(
            put.slot, put.gen, put.length, put.checksum, put.kind, put.key
        )
        self._pending.append((record, put))
        self.added += 1
        put.ticket = self.added

    def delete(self, slot: int, gen: int) -> int:
        """Add that a slot holds nothing any more; returns what to settle."""
        self._pending.append((delete_record(slot, gen), slot))
        self.added += 1
        return self.added

    def withdraw(self, put: Put) -> bool:
        """Have a put that is not being written yet be a deletion; False: it is."""
        for i, (_, entry) in enumerate(self._pending):
            if entry is put:
                self._pending[i] = (delete_record(put.slot, put.gen), put.slot)
                return True
        return False

    @property
    def backlog(self) -> int:
        """Records that are not durable yet."""
        return self.added - self.done

    # ---- waiting ----

    def check(self) -> None:
        """Raise when it can be written no more."""
        if self.broken is not None:
            raise StoreBrokenError(
                f"the journal of {self._disk.ns!r} could not be written "
                f"({self.broken}); close the store and open it again"
            ) from self.broken
        if self.closed:
            raise ClosedError("the store was closed meanwhile; open it again")

    def fail(self, error: BrokenError) -> None:
        """Write no more: what a volatile cache held may be lost."""
        self.broken = self.broken or error

    async def settle(self, ticket: int, clock: Clock) -> None:
        """Wait until that record is durable, and see to it."""
        try:
            while self.done < ticket:
                if self.broken is not None or self.closed:
                    self.check()
                if clock.over():
                    raise OperationTimeoutError(
                        "the journal was not written within timeout_s; nothing is "
                        "known of the operation until it is"
                    )
                if self.busy:
                    await self._follow(ticket, clock)
                else:
                    await self._lead(clock)
        except BaseException:
            if not self.busy:  # it may have been my turn
                self._hand_over()
            raise

    async def _follow(self, ticket: int, clock: Clock) -> None:
        place: tuple[int, list[object]] = (ticket, [])
        self._waiters.append(place)
        try:
            await self._disk.home.park(place[1], ALONE, clock.left())
        finally:
            if place in self._waiters:
                self._waiters.remove(place)

    def _hand_over(self) -> None:
        if self._waiters:
            self._disk.home.wake(self._waiters[0][1])

    async def _lead(self, clock: Clock) -> None:
        self.busy = True
        try:
            if self.writing:
                # Those that end in the same turn of the loop come along.
                await self._disk.home.breathe()
            await self._commit(clock)
        except BrokenError as error:
            self.fail(error)
            raise
        finally:
            self.busy = False
            if self._waiters:
                self._wake_settled()

    def _wake_settled(self) -> None:
        done = self.added if self.broken else self.done
        there, self._waiters = self._waiters, []
        for place in there:
            if place[0] <= done:
                self._disk.home.wake(place[1])
            else:
                self._waiters.append(place)
        self._hand_over()

    # ---- writing ----

    async def _commit(self, clock: Clock) -> None:
        disk, ring = self._disk, self._ring
        commit = self._unfinished
        if commit is None:
            if self.head - self._tail > ring // 2 or self.checkpoints.running:
                await self._make_room(clock)
            if self._late is not None:
                self._beware_of_late()
            commit = self._unfinished = self._gather()
        if disk.fua:
            if commit.has_data:
                await disk.puts.flush(timeout_s=clock.left())
            self._check_power()
        base = disk.superblock.journal
        count = len(commit.blocks)
        view = self._view
        for i, block in enumerate(commit.blocks):
            view[i * BLOCK : i * BLOCK + len(block)] = block
        place = commit.first % ring
        before = min(count, ring - place)
        try:
            await disk.ns.write(
                self._part(0, before),
                offset=base + place * BLOCK,
                fua=disk.fua,
                timeout_s=clock.left(),
            )
            if before < count:
                await disk.ns.write(
                    self._part(before, count),
                    offset=base,
                    fua=disk.fua,
                    timeout_s=clock.left(),
                )
        except BaseException:
            if disk.is_stuck():  # the same bytes go again, from elsewhere
                if self._late is None:
                    self._late = commit.first
                other = await disk.ns.allocate(MOST_BLOCKS * BLOCK)
                self._spare.append(other)
                self._write_from(other)
            raise
        self._unfinished = None
        self._finish(commit)

    def _write_from(self, buffer: Registration) -> None:
        self._buffer, self._view = buffer, buffer.view
        self._one = buffer[:BLOCK]

    def _part(self, first: int, last: int) -> RegistrationSlice:
        """Return where these blocks of a commit are."""
        if last - first == 1 and not first:
            return self._one
        return self._buffer[first * BLOCK : last * BLOCK]

    def _beware_of_late(self) -> None:
        """Raise before a block takes the place of one whose write may still happen."""
        assert self._late is not None
        if not self._disk.is_stuck():
            self._late = None
        elif self.head + MOST_BLOCKS > self._late + self._ring:
            raise RangeBusyError(
                "the journal has come round to a block whose write was given up and "
                "is not answered yet; try again when the device has answered, or "
                "reset the controller and open the store again"
            )

    def _check_power(self) -> None:
        """Raise when what was written may have been lost since it was opened."""
        try:
            self._disk.check_power()
        except BrokenError as error:
            self.fail(error)
            self.check()

    async def _make_room(self, clock: Clock) -> None:
        """Write what of a checkpoint is due, so that the ring never runs full."""
        points = self.checkpoints
        if not points.running:
            # In so many commits that half of what is left of the ring remains.
            if not self._owner.note_use(self._ring // 4 // MOST_BLOCKS):
                return
            points.begin(self.head, self._epoch)
        left = self._ring - (self.head - self._tail) - 2 * MOST_BLOCKS
        waiting = min(MOST_BLOCKS, 1 + len(self._pending) // 32)
        if await points.advance(left // waiting, clock):
            self._tail = points.last.replay_from

    async def _checkpoint(self, clock: Clock) -> None:
        points = self.checkpoints
        if not points.running:
            points.begin(self.head, self._epoch)
        await points.advance(0, clock)
        self._tail = points.last.replay_from

    def _gather(self) -> Commit:
        pending, store, epoch = self._pending, self._disk.store, self._epoch
        if len(pending) == 1:  # one put, and nobody beside it
            record, entry = pending.popleft()
            block = journal_block(store, self.head, epoch, [record])
            commit = Commit(self.head, [block], [entry], type(entry) is Put)
            self.head += 1
            return commit
        records = [record for record, _ in islice(pending, MOST_BLOCKS * 128)]
        blocks: list[bytes] = []
        taken = 0
        for part in blocks_of(records, MOST_BLOCKS):
            blocks.append(journal_block(store, self.head + len(blocks), epoch, part))
            taken += len(part)
        entries = [pending.popleft()[1] for _ in range(taken)]
        has_data = any(type(entry) is Put for entry in entries)
        commit = Commit(self.head, blocks, entries, has_data)
        self.head += len(blocks)
        return commit

    def _finish(self, commit: Commit) -> None:
        self.commits += 1
        self.blocks += len(commit.blocks)
        self.done += len(commit.entries)
        for entry in commit.entries:
            if type(entry) is int:
                self._owner.freed(entry)
            # typed: not an int, so an entry
            elif not entry.seen:  # type: ignore[union-attr]
                self._owner.published(entry)  # type: ignore[arg-type]
        self._owner.committed()

    async def end(self, clock: Clock) -> None:
        """Write what is left, and a checkpoint, so that the next opening is quick."""
        try:
            self._check_power()
            self.check()
            while self.busy or self.done < self.added:
                if clock.over():
                    raise OperationTimeoutError(
                        "the journal was not written within timeout_s"
                    )
                if self.busy:
                    await self._follow(self.added, clock)
                else:
                    await self._lead(clock)
            # In the leader's place: nobody else writes a checkpoint meanwhile.
            self.busy = self.closed = True
            if (
                await self._owner.aged()
                or self.head > self.checkpoints.last.replay_from
            ):
                await self._checkpoint(clock)
        finally:
            self.closed = True
            self.busy = False
            there, self._waiters = self._waiters, []
            for place in there:
                self._disk.home.wake(place[1])
            for buffer in (*self._spare, *self.checkpoints.spare):
                await buffer.abandon_off_loop()
