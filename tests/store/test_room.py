"""Who gets a slot: watermarks, waiting for room, what is held, what was given up."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from helpers.world import KIB, MIB, World
from store.tools import got, holds, noise, opened, put

import aiougds
from aiougds import OperationTimeoutError
from aiougds import store as st
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.tasks, pytest.mark.few]
SMALL = st.Layout(slot_bytes=64 * KIB, key_bytes=64)


async def filled(chunks: st.ChunkStore) -> list[bytes]:
    """Fill all slots; with high=low=1 the next put needs an eviction."""
    keys = [b"%d" % n for n in range(chunks.capacity.slots)]
    for key in keys:
        await put(chunks, key, 1000)
    return keys


async def test_watermarks(world: World) -> None:
    async with opened(world, high=0.9, low=0.5, create=SMALL) as (_, chunks):
        slots = chunks.capacity.slots
        high, low = int(0.9 * slots), int(0.5 * slots)
        gone: list[bytes] = []
        chunks.add_listener(
            lambda event: (
                gone.extend(key for key, _ in event.items)
                if event.kind == "evicted"
                else None
            )
        )
        for n in range(high):
            await put(chunks, b"%d" % n, 1000)
        assert len(chunks) == high
        await got(chunks, b"0")  # used: it stays
        await put(chunks, b"next", 1000)
        assert len(chunks) == low
        assert gone == [b"%d" % n for n in range(1, high - low + 2)]
        await holds(chunks, b"0", 1000)
        await holds(chunks, b"next", 1000)
        assert chunks.statistics().evictions == len(gone)


async def test_pinned_chunks_stay_and_a_put_waits(world: World) -> None:
    async with opened(world, high=1, low=1, create=SMALL) as (_, chunks):
        keys = await filled(chunks)
        for key in keys:
            assert chunks.pin(key)
        with pytest.raises(OperationTimeoutError, match="pinned"):
            await chunks.put(b"late", b"x", timeout_s=0.02)
        assert b"late" not in chunks
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, chunks, b"new", 2000)
            await anyio.sleep(0.02)
            assert b"new" not in chunks
            chunks.unpin(keys[3])
        await holds(chunks, b"new", 2000)
        assert keys[3] not in chunks
        assert chunks.statistics().waits >= 1


async def test_without_eviction_it_is_full(world: World) -> None:
    async with opened(world, eviction=None, high=1, create=SMALL) as (_, chunks):
        keys = await filled(chunks)
        with pytest.raises(st.StoreFullError, match="eviction=None"):
            await chunks.put(b"new", b"x")
        done = await chunks.put_many([(keys[0], b"x"), (b"new", b"x")])
        assert done[0] is False
        assert isinstance(done[1], st.StoreFullError)
        await chunks.delete(keys[5])
        await put(chunks, b"new", 300)
        await holds(chunks, b"new", 300)
        assert chunks.capacity.free_slots == 0


async def test_more_puts_at_once_than_slots(world: World) -> None:
    """None is dropped: they wait for each other."""
    async with opened(world, create=SMALL, size=MIB) as (_, chunks):
        slots = chunks.capacity.slots
        keys = [b"%d" % n for n in range(4 * slots)]
        done = await world.gather(*(lambda k=k: put(chunks, k, 5000) for k in keys))
        assert all(done)
        assert chunks.statistics().puts == 4 * slots
        for key, info in chunks.scan():
            await holds(chunks, key, info.nbytes)
        data = noise("x", 5000)
        many = await chunks.put_many([(b"m%d" % n, data) for n in range(3 * slots)])
        assert many == [True] * 3 * slots


async def test_a_slot_is_not_used_again_while_it_is_read(world: World) -> None:
    async with opened(world, high=1, low=1, create=SMALL) as (ns, chunks):
        keys = await filled(chunks)
        slot = chunks.chunk(keys[0]).slot
        into = bytearray(1000)
        async with anyio.create_task_group() as tasks:
            with inject(ns, Fault.hold("read", count=1)) as held:

                async def read() -> None:
                    assert await chunks.get(keys[0], into) == 1000

                tasks.start_soon(read)
                while not held.hits:
                    await anyio.sleep(0.001)
                assert await chunks.delete(keys[0])
                await put(chunks, b"new", 1000)  # evicts another one
                assert chunks.chunk(b"new").slot != slot
        assert into == noise(keys[0], 1000)
        await put(chunks, b"newer", 1000)
        assert chunks.chunk(b"newer").slot == slot


async def test_puts_are_background_work_while_somebody_reads(world: World) -> None:
    async with opened(world, create=SMALL) as (ns, chunks):
        await put(chunks, b"a", 1000)

        def background() -> int:
            rows = ns.controller.statistics().latencies
            return sum(
                row.commands
                for row in rows
                if (row.io_class, row.command) == ("background", "write")
            )

        await put(chunks, b"b", 8192)
        assert background() == 0
        async with anyio.create_task_group() as tasks:
            with inject(ns, Fault.hold("read", count=1)) as held:
                tasks.start_soon(chunks.get, b"a", bytearray(1000))
                while not held.hits:
                    await anyio.sleep(0.001)
                await put(chunks, b"c", 8192)
        assert background() == 2  # header and data; the journal waits for nobody
        await put(chunks, b"d", 8192)
        assert background() == 2


@pytest.mark.parametrize("skip", [0, 1])
async def test_a_cancelled_put_leaves_nothing(world: World, skip: int) -> None:
    """Cancelled while its bytes, or the journal, are on their way."""
    async with opened(world, create=SMALL) as (ns, chunks):
        await put(chunks, b"before", 100)
        free = chunks.capacity.free_slots
        async with ns.register(bytearray(20_480)) as reg:
            ended: list[bool] = []

            async def put_it() -> None:
                ended.append(await chunks.put(b"a", reg))

            count = 2 if skip == 0 else 0  # header and data; the journal
            fault = Fault.delay(0.3, "write", count=count)
            if skip:
                fault = fault.on(skip=2)
            with inject(ns, fault) as slow:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(put_it)
                    while not slow.hits:
                        await anyio.sleep(0.001)
                    tasks.cancel_scope.cancel()
        if ended:  # on trio what has ended by then is not cancelled
            assert skip
            assert world.loop == "trio"
            assert await chunks.delete(b"a")
        assert b"a" not in chunks
        await chunks.flush()
        assert b"a" not in chunks
        assert chunks.capacity.free_slots == free
        await put(chunks, b"a", 3000)
        await holds(chunks, b"a", 3000)
        await holds(chunks, b"before", 100)


async def test_a_late_put_gives_its_slot_back_when_the_device_is_done(
    world: World,
) -> None:
    async with opened(world, create=SMALL, high=1, low=1) as (ns, chunks):
        await put(chunks, b"before", 100)
        free = chunks.capacity.free_slots
        async with ns.register(bytearray(20_480)) as reg:
            with inject(ns, Fault.hold("write", count=2)):
                with pytest.raises(OperationTimeoutError):
                    await chunks.put(b"a", reg, timeout_s=0.02)
                assert b"a" not in chunks
                assert len(chunks._shards[0].slots.pools[0].free) == free - 1
            with anyio.fail_after(5):
                while reg.inflight:
                    await anyio.sleep(0.001)
        for n in range(free):
            await put(chunks, b"%d" % n, 50)
        assert len(chunks) == free + 1
        await holds(chunks, b"before", 100)


async def test_a_late_journal_takes_the_chunk_back(world: World) -> None:
    async with opened(world, create=SMALL) as (ns, chunks):
        with inject(ns, Fault.delay(0.1, "write").on(skip=2)):
            with pytest.raises(OperationTimeoutError):
                await chunks.put(b"a", bytes(4096), timeout_s=0.02)
            assert b"a" not in chunks
        with anyio.fail_after(5):
            while ns.controller.quarantine:
                await anyio.sleep(0.001)
        await chunks.flush()
        assert b"a" not in chunks
        assert chunks.capacity.free_slots == chunks.capacity.slots
        await put(chunks, b"a", 4096)
        await holds(chunks, b"a", 4096)


async def test_a_failed_write_is_the_put_s_alone(world: World) -> None:
    async with opened(world, create=SMALL) as (ns, chunks):
        fault = Fault.status("write", sct=2, sc=0x80, dnr=True, count=1)
        with inject(ns, fault), pytest.raises(aiougds.MediaError):
            await chunks.put(b"a", bytes(9000))
        assert b"a" not in chunks
        async with ns.register(bytearray(8192)) as reg:
            with inject(ns, fault.on(skip=2)):
                done = await chunks.put_many([(b"%d" % n, reg) for n in range(4)])
        assert [one is True for one in done] == [True, False, True, True]
        assert isinstance(done[1], aiougds.MediaError)
        assert len(chunks) == 3


async def test_a_failed_write_of_the_journal_is_tried_again(world: World) -> None:
    async with opened(world, create=SMALL) as (ns, chunks):
        fault = Fault.status("write", sct=2, sc=0x80, dnr=True, count=1).on(skip=2)
        with inject(ns, fault), pytest.raises(aiougds.MediaError):
            await chunks.put(b"a", bytes(4096))
        assert b"a" not in chunks
        await put(chunks, b"b", 4096)
        await holds(chunks, b"b", 4096)
        assert b"a" not in chunks
        await put(chunks, b"a", 4096)
        await holds(chunks, b"a", 4096)


async def test_failed_reads(world: World) -> None:
    async with opened(world, create=SMALL) as (ns, chunks):
        for n in range(4):
            await put(chunks, b"%d" % n, 5000)
        fault = Fault.status("read", sct=2, sc=0x81, dnr=True, count=1)
        with inject(ns, fault), pytest.raises(aiougds.MediaError):
            await got(chunks, b"0")
        async with ns.allocate(4 * 8192) as reg:
            items = [(b"%d" % n, reg[n * 8192 : n * 8192 + 5000]) for n in range(4)]
            with inject(ns, fault.on(skip=2)):
                done = await chunks.get_many(items)
            assert isinstance(done[1], aiougds.MediaError)
            assert [done[0], *done[2:]] == [5000] * 3
            await holds(chunks, b"1", 5000)


async def test_restores_of_alike_chunks(world: World) -> None:
    """What goes to C as numbers fails by itself, and holds its slots, too."""
    async with (
        opened(world, high=1, low=1, create=SMALL) as (ns, chunks),
        ns.allocate(4 * 4096) as reg,
    ):
        keys = [b"%d" % n for n in range(chunks.capacity.slots)]
        for key in keys:
            await put(chunks, key, 4096)
        items = [(keys[n], reg[n * 4096 : (n + 1) * 4096]) for n in range(4)]
        fault = Fault.status("read", sct=2, sc=0x81, dnr=True, count=1)
        with inject(ns, fault.on(skip=2)):
            done = await chunks.get_many(items)
        assert [one == 4096 for one in done] == [True, True, False, True]
        assert isinstance(done[2], aiougds.MediaError)
        counted = chunks.statistics()
        assert (counted.gets, counted.hits) == (4, 3)
        slot = chunks.chunk(keys[1]).slot
        async with anyio.create_task_group() as tasks:
            with inject(ns, Fault.hold("read", count=1)) as held:

                async def restore() -> None:
                    assert await chunks.get_many(items) == [4096] * 4

                tasks.start_soon(restore)
                while not held.hits:
                    await anyio.sleep(0.001)
                await chunks.delete(keys[1])
                await put(chunks, b"new", 4096)
                assert chunks.chunk(b"new").slot != slot
        for n in range(4):
            assert reg.view[n * 4096 : (n + 1) * 4096] == noise(keys[n], 4096)
        await put(chunks, b"newer", 4096)
        assert chunks.chunk(b"newer").slot == slot


async def test_leaving_in_a_cancelled_scope_closes_it(world: World) -> None:
    async with world.open() as ns:
        with anyio.CancelScope() as scope:
            async with st.open([ns], create=SMALL) as chunks:
                await put(chunks, b"a", 5000)
                scope.cancel()
                await anyio.sleep(1)
        assert chunks.closed
        async with st.open([ns]) as chunks:
            await holds(chunks, b"a", 5000)


@pytest.mark.parametrize(
    "ask",
    [
        lambda chunks: chunks.contains(b"a"),
        lambda chunks: chunks.contains_many([b"a"]),
        lambda chunks: b"a" in chunks,
        len,
        lambda chunks: chunks.chunk(b"a"),
        lambda chunks: chunks.scan(),
        lambda chunks: chunks.pin(b"a"),
        lambda chunks: chunks.touch([b"a"]),
        lambda chunks: chunks.pinned(b"a").__enter__(),
    ],
)
async def test_a_closed_store_has_no_answers(
    world: World, ask: Callable[[st.ChunkStore], object]
) -> None:
    async with world.open() as ns:
        async with st.open([ns], create=SMALL) as chunks:
            await put(chunks, b"a", 5000)
            with chunks.pinned(b"a"):
                ask(chunks)
                await chunks.aclose()  # and leaving finds no pin to give back
        assert not chunks.unpin(b"a")
        assert chunks.statistics().chunks == 1
        with pytest.raises(aiougds.ClosedError, match="the store is closed"):
            ask(chunks)


async def test_after_a_reset_it_has_to_be_opened_again(world: World) -> None:
    """What a volatile cache held may be lost, and nobody could tell."""
    async with world.open(emu={"volatile": 1}) as ns:
        chunks = await st.open([ns], create=SMALL)
        await put(chunks, b"a", 5000)
        await ns.controller.reset()
        with pytest.raises(st.StoreBrokenError, match="open it again"):
            await put(chunks, b"b", 5000)
        with pytest.raises(st.StoreBrokenError):
            await put(chunks, b"c", 5000)
        with pytest.raises(st.StoreBrokenError):
            await chunks.delete(b"a")
        await holds(chunks, b"a", 5000)
        await chunks.aclose()
        async with st.open([ns]) as chunks:
            assert [key for key, _ in chunks.scan()] == [b"a"]
            await put(chunks, b"b", 5000)
