"""Flush, FUA, write zeroes, deallocate, compare and verify."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent, served

from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    CompareError,
    OptionError,
    RangeError,
    ReadOnlyError,
    testing,
)


@pytest.mark.core
async def test_flush_is_one_command(world: World, tmp_path: Path) -> None:
    async with world.open(tmp_path / "disk", emu={"size": MIB}) as ns:
        assert ns.controller.capabilities.volatile_write_cache
        before = testing.counters(ns).flushes, served(ns)
        assert await ns.flush() is None
        await ns.write(bytes(PAGE), offset=0)
        await ns.flush()
        assert (testing.counters(ns).flushes, served(ns)) == (
            before[0] + 2,
            before[1] + 3,
        )
        done = ns.controller.statistics()
        assert (done.reads, done.writes, done.others) == (0, 1, 2)


@pytest.mark.core
async def test_fua_writes_arrive(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    data = pattern(5 * PAGE, 1)
    async with world.open(path, emu={"size": MIB, "mdts": 1}) as ns:
        async with ns.register(data) as reg:
            before = served(ns)
            assert await ns.write(reg, offset=PAGE, fua=True) == len(data)
            assert served(ns) - before == 3  # and no flush beside them
            assert path.read_bytes()[PAGE : 6 * PAGE] == data
            assert await ns.write_many([(reg, 10 * PAGE)], fua=True) == [len(data)]
            assert path.read_bytes()[10 * PAGE : 15 * PAGE] == data
        assert testing.counters(ns).flushes == 0


async def test_without_a_write_cache(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with world.open(path, emu={"size": MIB, "vwc": 0}) as ns:
        assert not ns.controller.capabilities.volatile_write_cache
        await ns.write(pattern(PAGE, 2), offset=0)
        await ns.flush()
    assert path.read_bytes()[:PAGE] == pattern(PAGE, 2)


@pytest.mark.core
@pytest.mark.parametrize("how", ["write_zeroes", "deallocate"])
async def test_ranges_become_zero_and_no_more(
    world: World, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "disk"
    model = bytearray(pattern(64 * PAGE, 3))
    async with world.open(path, emu={"size": len(model), "lba": 512}) as ns:
        await ns.write(model, offset=0)
        for offset, nbytes in (
            (0, 512),
            (512 * 9, 512 * 3),
            (PAGE * 8 - 512, PAGE * 4 + 1024),
            (PAGE * 63, PAGE),
        ):
            assert await getattr(ns, how)(offset=offset, nbytes=nbytes) == nbytes
            model[offset : offset + nbytes] = bytes(nbytes)
        seen = bytearray(len(model))
        await ns.read(seen, offset=0)
        assert seen == model
    assert path.read_bytes() == model


@pytest.mark.few
async def test_write_zeroes_longer_than_a_command(world: World) -> None:
    blocks = 65536 * 2 + 3
    async with world.open(emu={"size": "128MiB", "lba": 512}) as ns:
        mark = pattern(512, 4)
        for offset in (0, 512, blocks * 512, (blocks + 1) * 512):
            await ns.write(mark, offset=offset)
        before = served(ns)
        nbytes = blocks * 512
        assert await ns.write_zeroes(offset=512, nbytes=nbytes, fua=True) == nbytes
        assert served(ns) - before >= 3
        seen = bytearray(512)
        for offset, expected in (
            (0, mark),
            (512, bytes(512)),
            (blocks * 512, bytes(512)),
            ((blocks + 1) * 512, mark),
        ):
            await ns.read(seen, offset=offset)
            assert seen == expected


@pytest.mark.core
async def test_compare(world: World) -> None:
    data = pattern(8 * PAGE, 5)
    async with world.open(emu={"size": MIB, "mdts": 1}) as ns:
        assert ns.controller.capabilities.compare
        await ns.write(data, offset=PAGE)
        async with ns.register(bytearray(data)) as reg:
            assert await ns.compare(reg, offset=PAGE) == len(data)
            assert await ns.compare(reg[PAGE:], offset=2 * PAGE) == 7 * PAGE
            reg.view[5 * PAGE + 7] ^= 1
            with pytest.raises(CompareError) as caught:
                await ns.compare(reg, offset=PAGE)
            error = caught.value
            assert (error.sct, error.sc, error.command) == (2, 0x85, "compare")
            assert error.offset == PAGE
            assert await ns.compare(reg[: 5 * PAGE], offset=PAGE) == 5 * PAGE
        # Memory that may only be read will do, and so will a copy.
        assert await ns.compare(data, offset=PAGE) == len(data)
        shifted = memoryview(b"-" + data)[1:]
        assert await ns.compare(shifted, offset=PAGE) == len(data)
        assert ns.controller.statistics().errors == 1


@pytest.mark.core
async def test_verify(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        assert ns.controller.capabilities.verify
        before = served(ns)
        assert await ns.verify(offset=0, nbytes=MIB) == MIB
        assert served(ns) > before
        done = ns.controller.statistics()
        assert (done.read_bytes, done.write_bytes) == (0, 0)


async def test_bounds_of_commands_without_memory(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        for name in ("write_zeroes", "deallocate", "verify"):
            call = getattr(ns, name)
            for offset, nbytes, kind, words in (
                (1, PAGE, AlignmentError, f"{name}: offset 1 .* block size 4096"),
                (0, 100, AlignmentError, f"{name}: length 100 .* block size 4096"),
                (0, MIB + PAGE, RangeError, f"{name}: .* past the end .* {MIB}"),
                (MIB, PAGE, RangeError, f"{name}: .* past the end"),
                ((1 << 64) - PAGE, PAGE, (RangeError, AlignmentError), name),
                ((1 << 63), 1 << 63, RangeError, f"{name}: .* past the end"),
                (-PAGE, PAGE, RangeError, "offset=-4096: it cannot be negative"),
                (0, -PAGE, RangeError, "nbytes=-4096: it cannot be negative"),
                (0.0, PAGE, ArgumentTypeError, "offset=0.0: an integer"),
                (0, None, ArgumentTypeError, "nbytes=None: an integer"),
            ):
                with nothing_sent(ns), pytest.raises(kind, match=words):
                    await call(offset=offset, nbytes=nbytes)
        for timeout_s in (0, -1, float("nan")):
            with nothing_sent(ns), pytest.raises(OptionError, match="timeout_s="):
                await ns.flush(timeout_s=timeout_s)


@pytest.mark.core
async def test_read_only_is_enforced(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    data = pattern(4 * PAGE, 6)
    path.write_bytes(data)
    for emu, options in (({"readonly": 1}, {}), ({}, {"readonly": True})):
        async with world.open(path, emu=emu, **options) as ns:
            assert ns.readonly
            assert ns.controller.capabilities.readonly is bool(options)
            async with ns.allocate(PAGE) as reg:
                with nothing_sent(ns):
                    for call in (
                        lambda: ns.write(reg, offset=0),
                        lambda: ns.write(bytes(PAGE), offset=0),
                        lambda: ns.write_many([(reg, 0)]),
                        lambda: ns.write_zeroes(offset=0, nbytes=PAGE),
                        lambda: ns.deallocate(offset=0, nbytes=PAGE),
                    ):
                        with pytest.raises(ReadOnlyError, match="read-only"):
                            await call()
                assert await ns.read(reg, offset=PAGE) == PAGE
                assert reg.view == data[PAGE : 2 * PAGE]
                await ns.verify(offset=0, nbytes=PAGE)
                await ns.compare(reg, offset=PAGE)
    assert path.read_bytes() == data


async def test_two_readers_may_share_a_file(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(pattern(PAGE, 7))
    async with (
        world.open(path, readonly=True) as one,
        world.open(path, readonly=True) as two,
    ):
        for ns in (one, two):
            seen = bytearray(PAGE)
            await ns.read(seen, offset=0)
            assert seen == pattern(PAGE, 7)
