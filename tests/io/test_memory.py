"""Registered memory: slices, views, overlaps, pinning just in time, and its end."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array

import numpy as np
import pytest
from helpers.model import PAGE, numbered, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    ClosedError,
    MemoryLayoutError,
    MemoryTypeError,
    NotMappedError,
    RangeError,
    ReadOnlyError,
)

LBA = 512


@pytest.mark.core
async def test_slices_are_those_of_bytes(world: World) -> None:
    async with world.open() as ns, ns.register(bytearray(range(200))) as reg:
        same = bytes(range(200))
        for cut in (
            slice(None),
            slice(10, 20),
            slice(-20, None),
            slice(None, -1),
            slice(50, 10),
            slice(180, 500),
            slice(-500, 5),
            slice(7, 7),
        ):
            part = reg[cut]
            assert bytes(part.view) == same[cut]
            assert len(part) == part.nbytes == len(same[cut])
            assert bytes(part[1:-1].view) == same[cut][1:-1]
            assert bytes(part[3:][2:5].view) == same[cut][3:][2:5]
        with pytest.raises(MemoryLayoutError, match="step 2"):
            reg[::2]
        for key in (3, "a", slice("x"), (slice(1), slice(1))):
            with pytest.raises(MemoryTypeError):
                reg[key]


@pytest.mark.core
async def test_a_thousand_neighbours(world: World) -> None:
    """Small arrays that share pages, registered and released in any order."""
    count = 1000
    rng = random.Random(1)
    memory = bytearray(numbered(count, LBA))
    views = [memoryview(memory)[i * LBA : (i + 1) * LBA] for i in range(count)]
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        regs = {}
        for i in rng.sample(range(count), count):
            regs[i] = ns.register(views[i])
        assert ns.controller.statistics().mappings == count
        await ns.write_many([(regs[i], i * LBA) for i in range(count)])
        memory[:] = bytes(len(memory))
        await ns.read_many(
            [(regs[i], i * LBA) for i in rng.sample(range(count), count)]
        )
        assert memory == numbered(count, LBA)
        order = rng.sample(range(count), count)
        for number, i in enumerate(order):
            await regs[i].aclose()
            if number % 100 == 50:
                left = order[number + 1]
                memory[left * LBA : (left + 1) * LBA] = bytes(LBA)
                await ns.read(regs[left], offset=left * LBA)
        assert memory == numbered(count, LBA)
        assert ns.controller.statistics().mappings == 0
    for view in views:
        view.release()


async def test_a_memoryview_is_not_exported_for_the_device(world: World) -> None:
    """Its owner may release it, or the collector; what it shows stays all the same."""
    memory = bytearray(pattern(PAGE, 6))
    view = memoryview(memory)
    async with world.open(emu={"size": MIB}) as ns:
        async with ns.register(view) as reg:
            view.release()
            await ns.write(reg, offset=0)
            with pytest.raises(BufferError):
                memory.append(1)
        memory.append(1)
        seen = bytearray(PAGE)
        await ns.read(seen, offset=0)
    assert seen == memory[:PAGE]


def test_a_memoryview_of_a_failed_task_can_be_collected() -> None:
    """CPython 3.11 crashes when it collects one that is exported, as in that cycle."""
    done = subprocess.run(
        [sys.executable, "-c", FAILED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "refused " * 20 + "end\n"), done.stderr


FAILED = """
import asyncio, gc, aiougds

async def main():
    async with aiougds.open("emu:?size=1MiB") as ns:
        for _ in range(20):
            view = memoryview(bytearray(4096))
            read = asyncio.wait_for(ns.read(view, offset=1 << 40), 60)
            try:
                await read
            except aiougds.RangeError:
                print("refused", end=" ")
            del view, read
            gc.collect()
    print("end")

