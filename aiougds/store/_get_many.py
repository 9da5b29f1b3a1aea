"""Getting many chunks with one submission."""

from __future__ import annotations

import operator
from array import array
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from aiougds._errors import BatchError, UGDSError
from aiougds._pinned import PinnedMemory
from aiougds.store._gets import READ, Reading, get_one, release
from aiougds.store._lanes import PART_BYTES, in_lanes, parts_of
from aiougds.store._layout import BLOCK
from aiougds.store._memory import (
    Summed,
    check_summable,
    checksums,
    is_aligned,
    registered,
)
from aiougds.store._pieces import equal_pieces, in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from aiougds._transfer import Clock
    from aiougds.store._shard import Shard

    class _Slice(Protocol):
        """What is used of a RegistrationSlice, if it is one."""

        _reg: object
        _start: int
        nbytes: int


AT_ONCE: Final = 2048  # chunks of one submission
_or: Final = cast("Callable[[int, int], int]", operator.or_)


class Alike:
    """Chunks of the same length, all there, for one registration: the usual restore.

    Nothing is made for each of them but numbers, which C checks and sends.
    """

    __slots__ = ("_nbytes", "_offsets", "_reg", "_slots", "_starts")

    def __init__(
        self,
        reg: PinnedMemory,
        slots: list[int],
        starts: list[int],
        offsets: list[int],
        nbytes: int,
    ) -> None:
        self._reg = reg
        self._slots = slots
        self._starts = starts
        self._offsets = offsets
        self._nbytes = nbytes

    @classmethod
    def of(cls, shard: Shard, items: Sequence[tuple[bytes, object]]) -> Alike | None:
        """Return them, if they are that; None: something is special."""
        slots, disk = shard.slots, shard.disk
        columns = slots.columns
        try:
            index, lengths = slots.index, columns.lengths
            found = [index[key] for key, _ in items]
            all_lengths = [lengths[slot] for slot in found]
            nbytes = all_lengths[0]
            pool = slots.fitting(nbytes)
            # what is no slice raises AttributeError
            slices = cast("Sequence[tuple[bytes, _Slice]]", items)
            (reg,) = {into._reg for _, into in slices}
            sizes = {into.nbytes for _, into in slices}
            starts = [into._start for _, into in slices]
        except (AttributeError, IndexError, KeyError, ValueError):
            return None
        if (
            pool is None
            or nbytes % disk.superblock.lba_bytes
            or all_lengths.count(nbytes) < len(found)
            or min(sizes) < nbytes
            or not isinstance(reg, PinnedMemory)
            or reg._device is not disk.ns._device
            or not is_aligned(reg)
            or any(map(columns.kinds.__getitem__, found))
            or reduce(_or, starts) & 3
        ):
            return None
        base, stride = pool.offset + BLOCK, pool.stride
        return cls(reg, found, starts, [base + slot * stride for slot in found], nbytes)

    async def read(self, shard: Shard, clock: Clock) -> list[int | UGDSError]:
        """Read all of them."""
        count, nbytes = len(self._slots), self._nbytes
        touch = shard.slots.pool_of(self._slots[0]).policy.touch
        for slot in self._slots:
            touch(slot)
        held = shard.hold_all(self._slots)
        failed = False
        results: list[int | UGDSError]
        disk = shard.disk
        offsets, starts, pieces = self._offsets, self._starts, 1
        if nbytes > disk.command_bytes:
            lba = disk.superblock.lba_bytes
            pieces = equal_pieces(nbytes, disk.command_bytes, lba)
            steps = range(0, nbytes, nbytes // pieces)
            offsets = [at + step for at in offsets for step in steps]
            starts = [at + step for at in starts for step in steps]
        try:
            done = await disk.gets.read_many(
                self._reg,
                offsets=array("q", offsets),
                nbytes=nbytes // pieces,
                buf_offsets=array("q", starts),
                timeout_s=clock.left(),
            )
            results = list(done) if pieces == 1 else [nbytes] * count
        except BatchError as error:
            failed, results = True, list(error.results)
            if pieces > 1:
                results = [
                    next(
                        (
                            one
                            for one in results[at : at + pieces]
                            if isinstance(one, UGDSError)
                        ),
                        nbytes,
                    )
                    for at in range(0, pieces * count, pieces)
                ]
        except UGDSError as error:
            failed, results = True, []
            results.extend(error for _ in range(count))
        finally:
            shard.let_all_go(held)
        hits = count
        if failed:
            hits -= sum(isinstance(one, UGDSError) for one in results)
        shard.counts.gets += count
        shard.counts.hits += hits
        shard.counts.get_bytes += hits * nbytes
        return results


async def get_many(
    shard: Shard, items: Sequence[tuple[bytes, object]], clock: Clock
) -> list[int | UGDSError]:
    """Read chunks with one submission; for each its bytes, or why it is not there."""
    alike = Alike.of(shard, items)
    if alike is not None:
        return await alike.read(shard, clock)
    results: list[int | UGDSError] = [0] * len(items)
    together: list[tuple[int, Reading]] = []
    alone: list[tuple[int, bytes, object]] = []
    held: list[tuple[bytes, int]] = []
    disk, device = shard.disk, shard.disk.ns._device
    try:
        for index, (key, into) in enumerate(items):
            try:
                target = registered(device, into, READ)
                if target is None or not is_aligned(target):
                    alone.append((index, key, into))
                    held.append((key, shard.pin(key)))
                    continue
                shard.counts.gets += 1
                reading = Reading(shard, key, target)
                if reading.tail:
                    block = disk.try_block()
                    if block is None:
                        shard.counts.gets -= 1
                        alone.append((index, key, into))
                        held.append((key, shard.pin(key)))
                        continue
                    reading.use(shard, block)
                shard.hold(reading.slot)
                together.append((index, reading))
            except UGDSError as error:
                results[index] = error
        if together:
            kinds = shard.slots.columns.kinds
            # What has a checksum is compared while the next ones are read.
            summed = any(kinds[reading.slot] for _, reading in together)
            parts = parts_of(
                together,
                (reading.length for _, reading in together),
                most=AT_ONCE,
                most_bytes=PART_BYTES if summed else None,
            )
            await in_lanes(parts, lambda part: _together(shard, part, results, clock))
        while together:
            release(shard, together.pop()[1])
        for index, key, into in alone:
            try:
                results[index] = await get_one(shard, key, into, clock)
            except UGDSError as error:
                results[index] = error
    finally:
        for _, reading in together:
            release(shard, reading)
        for key, generation in held:
            shard.unpin(key, generation)
    return results


async def _together(
    shard: Shard,
    readings: Sequence[tuple[int, Reading]],
    results: list[int | UGDSError],
    clock: Clock,
) -> None:
    most = shard.disk.command_bytes
    for _, reading in readings:
        reading.requests = in_pieces(reading.requests, most)
    requests = [one for _, reading in readings for one in reading.requests]
    outcomes: tuple[int | UGDSError, ...] = ()
    try:
        await shard.disk.gets.read_many(requests, timeout_s=clock.left())
    except BatchError as error:
        outcomes = error.results
    except UGDSError as error:
        for index, _ in readings:
            results[index] = error
        return
    at = 0
    good: list[tuple[int, Reading]] = []
    summed: list[tuple[int, Reading, Summed]] = []
    for index, reading in readings:
        count = len(reading.requests)
        mine = outcomes[at : at + count] if outcomes else ()
        at += count
        failed = next((one for one in mine if isinstance(one, UGDSError)), None)
        if failed is not None:
            results[index] = failed
            continue
        try:
            await reading.take_tail(shard)
            wanted = reading.summed(shard)
            if wanted is None:
                good.append((index, reading))
            else:
                check_summable(reading.target)
                summed.append((index, reading, wanted))
        except UGDSError as error:
            results[index] = error
    for index, reading in good:
        results[index] = reading.end(shard, None)
    if not summed:
        return
    try:
        found = await checksums(shard.disk.home, [one for _, _, one in summed])
    except UGDSError as error:  # a kind whose library is missing
        for index, _, _ in summed:
            results[index] = error
        return
    for (index, reading, _), value in zip(summed, found, strict=True):
        try:
            results[index] = reading.end(shard, value)
        except UGDSError as error:
            results[index] = error
