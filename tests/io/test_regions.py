"""A region is a namespace with bounds of its own; ``allocate`` is memory for it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    ClosedError,
    MemoryLayoutError,
    RangeError,
    ReadOnlyError,
)


@pytest.mark.core
async def test_a_region_is_bounded(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(4 * PAGE) as reg:
        whole = pattern(MIB, 1)
        await ns.write(whole, offset=0)
        async with ns.region(10 * PAGE, 4 * PAGE) as part:
            assert (part.size, part.lba_bytes, part.nsid) == (4 * PAGE, PAGE, 1)
            assert await part.read(reg, offset=0) == 4 * PAGE
            assert reg.view == whole[10 * PAGE : 14 * PAGE]
            for offset in (PAGE, 4 * PAGE, 1 << 40, (1 << 64) - 4 * PAGE):
                with nothing_sent(ns), pytest.raises(RangeError, match="past the end"):
                    await part.read(reg, offset=offset)
            with nothing_sent(ns), pytest.raises(RangeError, match="negative"):
                await part.write(reg, offset=-PAGE)
            with nothing_sent(ns), pytest.raises(RangeError, match="past the end"):
                await part.write_zeroes(offset=0, nbytes=5 * PAGE)
            with nothing_sent(ns), pytest.raises(RangeError, match="past the end"):
                await part.read_many([(reg[:PAGE], 0), (reg[:PAGE], 4 * PAGE)])
            await part.write_zeroes(offset=PAGE, nbytes=PAGE)
            await part.write(pattern(PAGE, 2), offset=3 * PAGE)
        seen = bytearray(MIB)
        await ns.read(seen, offset=0)
        expected = bytearray(whole)
        expected[11 * PAGE : 12 * PAGE] = bytes(PAGE)
        expected[13 * PAGE : 14 * PAGE] = pattern(PAGE, 2)
        assert seen == expected


async def test_regions_nest(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(PAGE, 3), offset=25 * PAGE)
        async with (
            ns.region(20 * PAGE, 8 * PAGE) as outer,
            outer.region(4 * PAGE, 2 * PAGE) as inner,
        ):
            seen = bytearray(PAGE)
            await inner.read(seen, offset=PAGE)
            assert seen == pattern(PAGE, 3)
            with pytest.raises(RangeError, match="past the end"):
                inner.region(PAGE, 2 * PAGE)


async def test_bounds_of_a_region(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        with nothing_sent(ns):
            for offset, nbytes, kind in (
                (1, PAGE, AlignmentError),
                (0, 10, AlignmentError),
                (MIB, PAGE, RangeError),
                (0, MIB + PAGE, RangeError),
                (-PAGE, PAGE, RangeError),
            ):
                with pytest.raises(kind):
                    ns.region(offset, nbytes)


async def test_a_region_may_be_read_only_and_stays_so(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        async with ns.region(0, 4 * PAGE, readonly=True) as part:
            assert part.readonly
            with nothing_sent(ns), pytest.raises(ReadOnlyError, match="read-only"):
                await part.write(bytes(PAGE), offset=0)
            async with part.region(0, PAGE, readonly=False) as inner:
                assert inner.readonly
                with nothing_sent(ns), pytest.raises(ReadOnlyError, match="read-only"):
                    await inner.write(bytes(PAGE), offset=0)
        assert await ns.write(bytes(PAGE), offset=0) == PAGE


async def test_a_closed_region_refuses(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        part = ns.region(0, PAGE)
        await part.aclose()
        await part.aclose()
        assert part.closed
        with nothing_sent(ns), pytest.raises(ClosedError, match="is closed"):
            await part.read(bytearray(PAGE), offset=0)
        assert await ns.read(bytearray(PAGE), offset=0) == PAGE


@pytest.mark.few
async def test_a_region_of_no_bytes_is_refused(world: World) -> None:
    """At any place: it must not grow to the end of the namespace."""
    async with world.open(emu={"size": MIB}) as ns:
        for offset in (0, PAGE, MIB):
            with (
                nothing_sent(ns),
                pytest.raises(RangeError, match="at least one block"),
            ):
                ns.region(offset, 0)


@pytest.mark.core
async def test_allocated_memory(world: World) -> None:
    async with world.open(emu={"size": "16MiB"}) as ns:
        for nbytes in (1, 511, PAGE, PAGE + 1, 3 * MIB):
            async with ns.allocate(nbytes) as reg:
                assert len(reg) == reg.nbytes == len(reg.view) == nbytes
                assert not any(reg.view)
                address = np.frombuffer(reg.view, np.uint8).ctypes.data
                assert address % PAGE == 0
                reg.view[:] = pattern(nbytes, nbytes)
                whole = nbytes // PAGE * PAGE
                await ns.write(reg[:whole], offset=0)
                seen = bytearray(whole)
                await ns.read(seen, offset=0)
                assert seen == pattern(nbytes, nbytes)[:whole]


async def test_what_cannot_be_allocated(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        for nbytes, kind, words in (
            (0, RangeError, "nbytes=0"),
            (-1, RangeError, "nbytes=-1"),
            (True, ArgumentTypeError, "nbytes=True"),
            (4096.0, ArgumentTypeError, "nbytes=4096.0"),
            (1 << 62, MemoryLayoutError, "cannot be had"),
        ):
            with nothing_sent(ns), pytest.raises(kind, match=words):
                ns.allocate(nbytes)
