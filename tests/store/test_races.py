"""What happens at the same time: closing, waiting, giving up, the same key twice."""

from __future__ import annotations

import anyio
import pytest
from helpers.world import KIB, MIB, World
from store.tools import LAYOUT, holds, opened, put

import aiougds
from aiougds import OperationTimeoutError
from aiougds import store as st
from aiougds.store._layout import BLOCK
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.tasks, pytest.mark.few]
SHORT = st.Layout(slot_bytes=4 * KIB, key_bytes=64, journal_bytes=64 * BLOCK)


async def test_closing_while_puts_are_in_flight(world: World) -> None:
    """Each is there, or its caller hears that the store was closed."""
    async with world.open(emu={"size": 16 * MIB}) as ns, ns.allocate(4096) as reg:
        for turn in range(6):
            acknowledged: list[bytes] = []
            chunks = await st.open([ns], create=SHORT)

            async def work(
                number: int,
                turn: int = turn,
                chunks: st.ChunkStore = chunks,
                acknowledged: list[bytes] = acknowledged,
            ) -> None:
                for n in range(10_000):
                    key = b"%d-%d-%d" % (turn, number, n)
                    try:
                        await chunks.put(key, reg)
                    except aiougds.UGDSError:
                        return
                    acknowledged.append(key)
                    await anyio.sleep(0)

            async with anyio.create_task_group() as tasks:
                for number in range(12):
                    tasks.start_soon(work, number)
                while len(acknowledged) < 30 + 17 * turn:
                    await anyio.sleep(0)
                await chunks.aclose()
            async with st.open([ns]) as chunks:
                assert not [key for key in acknowledged if key not in chunks]


async def test_closing_ends_what_waits_for_room(world: World) -> None:
    async with world.open() as ns:
        chunks = await st.open([ns], create=LAYOUT, high=1, low=1)
        for n in range(chunks.capacity.slots):
            await put(chunks, b"%d" % n, 100)
            chunks.pin(b"%d" % n)
        ended: list[type[BaseException]] = []

        async def late() -> None:
            try:
                await put(chunks, b"late", 100)
            except aiougds.UGDSError as error:
                ended.append(type(error))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(late)
                while not chunks.statistics().waits:
                    await anyio.sleep(0.001)
                await chunks.aclose()
        assert ended == [aiougds.ClosedError]


async def test_a_write_that_was_given_up_is_not_overtaken(world: World) -> None:
    """Before the journal comes round to its place puts are refused."""
    async with world.open(emu={"volatile": 1, "size": 16 * MIB}) as ns:
        chunks = await st.open([ns], create=SHORT)
        acknowledged: list[bytes] = []
        with inject(ns, Fault.hold("write", count=1).on(skip=2)) as held:
            with pytest.raises(OperationTimeoutError):
                await chunks.put(b"first", bytes(4096), timeout_s=0.5)
            assert held.hits
            with pytest.raises(aiougds.BusyError, match="come round"):  # noqa: PT012
                for n in range(100):
                    await put(chunks, b"%d" % n, 4096)
                    acknowledged.append(b"%d" % n)
            assert len(acknowledged) > 30
        with anyio.fail_after(5):
            while ns.controller.quarantine:
                await anyio.sleep(0.001)
        await put(chunks, b"last", 4096)
        (spare,) = chunks._shards[0].journal._spare
        await spare.aclose()
        await chunks._mount.close()  # as after a loss of power
        async with st.open([ns]) as chunks:
            for key in (*acknowledged, b"last"):
                await holds(chunks, key, 4096)


async def test_put_many_of_one_key_at_the_same_time(world: World) -> None:
    """Also when one of them has to wait for room."""
    async with opened(world, create=LAYOUT, high=1, low=1) as (ns, chunks):
        slots = chunks.capacity.slots
        for n in range(slots):
            await put(chunks, b"%d" % n, 100)
        async with ns.allocate(4096) as reg:
            with inject(ns, Fault.delay(0.003, "write")):
                done = await world.gather(
                    *(lambda: chunks.put_many([(b"k", reg)]) for _ in range(4))
                )
        assert sorted(one[0] for one in done) == [False] * 3 + [True]
        assert len(chunks) == slots
        assert await chunks.delete(b"k")
        await put(chunks, b"k", 50)
        assert chunks.capacity.free_slots == 0


