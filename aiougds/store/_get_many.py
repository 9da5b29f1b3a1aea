"""Getting many chunks with one submission."""

from __future__ import annotations

import operator
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from aiougds._errors import BatchError, UGDSError
from aiougds._pinned import PinnedMemory
from aiougds.store._errors import check_keys, told
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
    from collections.abc import Sequence
    from typing import Protocol

    from aiougds._transfer import Clock
    from aiougds.store._shard import Shard

    class _Slice(Protocol):
        """What is used of a RegistrationSlice, if it is one."""

        _reg: object
        _start: int
        nbytes: int


AT_ONCE: Final = 2048  # chunks of one submission
ODD: Final = b"\3\0\0\0\0\0\0\0"  # of a little-endian word: no multiple of four


def _any_odd(words: array[int]) -> bool:
    """Whether one is no multiple of four: as one number, a fifth of the time."""
    mask = int.from_bytes(ODD * len(words), "little")
    return bool(int.from_bytes(words.tobytes(), "little") & mask)


class Alike:
    """Chunks of the same length, all there, for one registration: the usual restore.

    Nothing is made for each of them but numbers, which C checks and sends.
    """

    __slots__ = ("_nbytes", "_offsets", "_reg", "_slots", "_starts")

    def __init__(
        self,
        reg: PinnedMemory,
        slots: Sequence[int],
        starts: array[int],
        offsets: array[int],
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
            # no zip(*items): that makes an iterator of each, which wakes the collector
            keys = [key for key, _ in items]
            pick = operator.itemgetter(*keys)
            found: Sequence[int] = pick(slots.index)
            take = operator.itemgetter(*found)
            lengths: Sequence[int] = take(columns.lengths)
            nbytes = lengths[0]
            pool = slots.fitting(nbytes)
            # what is no slice raises AttributeError
            slices = cast("Sequence[_Slice]", [into for _, into in items])
            (reg,) = {into._reg for into in slices}
            sizes = {into.nbytes for into in slices}
            starts = array("q", [into._start for into in slices])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None  # one alone, too
        if (
            pool is None
            or nbytes % disk.superblock.lba_bytes
            or lengths.count(nbytes) < len(found)
            or min(sizes) < nbytes
            or not isinstance(reg, PinnedMemory)
            or reg._device is not disk.ns._device
            or not is_aligned(reg)
            or any(take(columns.kinds))
            or _any_odd(starts)
            or set(map(type, keys)) != {bytes}
        ):
            return None
        base, stride = pool.offset + BLOCK, pool.stride
        offsets = array("q", [base + slot * stride for slot in found])
        return cls(reg, found, starts, offsets, nbytes)

    async def read(self, shard: Shard, clock: Clock) -> list[int | UGDSError]:
        """Read all of them."""
        count, nbytes = len(self._slots), self._nbytes
        policy = shard.slots.pool_of(self._slots[0]).policy
        deque(map(policy.touch, self._slots), 0)
        held = shard.hold_all(self._slots)
        failed = False
        results: list[int | UGDSError]
        disk = shard.disk
        offsets, starts, pieces = self._offsets, self._starts, 1
        if nbytes > disk.command_bytes:
            lba = disk.superblock.lba_bytes
            pieces = equal_pieces(nbytes, disk.command_bytes, lba)
            steps = range(0, nbytes, nbytes // pieces)
            offsets = array("q", [at + step for at in offsets for step in steps])
            starts = array("q", [at + step for at in starts for step in steps])
        try:
            done = await disk.gets.read_many(
                self._reg,
                offsets=offsets,
                nbytes=nbytes // pieces,
                buf_offsets=starts,
                timeout_s=clock.left(),
            )
            results = [*done] if pieces == 1 else [nbytes] * count
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
            hits -= sum(isinstance(one, UGDSError) for one in told(results))
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
    check_keys([key for key, _ in items])
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
    return told(results)


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
