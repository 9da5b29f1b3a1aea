"""Transfers of every size to every offset of a memory, and the far side of it."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Awaitable, Iterator, Sequence

import aiougds
from vm.guest.peer_ground import MIB, PAGE

BLOCK = 512
# Of where memory begins: at a page, a block, a double word, and just before a page.
OFFSETS = (0, 4, 260, BLOCK, 2048, 3584, 4092)
MOST = 8 * MIB
EMPTY = b"\xa5"
EDGE = 2 * PAGE  # kept empty on both sides of each transfer
SOURCE = 12 * MIB  # of the disk is read from
TARGET = 16 * MIB  # and what is behind is written to

Range = tuple[int, int]


def sizes(every_up_to: int, most: int) -> Iterator[int]:
    """Every size of whole blocks up to one, then those round powers of two."""
    yield from range(BLOCK, every_up_to + 1, BLOCK)
    power = 2 * every_up_to
    while power < most:
        yield from (power - BLOCK, power, power + BLOCK)
        power *= 2
    yield from (most - BLOCK, most)


class Slots:
    """A memory cut into places for transfers of one size, one at each offset."""

    __slots__ = ("count", "far", "nbytes", "room")

    def __init__(self, far: mmap.mmap, nbytes: int, count: int = len(OFFSETS)) -> None:
        self.far = far
        self.nbytes = nbytes
        self.count = count
        self.room = -(-(nbytes + OFFSETS[-1]) // PAGE) * PAGE + 2 * EDGE

    @property
    def begins(self) -> list[int]:
        return [n * self.room + EDGE + OFFSETS[n] for n in range(self.count)]

    def clear(self) -> None:
        self.far[: self.room * self.count] = EMPTY * (self.room * self.count)

    def fill(self) -> list[bytes]:
        """Put other bytes into each place; return them."""
        data = [os.urandom(self.nbytes) for _ in range(self.count)]
        for at, own in zip(self.begins, data, strict=True):
            self.far[at : at + self.nbytes] = own
        return data

    def verify(self, wanted: Sequence[bytes]) -> None:
        """Each place has what belongs there, and nothing is beside it."""
        for n, own in enumerate(wanted):
            before = EDGE + OFFSETS[n]
            behind = self.room - before - self.nbytes
            whole = EMPTY * before + own + EMPTY * behind
            got = self.far[n * self.room : (n + 1) * self.room]
            if got != whole:
                at = next(i for i in range(self.room) if got[i] != whole[i])
                raise AssertionError(
                    f"{self.nbytes} bytes at offset {OFFSETS[n]}: wrong from byte "
                    f"{at - before} on"
                )


def source(n: int, nbytes: int) -> int:
    """Return where on the disk the n-th transfer of a size is read from."""
    return (n * 37 + nbytes // BLOCK) % 4096 * BLOCK


def target(n: int, nbytes: int) -> int:
    """Return where on the disk the n-th transfer of a size is written to."""
    return TARGET + n * (nbytes + 3 * BLOCK)


async def error_in(call: Awaitable[object]) -> aiougds.UGDSError | None:
    """Await what is to fail; return its exception."""
    try:
        await call
    except aiougds.UGDSError as error:
        return error
    return None


async def read(
    ns: aiougds.Namespace, reg: aiougds.Registration, slots: Slots, way: int
) -> None:
    """Read into each slot: with one call, with many, or with a batch."""
    nbytes = slots.nbytes
    pairs = [
        (reg[at : at + nbytes], source(n, nbytes)) for n, at in enumerate(slots.begins)
    ]
    if way % 3 == 0:
        assert await ns.read_many(pairs) == [nbytes] * len(pairs)
    elif way % 3 == 1:
        done = await asyncio.gather(*(ns.read(own, offset=at) for own, at in pairs))
        assert done == [nbytes] * len(pairs)
    else:
        async with ns.batch(len(pairs)) as batch:
            for own, at in pairs:
                batch.read(own, offset=at)
            batch.submit()
            items = await batch.harvest(len(pairs))
            assert [item.result for item in items] == [nbytes] * len(pairs)


async def read_all(
    ns: aiougds.Namespace,
    reg: aiougds.Registration,
    far: mmap.mmap,
    image: bytes,
    every_up_to: int,
    most: int = MOST,
) -> None:
    """Read every size at every offset, and look at each byte from the far side."""
    for way, nbytes in enumerate(sizes(every_up_to, most)):
        slots = Slots(far, nbytes)
        slots.clear()
        await read(ns, reg, slots, way)
        firsts = [source(n, nbytes) for n in range(slots.count)]
        slots.verify([image[first : first + nbytes] for first in firsts])


async def write_all(
    ns: aiougds.Namespace,
    reg: aiougds.Registration,
    far: mmap.mmap,
    disk_bytes: int,
    every_up_to: int,
    most: int = MOST,
) -> None:
    """Write every size from every offset; host memory sees what reached the disk."""
    async with ns.allocate(MOST) as host:
        for way, nbytes in enumerate(sizes(every_up_to, most)):
            fits = (disk_bytes - TARGET) // (nbytes + 3 * BLOCK)
            slots = Slots(far, nbytes, min(len(OFFSETS), fits))
            data = slots.fill()
            pairs = [
                (reg[at : at + nbytes], target(n, nbytes))
                for n, at in enumerate(slots.begins)
            ]
            if way % 2:
                done = await ns.write_many(pairs)
            else:
                calls = (ns.write(own, offset=at) for own, at in pairs)
                done = await asyncio.gather(*calls)
            assert done == [nbytes] * len(pairs)
            for n, own in enumerate(data):
                await ns.read(host[:nbytes], offset=target(n, nbytes))
                assert bytes(host.view[:nbytes]) == own, (nbytes, OFFSETS[n])