async def test_durable_means_it_of_a_lazy_chunk_too(world: World) -> None:
    async with world.open(emu={"volatile": 1}) as ns, ns.allocate(4096) as reg:
        chunks = await st.open([ns], create=LAYOUT, flush="lazy")
        for key in (b"one", b"many"):
            assert await chunks.put(key, reg)
        assert chunks.statistics().commits == 0
        assert not await chunks.put(b"one", reg, durable=True)
        assert await chunks.put(b"later", reg)
        assert await chunks.put_many([(b"later", reg)], durable=True) == [False]
        await chunks._mount.close()  # as after a loss of power
        async with st.open([ns]) as chunks:
            assert len(chunks) == 3


async def test_a_double_does_not_come_back(world: World) -> None:
    """Two slots with one key, as after a put that was given up: the older one goes."""
    async with world.open() as ns:
        chunks = await st.open([ns], create=LAYOUT)
        (shard,) = chunks._shards
        await put(chunks, b"k", 4096)
        old = chunks.chunk(b"k").slot
        # As if the deletion of it had not been journaled in time.
        shard.slots.withdraw(old)
        await put(chunks, b"k", 4096)
        await chunks._mount.close()
        chunks = await st.open([ns])
        await holds(chunks, b"k", 4096)
        assert chunks.chunk(b"k").slot != old
        assert await chunks.delete(b"k")
        await chunks._mount.close()
        async with st.open([ns]) as chunks:
            assert b"k" not in chunks
            assert chunks.capacity.free_slots == chunks.capacity.slots


async def test_a_put_given_up_in_the_queue_is_never_journaled(world: World) -> None:
    async with opened(world, create=LAYOUT) as (ns, chunks):
        journal = chunks._shards[0].journal
        with inject(ns, Fault.delay(0.2, "write", count=1).on(skip=2)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, chunks, b"first", 4096)
                while not journal.busy:
                    await anyio.sleep(0.001)
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as inner:
                        inner.start_soon(put, chunks, b"second", 4096)
                        while journal.added < 2:
                            await anyio.sleep(0.001)
                        scope.cancel()
        await chunks.flush()
        assert b"second" not in chunks
        assert chunks.capacity.free_slots == chunks.capacity.slots - 1
        await put(chunks, b"second", 4096)
        await holds(chunks, b"second", 4096)


async def test_more_tails_than_memory_for_them(world: World) -> None:
    """A put that holds a header never waits for what another holds."""
    layout = st.Layout(slot_bytes=8 * KIB, key_bytes=1000)
    async with opened(world, size=32 * MIB, create=layout) as (_, chunks):
        disk = chunks._shards[0].disk
        del disk._blocks[8:]
        data = bytes(4096 + 4000)  # its tail has no room beside the key
        keys = [b"%d-" % n + bytes(900) for n in range(64)]
        with anyio.fail_after(20):
            done = await world.gather(*(lambda k=k: chunks.put(k, data) for k in keys))
        assert all(done)
        into = bytearray(8192)
        assert await chunks.get(keys[3], into) == len(data)


async def test_slots_come_back_when_the_device_has_answered(world: World) -> None:
    async with opened(world, create=LAYOUT, high=1, low=1, size=MIB) as (ns, chunks):
        slots = chunks.capacity.slots
        fault = Fault.hold("write")
        async with anyio.create_task_group() as tasks:
            with inject(ns, fault):
                for n in range(slots):
                    with pytest.raises(OperationTimeoutError):
                        await chunks.put(b"%d" % n, bytes(4096), timeout_s=0.01)
                tasks.start_soon(put, chunks, b"late", 100)
                while not chunks.statistics().waits:
                    await anyio.sleep(0.001)
            with anyio.fail_after(5):
                while b"late" not in chunks:
                    await anyio.sleep(0.005)
        with anyio.fail_after(5):
            while ns.controller.quarantine:
                await anyio.sleep(0.001)
