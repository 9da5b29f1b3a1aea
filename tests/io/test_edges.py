"""Byte ranges that are not whole blocks, and memory that is not aligned."""

from __future__ import annotations

import pytest
from helpers.model import PAGE, pattern
from helpers.world import KIB, MIB, World, nothing_sent

from aiougds import AlignmentError, CompareError, OptionError, RangeError

LBA = 512
# Where a range starts in its block, how many whole blocks follow, where it ends.
HEADS = (0, 1, 4, 255, 511)
TAILS = (0, 1, 255, 511)
MIDDLES = (0, 1, 2, 17)


@pytest.mark.core
async def test_every_shape_of_edge(world: World) -> None:
    stored = pattern(64 * LBA, 1)
    async with world.open(emu={"lba": LBA, "size": len(stored)}) as ns:
        await ns.write(stored, offset=0)
        async with ns.allocate(32 * LBA) as reg:
            for head in HEADS:
                for tail in TAILS:
                    for middle in MIDDLES:
                        first = 5 * LBA + head
                        nbytes = (LBA - head) % LBA + middle * LBA + tail
                        if not nbytes:
                            continue
                        reg.view[:] = b"\xa5" * len(reg)
                        part = reg[8 : 8 + nbytes]
                        got = await ns.read(part, offset=first, edges="bounce")
                        assert got == nbytes
                        assert (
                            reg.view[8 : 8 + nbytes] == stored[first : first + nbytes]
                        )
                        assert bytes(reg.view[:8]) == b"\xa5" * 8
                        assert not bytes(reg.view[8 + nbytes :]).strip(b"\xa5")


async def test_ranges_inside_one_block(world: World) -> None:
    stored = pattern(4 * PAGE, 2)
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(stored, offset=0)
        for first, last in (
            (1, 2),
            (100, 4000),
            (4095, 4096),
            (4095, 4097),
            (5000, 5003),
        ):
            seen = bytearray(last - first)
            await ns.read(seen, offset=first, edges="bounce")
            assert seen == stored[first:last]


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 511])
async def test_large_middle_with_edges(world: World, shift: int) -> None:
    """The middle goes straight to memory where that is aligned to 4 bytes."""
    stored = pattern(MIB, 3)
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        await ns.write(stored, offset=0)
        for first, nbytes in ((shift, 600 * KIB), (LBA + shift, 300 * KIB + 77)):
            memory = bytearray(nbytes + 16)
            async with ns.register(memory) as reg:
                got = await ns.read(
                    reg[shift % 8 : shift % 8 + nbytes], offset=first, edges="bounce"
                )
                assert got == nbytes
            start = shift % 8
            assert memory[start : start + nbytes] == stored[first : first + nbytes]
            assert memory[:start] == bytes(start)
            assert memory[start + nbytes :] == bytes(16 - start)


@pytest.mark.few
async def test_edges_of_memory_that_is_not_registered(world: World) -> None:
    stored = pattern(MIB, 4)
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        await ns.write(stored, offset=0)
        for first, nbytes in (
            (3, 10),
            (LBA - 1, LBA + 2),
            (7, 400 * KIB),
            (0, MIB - 1),
        ):
            seen = bytearray(nbytes)
            assert await ns.read(seen, offset=first, edges="bounce") == nbytes
            assert seen == stored[first : first + nbytes]


@pytest.mark.core
async def test_bounces_are_counted(world: World) -> None:
    """Aligned requests are not bounced, not even when edges may be."""
    async with world.open(emu={"size": MIB}) as ns:
        stats = ns.controller.statistics
        memory = bytearray(2 * PAGE)
        async with ns.register(memory) as reg:
            await ns.read(reg[:PAGE], offset=0, edges="bounce")
            await ns.read(reg[4 : PAGE + 4], offset=0)
            assert (stats().bounces, stats().bounced_bytes) == (0, 0)
            await ns.read(reg[:10], offset=0, edges="bounce")
            assert (stats().bounces, stats().bounced_bytes) == (1, 10)
            for start in (1, 2, 3):
                await ns.read(reg[start : PAGE + start], offset=0)
            assert (stats().bounces, stats().bounced_bytes) == (4, 10 + 3 * PAGE)


@pytest.mark.core
async def test_memory_at_any_address(world: World) -> None:
    """Reads, writes and compares from addresses that no PRP entry can hold."""
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        for shift in (1, 2, 3, 5, 4095):
            for nbytes in (LBA, 5 * LBA, 300 * KIB):
                data = pattern(nbytes, shift)
                source = memoryview(bytes(shift) + data)[shift:]
                target = bytearray(shift + nbytes + 3)
                assert await ns.write(source, offset=LBA) == nbytes
                view = memoryview(target)[shift : shift + nbytes]
                assert await ns.read(view, offset=LBA) == nbytes
                assert target == bytes(shift) + data + bytes(3)
                assert await ns.compare(source, offset=LBA) == nbytes
                target[shift + nbytes // 2] ^= 0x80
                with pytest.raises(CompareError):
                    await ns.compare(view, offset=LBA)
                view.release()


@pytest.mark.core
async def test_unaligned_writes_are_refused(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(2 * PAGE) as reg:
        for buf, offset, words in (
            (reg[:PAGE], 100, "write: offset 100 .* block size 4096; .* whole blocks"),
            (reg[: PAGE + 1], 0, "write: length 4097 .* block size 4096; .* whole"),
            (bytes(10), 0, "write: length 10 "),
        ):
            with nothing_sent(ns), pytest.raises(AlignmentError, match=words):
                await ns.write(buf, offset=offset)
            with nothing_sent(ns), pytest.raises(AlignmentError, match="compare: "):
                await ns.compare(buf, offset=offset)
        with nothing_sent(ns), pytest.raises(AlignmentError, match='edges="bounce"'):
            await ns.read(reg[:PAGE], offset=100)


async def test_bounds_hold_for_byte_ranges(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        seen = bytearray(10)
        assert await ns.read(seen, offset=MIB - 10, edges="bounce") == 10
        with nothing_sent(ns), pytest.raises(RangeError, match=f"end at {MIB + 1}"):
            await ns.read(seen, offset=MIB - 9, edges="bounce")
        with nothing_sent(ns), pytest.raises(RangeError, match="negative"):
            await ns.read(seen, offset=-1, edges="bounce")
        assert await ns.read(bytearray(), offset=77, edges="bounce") == 0
        with (
            nothing_sent(ns),
            pytest.raises(OptionError, match=r"edges='round'.*bounce"),
        ):
            await ns.read(seen, offset=0, edges="round")
