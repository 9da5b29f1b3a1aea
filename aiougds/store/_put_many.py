"""Putting many chunks: one submission and one wait for the journal for all of them.

What needs something special (memory that is not registered or not aligned, a key that
another task is putting) is put by itself, in its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import BatchError, BrokenError, UGDSError
from aiougds.store._entries import Put
from aiougds.store._errors import told
from aiougds.store._lanes import PART_BYTES, in_lanes, parts_of
from aiougds.store._memory import checksums, is_aligned, registered
from aiougds.store._pieces import in_pieces
from aiougds.store._puts import (
    LAZY_MOST,
    LAZY_RECORDS,
    WRITE,
    Writing,
    no_room,
    present,
    put_one,
    take_back,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds._transfer import Clock
    from aiougds.store._puts import Block, Source
    from aiougds.store._shard import Shard

AT_ONCE: Final = 256  # chunks of one submission
Results = list[bool | UGDSError]


class _Group:
    """Chunks that are written together."""

    __slots__ = ("_clock", "_durable", "_members", "_results", "_shard")

    def __init__(
        self, shard: Shard, clock: Clock, results: Results, *, durable: bool
    ) -> None:
        self._shard = shard
        self._clock = clock
        self._results = results
        self._durable = durable
        self._members: list[tuple[int, Writing]] = []

    async def add(self, index: int, key: bytes, source: Source) -> None:
        """Take what the chunk needs; where that means waiting, the others go first."""
        shard, disk = self._shard, self._shard.disk
        pool = shard.slots.fitting(source.nbytes)
        if pool is None or not source.nbytes:
            raise no_room(shard, source.nbytes)
        # Before anything is awaited: whoever puts the key now waits for this one.
        shard.putting[key] = []
        block: Block | None = None
        slot: int | None = None
        writing: Writing | None = None
        try:
            block = disk.try_block()
            if block is None:
                await self.run()
                block = await disk.block(self._clock)
            slot = shard.take(pool, key)
            if slot is None:
                slot = await shard.room(pool, self._clock, self.run)
            put = Put(key, slot, shard.next_gen(), source.nbytes)
            writing = Writing(put, source)
            await writing.prepare(shard, pool, block)
            if not put.kind:
                writing.seal(0)
        except BaseException:
            if writing is not None:
                writing.give_blocks(disk)
            elif block is not None:
                disk.give(block)
            if slot is not None:
                shard.give_back(slot)
            self._done(key)
            raise
        self._members.append((index, writing))
        if len(self._members) >= AT_ONCE:
            await self.run()

    async def run(self) -> None:
        """Write them, and have them journaled."""
        shard, members = self._shard, self._members
        if not members:
            return
        self._members = []
        try:
            good = await self._write(members)
            for writing in good:
                writing.give_blocks(shard.disk)
                shard.counts.puts += 1
                shard.counts.put_bytes += writing.put.length
                shard.journal.put(writing.put)
            await self._finish([writing.put for writing in good])
        except UGDSError as error:
            for index, writing in members:
                if self._results[index] is False and not writing.put.seen:
                    self._results[index] = error
        finally:
            for _, writing in members:
                self._done(writing.put.key)
        for index, writing in members:
            if self._results[index] is False:
                self._results[index] = writing.put.seen

    async def _write(self, members: list[tuple[int, Writing]]) -> list[Writing]:
        """Write them; return those that could be."""
        shard, journal = self._shard, self._shard.journal
        good: list[Writing] = []
        # A part's checksums are computed while the one before is written.
        parts = parts_of(
            members,
            (writing.put.length for _, writing in members),
            most=AT_ONCE,
            most_bytes=PART_BYTES if shard.kind else None,
        )
        journal.writing += 1
        try:
            await in_lanes(parts, lambda part: self._write_part(part, good))
        except BaseException as error:
            if isinstance(error, BrokenError):
                journal.fail(error)
            self._give_back([writing for _, writing in members])
            raise
        finally:
            journal.writing -= 1
        if len(good) < len(members):
            written = set(map(id, good))
            self._give_back([one for _, one in members if id(one) not in written])
        return good

    async def _write_part(
        self, members: Sequence[tuple[int, Writing]], good: list[Writing]
    ) -> None:
        shard, disk, journal = self._shard, self._shard.disk, self._shard.journal
        if shard.kind:
            summed = [writing.summed() for _, writing in members]
            found = await checksums(disk.home, summed)
            for (_, writing), value in zip(members, found, strict=True):
                writing.seal(value)
        for _, writing in members:
            writing.requests = in_pieces(writing.requests, disk.command_bytes)
        requests = [one for _, writing in members for one in writing.requests]
        outcomes: Sequence[int | UGDSError] = ()
        try:
            await shard.writer().write_many(requests, timeout_s=self._clock.left())
        except BatchError as error:
            outcomes = error.results
        at = 0
        for index, writing in members:
            count = len(writing.requests)
            mine = outcomes[at : at + count] if outcomes else ()
            at += count
            failed = next((one for one in mine if isinstance(one, UGDSError)), None)
            if failed is None:
                good.append(writing)
                continue
            if isinstance(failed, BrokenError):
                journal.fail(failed)
            self._results[index] = failed

    async def _finish(self, puts: list[Put]) -> None:
        shard, journal = self._shard, self._shard.journal
        if not puts:
            return
        if not self._durable:
            shard.lazy = puts[-1].ticket
            for put in puts:
                shard.show(put)
            shard.committed()
            if journal.backlog >= (LAZY_MOST if journal.busy else LAZY_RECORDS):
                await journal.settle(journal.done + 1, self._clock)
            return
        try:
            await journal.settle(puts[-1].ticket, self._clock)
        except BaseException:
            for put in puts:
                take_back(shard, put)
            raise

    def _give_back(self, writings: list[Writing]) -> None:
        shard = self._shard
        stuck = shard.disk.is_stuck()
        for writing in writings:
            writing.give_blocks(shard.disk, stuck=stuck)
            shard.give_back(writing.put.slot)

    def give_up(self) -> None:
        """Give back what was taken and not written."""
        members, self._members = self._members, []
        self._give_back([writing for _, writing in members])
        for _, writing in members:
            self._done(writing.put.key)

    def _done(self, key: bytes) -> None:
        """Whoever waits for the put of the key looks again."""
        others = self._shard.putting.pop(key)
        if others:
            self._shard.disk.home.wake(others)


async def put_many(
    shard: Shard, items: Sequence[tuple[bytes, object]], clock: Clock, *, durable: bool
) -> Results:
    """Put chunks; for each whether it was written now, or why it could not be."""
    results: Results = [False] * len(items)
    found = False
    group = _Group(shard, clock, results, durable=durable)
    device = shard.disk.ns._device
    try:
        for index, (key, buf) in enumerate(items):
            try:
                shard.journal.check()
                if present(shard, key):
                    found = True
                    continue
                source = registered(device, buf, WRITE)
                if source is None or key in shard.putting or not is_aligned(source):
                    await group.run()
                    results[index] = await put_one(
                        shard, key, buf, clock, durable=durable
                    )
                else:
                    await group.add(index, key, source)
            except UGDSError as error:
                results[index] = error
        await group.run()
        if found and durable:
            await shard.settle_lazy(clock)
    except BaseException:
        group.give_up()
        raise
    return told(results)
