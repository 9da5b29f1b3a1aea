"""Putting and getting: lengths, memory, what is refused, what is told."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import numpy as np
import pytest
from helpers.world import KIB, MIB, World
from store.tools import LAYOUT, SLOT, got, holds, noise, opened, put

import aiougds
from aiougds import AlignmentError, BusyError, OptionError, RangeError, WrongLoopError
from aiougds import store as st
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.tasks
LENGTHS = (1, 511, 512, 513, 4095, 4096, 4097, 8191, 40_001, SLOT - 1, SLOT)


@pytest.mark.parametrize("lba", [512, 4096])
async def test_any_length_comes_back(world: World, lba: int) -> None:
    """Whole blocks, tails in the header, tails beside it; nothing behind them moves."""
    async with opened(world, lba=lba) as (_, chunks):
        for n in LENGTHS:
            assert await put(chunks, b"%d" % n, n)
        for n in LENGTHS:
            await holds(chunks, b"%d" % n, n)
        assert len(chunks) == len(LENGTHS)


@pytest.mark.few
async def test_only_the_tail_is_copied(world: World) -> None:
    async with opened(world) as (ns, chunks), ns.register(bytearray(SLOT)) as reg:
        await chunks.put(b"a", reg[: 40 * KIB + 5])
        await chunks.get(b"a", reg)
        assert chunks.statistics().tail_bytes == 2 * 5
        assert chunks.statistics().unregistered == 0
        assert ns._device.bounced_bytes == 0


async def test_a_key_that_is_there_is_not_written_again(world: World) -> None:
    async with opened(world) as (ns, chunks):
        assert await put(chunks, b"a", 5000)
        before = ns.controller.statistics().commands
        assert not await chunks.put(b"a", bytes(100))
        assert ns.controller.statistics().commands == before
        await holds(chunks, b"a", 5000)
        assert chunks.statistics().puts_present == 1


async def test_puts_of_one_key_at_the_same_time_write_it_once(world: World) -> None:
    async with opened(world) as (_, chunks):
        done = await world.gather(*(lambda: put(chunks, b"a", 9000) for _ in range(5)))
        assert sorted(done) == [False] * 4 + [True]
        assert chunks.statistics().puts == 1
        await holds(chunks, b"a", 9000)


async def test_many_share_a_write_of_the_journal(world: World) -> None:
    async with opened(world) as (ns, chunks):
        keys = [b"%d" % n for n in range(32)]
        with inject(ns, Fault.delay(0.005, "write")):
            await world.gather(*(lambda k=k: put(chunks, k, 3000) for k in keys))
        assert chunks.statistics().commits <= 16
        for key in keys:
            await holds(chunks, key, 3000)


async def test_many_with_one_call(world: World) -> None:
    async with opened(world) as (ns, chunks), ns.allocate(MIB) as reg:
        keys = [b"%d" % n for n in range(20)]
        sizes = [1 + 1999 * n for n in range(20)]
        at = [n * 48 * KIB for n in range(20)]
        for key, size, start in zip(keys, sizes, at, strict=True):
            reg.view[start : start + size] = noise(key, size)
        items = [(k, reg[a : a + s]) for k, a, s in zip(keys, at, sizes, strict=True)]
        items += [(b"0", reg[:1]), (b"large", reg[: SLOT + 1]), (b"other", bytes(7))]
        done = await chunks.put_many(items)
        assert done[:21] == [True] * 20 + [False]
        assert isinstance(done[21], st.ChunkTooLargeError)
        assert done[22] is True
        assert chunks.statistics().commits == 2  # bytes(7) by itself
        reg.view[:] = bytes(MIB)
        back = [(k, reg[a : a + 48 * KIB]) for k, a in zip(keys, at, strict=True)]
        short = reg[:10]
        read = await chunks.get_many([*back, (b"none", reg), (b"19", short)])
        assert read[:20] == sizes
        assert isinstance(read[20], st.ChunkNotFoundError)
        assert isinstance(read[21], RangeError)
        for key, size, start in zip(keys, sizes, at, strict=True):
            assert reg.view[start : start + size] == noise(key, size)
            assert not any(reg.view[start + size : start + 48 * KIB])


@pytest.mark.few
async def test_memory_of_any_kind(world: World) -> None:
    """Registered, lying in registered memory, foreign, at an odd address."""
    async with opened(world) as (ns, chunks):
        array = np.frombuffer(noise("array", SLOT), dtype=np.uint8).copy()
        async with ns.register(array):
            await chunks.put(b"view", array[64:10_064])
            await chunks.put(b"odd", array[1:10_001])
            assert chunks.statistics().unregistered == 0
        await chunks.put(b"pointer", (array.ctypes.data, 20_000))
        for key, wanted in (
            (b"view", array[64:10_064]),
            (b"odd", array[1:10_001]),
            (b"pointer", array[:20_000]),
        ):
            assert await got(chunks, key) == wanted.tobytes()
        into = np.zeros(10_001, dtype=np.uint8)
        assert await chunks.get(b"view", into[1:]) == 10_000
        assert into[1:].tobytes() == array[64:10_064].tobytes()
        del into
        gc.collect()


@pytest.mark.few
async def test_what_is_refused(world: World) -> None:
    async with opened(world) as (_, chunks):
        with pytest.raises(st.ChunkTooLargeError, match=f"1 .. {SLOT}"):
            await chunks.put(b"a", bytes(SLOT + 1))
        with pytest.raises(ValueError, match="bytes"):
            await chunks.put(b"a", b"")
        for key in (b"", bytes(65)):
            with pytest.raises(RangeError, match=r"1 .. 64"):
                await chunks.put(key, b"x")
        with pytest.raises(TypeError, match="bytes"):
            await chunks.put("a", b"x")  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            await chunks.get(b"a", bytearray(1))
        await put(chunks, b"a", 100)
        with pytest.raises(RangeError, match="has 100 bytes, the memory 99"):
            await chunks.get(b"a", bytearray(99))
        with pytest.raises(aiougds.ReadOnlyError):
            await chunks.get(b"a", bytes(100))
        with pytest.raises(OptionError, match="timeout_s"):
            await chunks.get(b"a", bytearray(100), timeout_s=-1)
        assert len(chunks) == 1


@pytest.mark.few
async def test_what_open_refuses(world: World) -> None:
    async with world.open() as ns:
        with pytest.raises(st.StoreFormatError, match="holds no chunk store"):
            await st.open([ns])
        await st.format([ns], LAYOUT)
        with pytest.raises(st.OccupiedError, match="chunk store"):
            await st.format([ns], LAYOUT)
        for wrong in (
            {"high": 0.5, "low": 0.6},
            {"high": 1.1},
            {"eviction": "fifo"},
            {"checksum": "md5"},
            {"flush": "never"},
        ):
            with pytest.raises(OptionError):
                await st.open([ns], **wrong)  # type: ignore[arg-type]
        async with st.open([ns]):
            with pytest.raises(BusyError, match="already"):
                await st.open([ns])
        async with st.open([ns]):
            pass
        with pytest.raises(AlignmentError):
            await ns.read(bytearray(1), offset=0)
        await st.format([ns], LAYOUT, serial=ns.controller.info.serial)


@pytest.mark.few
async def test_deleting_and_pinning(world: World) -> None:
    async with opened(world) as (_, chunks):
        await put(chunks, b"a", 100)
        await put(chunks, b"b", 200)
        assert not chunks.pin(b"none")
        assert chunks.pin(b"a")
        with chunks.pinned(b"a") as chunk:
            assert (chunk.nbytes, chunk.pins) == (100, 2)
        with pytest.raises(st.ChunkPinnedError, match="1 times"):
            await chunks.delete(b"a")
        assert chunks.unpin(b"a")
        assert not chunks.unpin(b"a")
        assert await chunks.delete(b"a")
        assert not await chunks.delete(b"a")
        with pytest.raises(st.ChunkNotFoundError):
            await got(chunks, b"a")
        assert chunks.contains_many([b"a", b"b"]) == [False, True]
        assert b"b" in chunks
        await put(chunks, b"a", 300)
        await holds(chunks, b"a", 300)
        with pytest.raises(KeyError), chunks.pinned(b"none"):
            pass


@pytest.mark.few
async def test_a_pin_is_of_one_generation(world: World) -> None:
    """What was dropped and put anew is not let go by who held the old one."""
    async with opened(world) as (_, chunks):
        await put(chunks, b"a", 100)
        old = chunks.pin(b"a")
        assert old == chunks.chunk(b"a").generation
        (shard,) = chunks._shards
        with chunks.pinned(b"a"):
            shard.remove(shard.slots.index[b"a"], "corrupt", pinned=True)
            await put(chunks, b"a", 100)
            new = chunks.pin(b"a")
            assert new > old
        assert chunks.chunk(b"a").pins == 1
        assert not chunks.unpin(b"a", old)
        with pytest.raises(st.ChunkPinnedError):
            await chunks.delete(b"a")
        assert chunks.unpin(b"a", new)
        assert await chunks.delete(b"a")


@pytest.mark.few
async def test_what_a_listener_raises_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(_: st.StoreEvent) -> None:
        raise LookupError("a fault of the listener")

    async with opened(world) as (_, chunks):
        chunks.add_listener(wrong)
        heard: list[str] = []
        chunks.add_listener(lambda event: heard.append(event.kind))
        assert await put(chunks, b"k", 1000)
        await holds(chunks, b"k", 1000)
        await chunks.delete(b"k")
        assert heard == ["stored", "deleted"]
    assert "a listener raised at stored" in caplog.text


async def test_listeners_hear_all(world: World) -> None:
    heard: list[tuple[str, list[tuple[bytes, int]]]] = []
    async with opened(world) as (_, chunks):
        await put(chunks, b"a", 100)
        listener = lambda event: heard.append(tuple(event))  # noqa: E731
        chunks.add_listener(listener, replay=True)
        await put(chunks, b"b", 200)
        await chunks.delete(b"a")
        assert heard == [
            ("restored", [(b"a", 100)]),
            ("stored", [(b"b", 200)]),
            ("deleted", [(b"a", 100)]),
        ]
        chunks.remove_listener(listener)
        await put(chunks, b"c", 1)
        assert len(heard) == 3


@pytest.mark.parametrize("checksum", ["crc32c", "xxh3"])
@pytest.mark.few
async def test_what_changed_on_the_device_is_dropped(
    world: World, checksum: str
) -> None:
    heard: list[str] = []
    large = st.Layout(slot_bytes=MIB)  # its checksum is computed in a thread
    async with opened(world, size=8 * MIB, create=large, checksum=checksum) as (
        ns,
        chunks,
    ):
        chunks.add_listener(lambda event: heard.append(event.kind))
        data = noise("x", MIB)
        for key, n in ((b"small", 5000), (b"large", MIB)):
            await chunks.put(key, data[:n])
            into = bytearray(MIB)
            assert await chunks.get(key, into) == n
            assert into[:n] == data[:n]
            info = chunks.chunk(key)
            pool = chunks._shards[0].slots.pools[0]
            await ns.write(noise("y", 4096), offset=pool.at(info.slot) + 4096)
            with pytest.raises(st.ChunkCorruptError, match="checksum"):
                await chunks.get(key, into)
            assert key not in chunks
        assert heard == ["stored", "corrupt"] * 2
        assert chunks.statistics().corrupt == 2


@pytest.mark.few
async def test_it_is_there_after_closing(world: World, tmp_path: Path) -> None:
    address = world.address(tmp_path / "disk", size=4 * MIB)
    async with st.open([address], create=LAYOUT) as chunks:
        for n in range(10):
            await put(chunks, b"%d" % n, 1000 * n + 1)
        await chunks.delete(b"3")
        assert chunks.statistics().checkpoints == 0
    for _ in range(2):
        async with st.open([world.address(tmp_path / "disk")]) as chunks:
            assert [key for key, _ in chunks.scan()] == [
                b"%d" % n for n in range(10) if n != 3
            ]
            for n in set(range(10)) - {3}:
                await holds(chunks, b"%d" % n, 1000 * n + 1)


@pytest.mark.few
async def test_keys_are_striped_over_devices(world: World, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    made = [world.address(path, size=4 * MIB) for path in paths]
    keys = [b"%d" % n for n in range(60)]
    async with st.open(made, create=LAYOUT) as chunks:
        reg = await chunks.allocate(60 * 8 * KIB)
        parts = {k: reg[i * 8 * KIB : i * 8 * KIB + 5001] for i, k in enumerate(keys)}
        for key, part in parts.items():
            part.view[:] = noise(key, 5001)
        assert await chunks.put_many(list(parts.items())) == [True] * 60
        reg.view[:] = bytes(len(reg))
        assert await chunks.get_many(list(parts.items())) == [5001] * 60
        for key, part in parts.items():
            assert part.view == noise(key, 5001)
        devices = [chunks.chunk(key).device for key in keys]
        assert all(devices.count(one) > 5 for one in range(3))
        await reg.aclose()
    there = [world.address(path) for path in paths]
    with pytest.raises(st.StoreFormatError, match="has 3 devices, and 2"):
        await st.open(there[:2])
    async with st.open(reversed(there)) as chunks:
        for key in keys:
            await holds(chunks, key, 5001)
        assert {chunks.chunk(key).device for key in keys} == {0, 1, 2}


@pytest.mark.few
async def test_classes_of_slots(world: World) -> None:
    layout = st.Layout(classes=(st.SlotClass(64 * KIB, 0.5), st.SlotClass(4 * KIB)))
    async with opened(world, create=layout) as (_, chunks):
        for n in (1, 4096, 4097, 65536):
            await put(chunks, b"%d" % n, n)
            await holds(chunks, b"%d" % n, n)
        small, large = chunks._shards[0].slots.pools
        assert (small.slot_bytes, large.slot_bytes) == (4096, 65536)
        assert (small.used, large.used) == (2, 2)
        assert chunks.slot_bytes_for(5000) == 65536
        with pytest.raises(st.ChunkTooLargeError):
            chunks.slot_bytes_for(65537)


def test_a_store_belongs_to_its_loop() -> None:
    async def open_it() -> st.ChunkStore:
        return await st.open(["emu:?size=4MiB"], create=LAYOUT)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        chunks = first.run(open_it())
        with pytest.raises(WrongLoopError):
            second.run(chunks.put(b"a", b"x"))
        assert not chunks.contains(b"a")
        first.run(chunks.aclose())
        with pytest.raises(aiougds.ClosedError):
            first.run(chunks.put(b"a", b"x"))


@pytest.mark.few
async def test_what_is_no_key_is_never_a_missing_chunk(world: World) -> None:
    """One that is written as text would look like a cold cache for ever."""
    async with opened(world) as (_, chunks):
        await put(chunks, b"a", 5000)
        for bad in ("a", 1, bytearray(b"a")):
            for work in (
                lambda bad=bad: chunks.get(bad, bytearray(SLOT)),
                lambda bad=bad: chunks.get_many([(bad, bytearray(SLOT))]),
                lambda bad=bad: chunks.put_many([(bad, bytes(10))]),
                lambda bad=bad: chunks.delete_many([b"a", bad]),
            ):
                with pytest.raises(aiougds.ArgumentTypeError, match="a key is bytes"):
                    await work()
            with pytest.raises(aiougds.ArgumentTypeError, match="a key is bytes"):
                chunks.contains_many([b"a", bad])
        await holds(chunks, b"a", 5000)  # nothing was half done


@pytest.mark.few
async def test_lengths_are_integers(world: World) -> None:
    async with opened(world) as (_, chunks):
        with pytest.raises(aiougds.ArgumentTypeError, match="nbytes='x'"):
            chunks.slot_bytes_for("x")  # type: ignore[arg-type]  # as a user may
    with pytest.raises(OptionError, match="slot_bytes='4'"):
        st.Layout(slot_bytes="4").sizes()  # type: ignore[arg-type]  # as a user may
