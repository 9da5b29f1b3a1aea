"""Putting chunks: their bytes first, then the journal, then everybody sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import BatchError, BrokenError
from aiougds._ffi import lib
from aiougds.store._entries import Put
from aiougds.store._errors import ChunkTooLargeError
from aiougds.store._layout import BLOCK
from aiougds.store._memory import (
    Summed,
    check_summable,
    checksums,
    copy_out,
    for_a_call,
    is_aligned,
    registered,
)
from aiougds.store._records import tail_fits, write_header

if TYPE_CHECKING:
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._transfer import Clock
    from aiougds.store._disk import Disk
    from aiougds.store._shard import Shard
    from aiougds.store._slots import Pool

    Source = PinnedMemory | RegistrationSlice
    Block = tuple[RegistrationSlice, memoryview]

WRITE: Final = lib.UGDS_OP_WRITE
SMALL_BYTES: Final = 128 << 10
"""Up to that a batch costs more than what it saves: one write after the other."""
LAZY_RECORDS: Final = 64
"""Of puts that nobody waits for: with so many one of them writes the journal."""
LAZY_MOST: Final = 4096  # with more all of them wait


def no_room(shard: Shard, nbytes: int) -> ChunkTooLargeError:
    """Say that a chunk has no place in any slot."""
    most = shard.slots.pools[-1].slot_bytes
    return ChunkTooLargeError(
        f"a chunk of {nbytes} bytes: the slots of this store hold 1 .. {most}"
        + ("; format it with larger slot_bytes" if nbytes else "")
    )


class Writing:
    """A chunk whose bytes are to be written, and what it borrows for that."""

    __slots__ = ("_in_header", "blocks", "put", "requests", "source")

    def __init__(self, put: Put, source: Source) -> None:
        self._in_header = 0  # bytes of the tail that are at the end of the header
        self.put = put
        self.source = source
        self.blocks: list[Block] = []
        self.requests: list[tuple[Source, int]] = []

    async def prepare(self, shard: Shard, pool: Pool, block: Block) -> None:
        """Copy the tail, and list what is to be written where."""
        disk, put, source = shard.disk, self.put, self.source
        self.blocks.append(block)
        at = pool.at(put.slot)
        length = put.length
        tail = length % disk.superblock.lba_bytes
        in_header = tail_fits(put.key, tail)
        self._in_header = tail if in_header else 0
        put.kind = shard.kind
        if put.kind:
            check_summable(source)
        requests = self.requests
        requests.append((block[0], at))
        if not tail:
            requests.append((source, at + BLOCK))
            return
        shard.counts.tail_bytes += tail
        whole = length - tail
        if whole:
            requests.append((source[:whole], at + BLOCK))
        if in_header:
            await copy_out(disk.home, source, whole, block[1][BLOCK - tail :])
            return
        other = disk.try_block() or await disk.another()
        self.blocks.append(other)
        await copy_out(disk.home, source, whole, other[1][:tail])
        lba = disk.superblock.lba_bytes
        requests.append((other[0][:lba], at + BLOCK + whole))

    def summed(self) -> Summed:
        """Return what to compute the checksum of."""
        put = self.put
        return Summed(put.kind, put.key, put.gen, self.source, put.length)

    def seal(self, checksum: int) -> None:
        """Make the header: nothing else is left to be known."""
        put = self.put
        put.checksum = checksum
        write_header(
            self.blocks[0][1],
            put.gen,
            put.length,
            checksum,
            put.kind,
            put.key,
            self._in_header,
        )

    def give_blocks(self, disk: Disk, *, stuck: bool = False) -> None:
        """Give back what was borrowed."""
        for block in self.blocks:
            disk.give(block, stuck=stuck)
        self.blocks.clear()


def present(shard: Shard, key: bytes) -> bool:
    """Whether the key is there; that counts as a use of it."""
    slot = shard.slots.index.get(key)
    if slot is None:
        return False
    shard.slots.pool_of(slot).policy.touch(slot)
    shard.counts.puts_present += 1
    return True


async def put_one(
    shard: Shard, key: bytes, buf: object, clock: Clock, *, durable: bool
) -> bool:
    """Put a chunk; False: it is there already."""
    shard.journal.check()
    while True:
        if present(shard, key):
            if durable:
                await shard.settle_lazy(clock)
            return False
        others = shard.putting.get(key)
        if others is None:
            break
        await shard.disk.wait(others, clock)
    others = shard.putting[key] = []
    try:
        source = registered(shard.disk.ns._device, buf, WRITE)
        if source is not None:
            await _put(shard, key, source, clock, durable=durable)
        else:
            shard.counts.unregistered += 1
            async with for_a_call(shard.disk.ns, buf) as reg:
                await _put(shard, key, reg, clock, durable=durable)
    finally:
        del shard.putting[key]
        if others:
            shard.disk.home.wake(others)
    return True


async def _put(
    shard: Shard, key: bytes, source: Source, clock: Clock, *, durable: bool
) -> None:
    disk, journal = shard.disk, shard.journal
    length = source.nbytes
    pool = shard.slots.fitting(length)
    if pool is None or not length:
        raise no_room(shard, length)
    slot = shard.take(pool, key)
    if slot is None:
        slot = await shard.room(pool, clock)
    put = Put(key, slot, shard.next_gen(), length)
    block: Block | None = None
    writing: Writing | None = None
    journal.writing += 1
    try:
        block = disk.try_block() or await disk.block(clock)
        if length > SMALL_BYTES or shard.kind or length % disk.superblock.lba_bytes:
            writing = Writing(put, source)
            await writing.prepare(shard, pool, block)
            found = 0
            if put.kind:
                (found,) = await checksums(disk.home, [writing.summed()])
            writing.seal(found)
            await write(shard, writing.requests, source, clock)
        else:  # the same, without what it does not need
            write_header(block[1], put.gen, length, 0, 0, key, 0)
            handle, at, left = shard.writer(), pool.at(slot), clock.left()
            await handle.write(block[0], offset=at, timeout_s=left)
            await handle.write(source, offset=at + BLOCK, timeout_s=left)
    except BaseException as error:
        stuck = disk.is_stuck()
        if writing is not None:
            writing.give_blocks(disk, stuck=stuck)
        elif block is not None:
            disk.give(block, stuck=stuck)
        shard.give_back(slot)
        if isinstance(error, BrokenError):
            journal.fail(error)
        raise
    finally:
        journal.writing -= 1
    if writing is None:
        disk.give(block)
    else:
        writing.give_blocks(disk)
    counts = shard.counts
    counts.puts += 1
    counts.put_bytes += length
    journal.put(put)
    if not durable:
        await have_seen(shard, put, clock)
        return
    try:
        await journal.settle(put.ticket, clock)
    except BaseException:
        take_back(shard, put)
        raise


async def write(
    shard: Shard, requests: list[tuple[Source, int]], source: Source, clock: Clock
) -> None:
    """Write header and data; raise the first failure of them."""
    handle, left = shard.writer(), clock.left()
    if source.nbytes > SMALL_BYTES and is_aligned(source):
        try:
            await handle.write_many(requests, timeout_s=left)
        except BatchError as error:
            raise error.exceptions[0] from None
        return
    for memory, at in requests:  # the engine copies what no device can reach
        await handle.write(memory, offset=at, timeout_s=left)


async def have_seen(shard: Shard, put: Put, clock: Clock) -> None:
    """Have everybody see a chunk, and leave it for later that it is durable."""
    journal = shard.journal
    shard.lazy = put.ticket
    shard.show(put)
    shard.committed()
    if journal.backlog >= (LAZY_RECORDS if not journal.busy else LAZY_MOST):
        await journal.settle(journal.done + 1, clock)


def take_back(shard: Shard, put: Put) -> None:
    """Have nobody see what its caller has given up."""
    slots = shard.slots
    if not put.seen:
        shard.abandon(put)
    elif (
        slots.index.get(put.key) == put.slot
        and slots.columns.gens[put.slot] == put.gen
        and put.slot not in slots.pins
    ):
        shard.remove(put.slot, "deleted")
