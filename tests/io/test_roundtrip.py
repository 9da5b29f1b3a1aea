"""What was written is what is read, whatever its size and wherever its memory is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, emu_address

LBA = 512
COUNTS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 256, 257, 2047, 2048, 2049, 2053)


@pytest.mark.core
async def test_every_size_comes_back(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    total = sum(COUNTS) * LBA
    data = pattern(total, 1)
    async with (
        world.open(path, emu={"size": total, "lba": LBA}) as ns,
        ns.register(data) as source,
        ns.allocate(total) as target,
    ):
        at = 0
        for count in COUNTS:
            nbytes = count * LBA
            assert await ns.write(source[at : at + nbytes], offset=at) == nbytes
            assert await ns.read(target[at : at + nbytes], offset=at) == nbytes
            at += nbytes
        assert bytes(target.view) == data
    assert path.read_bytes() == data


STARTS = (0, 4, 508, 2048, PAGE - 4, PAGE, PAGE + 4)


@pytest.mark.core
async def test_memory_to_read_into_may_start_anywhere(world: World) -> None:
    """Bytes around the target stay as they were."""
    stored = pattern(8 * PAGE, 2)
    async with world.open(emu={"lba": LBA, "size": "64KiB"}) as ns:
        await ns.write(stored, offset=0)
        async with ns.allocate(11 * PAGE) as memory:
            for start in STARTS:
                for count in (1, 7, 8, 9, 17, 64):
                    nbytes = count * LBA
                    memory.view[:] = b"\xa5" * len(memory)
                    part = memory[start : start + nbytes]
                    assert await ns.read(part, offset=0) == nbytes
                    after = bytes(memory.view)
                    assert after[start : start + nbytes] == stored[:nbytes]
                    assert after[:start].strip(b"\xa5") == b""
                    assert after[start + nbytes :].strip(b"\xa5") == b""


@pytest.mark.core
async def test_memory_to_write_from_may_start_anywhere(world: World) -> None:
    data = pattern(12 * PAGE, 3)
    async with (
        world.open(emu={"lba": LBA, "size": "64KiB"}) as ns,
        ns.register(data) as source,
    ):
        for start in STARTS:
            for count in (1, 9, 64):
                nbytes = count * LBA
                await ns.write_zeroes(offset=0, nbytes=ns.size)
                await ns.write(source[start : start + nbytes], offset=2 * LBA)
                seen = bytearray(ns.size)
                await ns.read(seen, offset=0)
                middle = data[start : start + nbytes]
                rest = ns.size - 2 * LBA - nbytes
                assert seen == bytes(2 * LBA) + middle + bytes(rest)


@pytest.mark.core
async def test_random_writes_leave_what_a_model_says(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "disk"
    rng = random.Random(4)
    model = bytearray(256 * LBA)
    source = pattern(64 * LBA, 5)
    async with (
        world.open(path, emu={"size": len(model), "lba": LBA}) as ns,
        ns.register(source) as reg,
        ns.allocate(64 * LBA) as target,
    ):
        for _ in range(120):
            count = rng.randint(1, 64)
            nbytes = count * LBA
            offset = rng.randint(0, 256 - count) * LBA
            start = rng.randrange(0, len(source) - nbytes + 1, 4)
            if rng.random() < 0.5:
                await ns.write(reg[start : start + nbytes], offset=offset)
                model[offset : offset + nbytes] = source[start : start + nbytes]
            else:
                await ns.read(target[start : start + nbytes], offset=offset)
                got = bytes(target.view[start : start + nbytes])
                assert got == model[offset : offset + nbytes]
    assert path.read_bytes() == model


@pytest.mark.core
async def test_many_at_once_do_not_mix(world: World) -> None:
    count, nbytes = 40, 8192
    async with world.open(emu={"size": count * nbytes}, depth=8) as ns:
        data = pattern(count * nbytes, 6)
        async with ns.register(data) as source, ns.allocate(len(data)) as target:
            ranges = [slice(i * nbytes, (i + 1) * nbytes) for i in range(count)]
            await world.gather(
                *(lambda r=r: ns.write(source[r], offset=r.start) for r in ranges)
            )
            done = await world.gather(
                *(lambda r=r: ns.read(target[r], offset=r.start) for r in ranges)
            )
            assert done == [nbytes] * count
            assert bytes(target.view) == data


@pytest.mark.core
async def test_zero_bytes_are_checked_and_send_nothing(world: World) -> None:
    async with world.open() as ns, ns.allocate(PAGE) as reg:
        before = ns.controller.statistics().commands
        assert await ns.read(reg[0:0], offset=0) == 0
        assert await ns.write(reg[8:8], offset=ns.size) == 0
        assert await ns.read(bytearray(), offset=0) == 0
        assert await ns.read(reg, offset=PAGE, nbytes=0) == 0
        assert await ns.write_zeroes(offset=0, nbytes=0) == 0
        assert ns.controller.statistics().commands == before
        for offset in (1, ns.size + PAGE, -PAGE):
            with pytest.raises(ValueError):
                await ns.read(reg[0:0], offset=offset)


@pytest.mark.core
async def test_file_survives_the_controller(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    data = pattern(3 * PAGE, 7)
    async with world.open(path, emu={"size": MIB}) as ns:
        await ns.write(data, offset=5 * PAGE)
        serial = ns.controller.info.serial
    async with world.open(path) as ns:
        seen = bytearray(len(data))
        await ns.read(seen, offset=5 * PAGE)
        assert ns.size == MIB
        assert ns.controller.info.serial == serial
    assert seen == data
    assert path.read_bytes() == bytes(5 * PAGE) + data + bytes(MIB - 8 * PAGE)


async def test_nbytes_limits_what_is_moved(world: World) -> None:
    async with world.open() as ns, ns.allocate(4 * PAGE) as reg:
        await ns.write(pattern(4 * PAGE, 8), offset=0)
        assert await ns.read(reg, offset=PAGE, nbytes=PAGE) == PAGE
        assert bytes(reg.view) == pattern(4 * PAGE, 8)[PAGE : 2 * PAGE] + bytes(
            3 * PAGE
        )


async def test_each_operation_may_wait_in_its_own_manner(world: World) -> None:
    data = pattern(4 * PAGE, 9)
    async with world.open() as ns, ns.register(bytearray(data)) as reg:
        for mode in ("adaptive", "inline", "interrupt", "poll"):
            await ns.write(reg, offset=0, mode=mode)
            assert await ns.read(reg, offset=0, mode=mode) == 4 * PAGE
            assert bytes(reg.view) == data


async def test_two_controllers_on_two_files_stay_apart(
    world: World, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with (
        world.open(a, emu={"size": MIB}) as one,
        world.open(b, emu={"size": MIB}) as two,
    ):
        await one.write(pattern(PAGE, 10), offset=0)
        await two.write(pattern(PAGE, 11), offset=0)
    assert a.read_bytes()[:PAGE] == pattern(PAGE, 10)
    assert b.read_bytes()[:PAGE] == pattern(PAGE, 11)


def test_same_address_text_gives_separate_memories(world: World) -> None:
    async def body() -> None:
        async with world.open() as one, world.open() as two:
            await one.write(pattern(PAGE, 12), offset=0)
            seen = bytearray(PAGE)
            await two.read(seen, offset=0)
            assert seen == bytes(PAGE)

    world.run(body())
    assert emu_address() == "emu:?size=4194304"
