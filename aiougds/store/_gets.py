"""Getting chunks: straight into the caller's memory, but for what ends in a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import BatchError, RangeError
from aiougds._ffi import lib
from aiougds._transfer import refuse_as_target
from aiougds.store._errors import ChunkCorruptError, ChunkNotFoundError
from aiougds.store._layout import BLOCK
from aiougds.store._memory import (
    Summed,
    checksums,
    copy_in,
    for_a_call,
    is_aligned,
    registered,
)
from aiougds.store._records import read_header, tail_fits

if TYPE_CHECKING:
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._transfer import Clock
    from aiougds.store._shard import Shard

    Target = PinnedMemory | RegistrationSlice
    Block = tuple[RegistrationSlice, memoryview]

READ: Final = lib.UGDS_OP_READ


def not_found(key: bytes) -> ChunkNotFoundError:
    """Say that there is no such chunk."""
    return ChunkNotFoundError(f"no chunk has the key {key!r}")


class Reading:
    """A chunk that is being read."""

    __slots__ = (
        "block", "gen", "in_header", "key", "length", "requests", "slot", "tail",
        "target",
    )  # fmt: skip

    def __init__(self, shard: Shard, key: bytes, target: Target) -> None:
        slot = shard.slots.index.get(key)
        if slot is None:
            shard.counts.misses += 1
            raise not_found(key)
        columns = shard.slots.columns
        length = columns.lengths[slot]
        if target.nbytes < length:
            raise RangeError(
                f"get: the chunk {key!r} has {length} bytes, the memory "
                f"{target.nbytes}; chunk(key).nbytes tells how many are needed"
            )
        refuse_as_target(target._reg.memory)
        self.key = key
        self.slot = slot
        self.gen = columns.gens[slot]
        self.length = length
        self.target = target
        self.tail = length % shard.disk.superblock.lba_bytes
        self.in_header = False
        self.block: Block | None = None
        pool = shard.slots.pool_of(slot)
        pool.policy.touch(slot)
        at = pool.at(slot) + BLOCK
        if not self.tail:
            whole = target if target.nbytes == length else target[:length]
            self.requests: list[tuple[Target, int]] = [(whole, at)]
        else:
            whole_bytes = length - self.tail
            self.requests = [(target[:whole_bytes], at)] if whole_bytes else []

    def use(self, shard: Shard, block: Block) -> None:
        """Read its end into a block of ours."""
        self.block = block
        at = shard.slots.pool_of(self.slot).at(self.slot)
        self.in_header = tail_fits(self.key, self.tail)
        if self.in_header:
            self.requests.append((block[0], at))
        else:
            lba = shard.disk.superblock.lba_bytes
            place = at + BLOCK + self.length - self.tail
            self.requests.append((block[0][:lba], place))

    async def take_tail(self, shard: Shard) -> None:
        """Copy what was read beside, if it is of this chunk."""
        if self.block is None:
            return
        view, tail = self.block[1], self.tail
        part = view[:tail]
        if self.in_header:
            header = read_header(view)
            if header is None or (header.generation, header.key) != (
                self.gen,
                self.key,
            ):
                raise self._corrupt(shard, "its header is not of this chunk")
            part = view[BLOCK - tail :]
        shard.counts.tail_bytes += tail
        await copy_in(shard.disk.home, self.target, self.length - tail, part)

    def summed(self, shard: Shard) -> Summed | None:
        """Return what to compute a checksum of; None: it has none."""
        columns = shard.slots.columns
        kind = columns.kinds[self.slot]
        if not kind or columns.gens[self.slot] != self.gen:
            return None
        return Summed(kind, self.key, self.gen, self.target, self.length)

    def end(self, shard: Shard, found: int | None) -> int:
        """Count it, if its checksum is what it was when it was put."""
        columns = shard.slots.columns
        if (
            found is not None
            and found != columns.sums[self.slot]
            and columns.gens[self.slot] == self.gen
        ):
            raise self._corrupt(shard, "its checksum is wrong")
        shard.counts.hits += 1
        shard.counts.get_bytes += self.length
        return self.length

    def _corrupt(self, shard: Shard, why: str) -> ChunkCorruptError:
        shard.counts.corrupt += 1
        if shard.slots.index.get(self.key) == self.slot:
            shard.remove(self.slot, "corrupt", pinned=True)
        return ChunkCorruptError(
            f"the chunk {self.key!r} of {self.length} bytes: {why}; it was dropped"
        )


async def get_one(shard: Shard, key: bytes, into: object, clock: Clock) -> int:
    """Read a chunk and return its bytes."""
    shard.counts.gets += 1
    disk = shard.disk
    target = registered(disk.ns._device, into, READ)
    if target is None:
        if key not in shard.slots.index:
            shard.counts.misses += 1
            raise not_found(key)
        shard.counts.unregistered += 1
        async with for_a_call(disk.ns, into) as reg:
            return await _get(shard, Reading(shard, key, reg), clock)
    return await _get(shard, Reading(shard, key, target), clock)


async def _get(shard: Shard, reading: Reading, clock: Clock) -> int:
    disk = shard.disk
    shard.hold(reading.slot)
    try:
        if reading.tail:
            reading.use(shard, disk.try_block() or await disk.block(clock))
        requests = reading.requests
        left = clock.left()
        if len(requests) > 1 and is_aligned(reading.target):
            await disk.gets.read_many(requests, timeout_s=left)
        else:  # the engine copies what no device can reach
            for memory, at in requests:
                await disk.gets.read(memory, offset=at, timeout_s=left)
        await reading.take_tail(shard)
        summed = reading.summed(shard)
        if summed is None:
            return reading.end(shard, None)
        (found,) = await checksums(disk.home, [summed])
        return reading.end(shard, found)
    except BatchError as error:
        raise error.exceptions[0] from None
    finally:
        release(shard, reading)


def release(shard: Shard, reading: Reading) -> None:
    """Give back what a reading borrowed."""
    if reading.block is not None:
        disk = shard.disk
        stuck = disk.gets._device.is_stuck(disk.gets._ptr)
        disk.give(reading.block, stuck=stuck)
        reading.block = None
    shard.let_go(reading.slot)