asyncio.run(main())
"""


@pytest.mark.core
async def test_views_are_found_by_address(world: World) -> None:
    """No view of registered memory is pinned again, wherever it starts."""
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        stored = pattern(MIB, 2)
        await ns.write(stored, offset=0)
        matrix = np.zeros((16, 1024), dtype=np.float32)
        async with ns.register(matrix):
            with_pins = ns.controller.statistics().jit_pins
            for row in (0, 5, 15):
                await ns.read(matrix[row], offset=row * LBA)
                assert matrix[row].tobytes() == stored[row * LBA : row * LBA + 4096]
            await ns.read(matrix[3:5], offset=0)
            await ns.read(memoryview(matrix).cast("B")[516:1028], offset=0, jit=False)
            await ns.read((matrix.ctypes.data + 8, LBA), offset=0, jit=False)
            await ns.write(matrix[2, 128:256], offset=0, jit=False)
            await ns.read_many([(matrix[7, 256:384], LBA)])
            assert matrix[7, 256:384].tobytes() == stored[LBA : 2 * LBA]
            assert ns.controller.statistics().jit_pins == with_pins
        await ns.read(matrix[0], offset=0)
        assert ns.controller.statistics().jit_pins == with_pins + 1


async def test_overlapping_registrations(world: World) -> None:
    memory = bytearray(8 * PAGE)
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(8 * PAGE, 3), offset=0)
        view = memoryview(memory)
        async with ns.register(view[PAGE : 5 * PAGE]) as inner:
            async with ns.register(memory) as outer, ns.register(memory) as again:
                await ns.read(outer[: 2 * PAGE], offset=0)
                await ns.read(again[2 * PAGE : 4 * PAGE], offset=2 * PAGE)
                await ns.read(view[: 8 * PAGE], offset=0, jit=False)
            await ns.read(view[2 * PAGE : 3 * PAGE], offset=0, jit=False)
            assert memory[2 * PAGE : 3 * PAGE] == pattern(8 * PAGE, 3)[:PAGE]
            await ns.read(inner, offset=0)
            with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="jit=False"):
                await ns.read(view[:PAGE], offset=0, jit=False)
        view.release()


@pytest.mark.core
async def test_pinning_just_in_time(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        data = pattern(3 * PAGE, 4)
        seen = bytearray(len(data))
        assert await ns.write(data, offset=PAGE) == len(data)
        assert await ns.read(seen, offset=PAGE) == len(data)
        assert seen == data
        stats = ns.controller.statistics()
        # bytes and bytearray start wherever their headers end: aligned here
        assert stats.jit_pins == 2 - stats.bounces
        assert stats.mappings == len(ns.controller._device.pool)
        with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="register"):
            await ns.read(np.zeros(PAGE, np.uint8), offset=0, jit=False)


@pytest.mark.core
async def test_memory_has_a_length_to_the_byte(world: World) -> None:
    """Not that of its pages: bytes beyond are somebody else's."""
    async with world.open(emu={"lba": LBA, "size": MIB}) as ns:
        memory = bytearray(3 * LBA)
        async with ns.register(memoryview(memory)[: LBA + 100]) as reg:
            await ns.read(reg[:LBA], offset=0)
            with (
                nothing_sent(ns),
                pytest.raises(RangeError, match=f"{LBA + 100} bytes"),
            ):
                await ns.read(reg, offset=0, nbytes=2 * LBA)
            with nothing_sent(ns), pytest.raises(RangeError, match="do not fit"):
                await ns.read_many(
                    reg,
                    offsets=array("q", [0]),
                    nbytes=LBA,
                    buf_offsets=array("q", [104]),
                )
            with (
                nothing_sent(ns),
                pytest.raises(RangeError, match="slice of 512 bytes"),
            ):
                await ns.read_many(
                    reg[4 : 4 + LBA],
                    offsets=array("q", [0]),
                    nbytes=LBA,
                    buf_offsets=array("q", [4]),
                )


@pytest.mark.core
async def test_read_only_memory_is_no_target(world: World) -> None:
    frozen = np.zeros(PAGE, np.uint8)
    frozen.flags.writeable = False
    async with world.open(emu={"size": MIB}) as ns:
        for memory in (bytes(PAGE), memoryview(bytes(PAGE)), frozen):
            with nothing_sent(ns), pytest.raises(ReadOnlyError, match="bytearray"):
                await ns.read(memory, offset=0)
            async with ns.register(memory) as reg:
                with nothing_sent(ns), pytest.raises(ReadOnlyError, match="bytearray"):
                    await ns.read(reg, offset=0)
                with nothing_sent(ns), pytest.raises(ReadOnlyError, match="bytearray"):
                    await ns.read(reg[:10], offset=0, edges="bounce")
                assert reg.view.readonly
                assert await ns.write(reg, offset=0) == PAGE
                assert await ns.compare(reg, offset=0) == PAGE


async def test_a_closed_registration_refuses(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        memory = bytearray(PAGE)
        reg = ns.register(memory)
        part = reg[:PAGE]
        assert await ns.read(part, offset=0) == PAGE
        await reg.aclose()
        await reg.aclose()
        assert reg.closed
        memory += b"it may be resized again"
        for buf in (reg, part):
            with nothing_sent(ns), pytest.raises(ClosedError, match="closed"):
                await ns.read(buf, offset=0)
            with nothing_sent(ns), pytest.raises(ClosedError, match="closed"):
                await ns.read_many([(buf, 0)])
            with nothing_sent(ns), pytest.raises(ClosedError, match="closed"):
                await ns.read_many(buf, offsets=array("q", [0]), nbytes=PAGE)
        with pytest.raises(ClosedError, match="closed"):
            await reg.map(ns)
        with pytest.raises(ClosedError, match="closed"):
            _ = reg.view


@pytest.mark.core
async def test_each_controller_has_its_own_mapping(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as one,
        world.open(emu={"size": MIB}) as two,
    ):
        await two.write(pattern(PAGE, 5), offset=0)
        async with one.register(bytearray(PAGE)) as reg:
            with nothing_sent(two), pytest.raises(NotMappedError, match=r"reg.*map\("):
                await two.read(reg, offset=0)
            with nothing_sent(two), pytest.raises(NotMappedError, match=r"map\("):
                await two.read(reg.view, offset=0)
            with nothing_sent(two), pytest.raises(NotMappedError, match=r"map\("):
                await two.read_many([(reg, 0)])
            await reg.map(two)
            await reg.map(two.controller)
            assert two.controller.statistics().mappings == 1
            assert await two.read(reg, offset=0) == PAGE
            assert reg.view == pattern(PAGE, 5)
            reg.view[:] = bytes(PAGE)
            assert await two.read_many([(reg, 0)]) == [PAGE]
            assert reg.view == pattern(PAGE, 5)
            reg.view[:] = bytes(PAGE)
            zero = array("q", [0])
            assert await two.read_many(reg, offsets=zero, nbytes=PAGE) == [PAGE]
            assert reg.view == pattern(PAGE, 5)
            async with two.batch(1) as batch:
                batch.read(reg, offset=0)
                batch.submit()
                assert [item.nbytes for item in await batch.harvest()] == [PAGE]
            assert await one.write(reg, offset=0) == PAGE
        seen = bytearray(PAGE)
        await one.read(seen, offset=0)
        assert seen == pattern(PAGE, 5)


async def test_what_cannot_be_registered(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for obj, kind, words in (
            (object(), MemoryTypeError, "object has no memory"),
            (7, MemoryTypeError, "int has no memory"),
            ("text", MemoryTypeError, "str has no memory"),
            (None, MemoryTypeError, "NoneType has no memory"),
            ([1, 2], MemoryTypeError, "list has no memory"),
            (reg, MemoryTypeError, "registered already"),
            (reg[:5], MemoryTypeError, "registered already"),
            (b"", MemoryLayoutError, "empty"),
            (reg.view[::2], MemoryLayoutError, "not contiguous"),
            (np.zeros((8, 8))[:, :4], MemoryLayoutError, "ascontiguousarray"),
            (np.array([None, 1]), MemoryLayoutError, "Python objects"),
        ):
            with nothing_sent(ns), pytest.raises(kind, match=words):
                ns.register(obj)
        with pytest.raises(MemoryTypeError, match="object has no memory"):
            await ns.read(object(), offset=0)
        with pytest.raises(MemoryLayoutError, match="not contiguous"):
            await ns.read(np.zeros((8, 1024), np.uint8)[:, :512], offset=0)


async def test_a_registered_bytearray_cannot_be_resized(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        memory = bytearray(PAGE)
        async with ns.register(memory):
            with pytest.raises(BufferError):
                memory.append(0)
        memory.append(0)
