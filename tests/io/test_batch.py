"""A reusable batch: prepare, submit, harvest by cookie, again and again."""

from __future__ import annotations

import pytest
from helpers.model import PAGE, number_of, numbered, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    BusyError,
    ClosedError,
    MemoryLayoutError,
    OptionError,
    RangeError,
)
from aiougds.testing import Fault, inject

LBA = 512


@pytest.mark.core
async def test_cookies_come_back_once_each(world: World) -> None:
    count = 100
    async with (
        world.open(emu={"lba": LBA, "size": MIB}) as ns,
        ns.register(bytearray(numbered(count, LBA))) as reg,
    ):
        async with ns.batch(count) as batch:
            for turn in range(3):
                for i in range(count):
                    part = reg[i * LBA : (i + 1) * LBA]
                    if turn == 0:
                        batch.write(part, offset=i * LBA, cookie=("w", i))
                    else:
                        batch.read(part, offset=i * LBA, cookie=("r", i))
                assert batch.prepared == count
                assert batch.submit() == count
                assert (batch.prepared, batch.pending) == (0, count)
                items = await batch.harvest(count)
                assert batch.pending == 0
                letter = "w" if turn == 0 else "r"
                assert sorted(item.cookie for item in items) == [
                    (letter, i) for i in range(count)
                ]
                assert {item.nbytes for item in items} == {LBA}
                assert all(item.error is None for item in items)
        numbers = [number_of(reg.view[i * LBA : i * LBA + LBA]) for i in range(count)]
        assert numbers == list(range(count))


@pytest.mark.core
async def test_harvest_min_and_max(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(PAGE) as reg,
        ns.batch(32) as batch,
    ):
        for i in range(32):
            batch.read(reg, offset=i * PAGE, cookie=i)
        batch.submit()
        seen = []
        first = await batch.harvest(1, 1)
        assert len(first) == 1
        seen += first
        some = await batch.harvest(5, 8)
        assert 5 <= len(some) <= 8
        seen += some
        none = await batch.harvest(0, 0)
        assert none == []
        seen += await batch.harvest(100)  # fewer are in flight
        assert sorted(item.cookie for item in seen) == list(range(32))
        assert await batch.harvest(1) == []
        assert await batch.harvest(0) == []


async def test_harvest_returns_what_there_is_at_its_limit(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(4 * PAGE) as reg,
        ns.batch(4) as batch,
    ):
        with inject(ns, Fault.hold("read").on(slba=3, nlb=1)) as held:
            for i in range(4):
                part = reg[i * PAGE : (i + 1) * PAGE]
                batch.read(part, offset=i * PAGE, cookie=i)
            batch.submit()
            early = await batch.harvest(4, timeout_s=0.3)
            assert sorted(item.cookie for item in early) == [0, 1, 2]
            assert batch.pending == 1
            assert held.hits == 1
        late = await batch.harvest(4)
        assert [(item.cookie, item.nbytes) for item in late] == [(3, PAGE)]


async def test_order_is_that_of_completion(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(2 * PAGE) as reg,
        ns.batch(2) as batch,
    ):
        with inject(ns, Fault.hold("read").on(slba=7, nlb=1)):
            batch.read(reg[:PAGE], offset=7 * PAGE, cookie="held")
            batch.read(reg[PAGE:], offset=0, cookie="quick")
            batch.submit()
            assert [i.cookie for i in await batch.harvest(1)] == ["quick"]
        assert [i.cookie for i in await batch.harvest(1)] == ["held"]


async def test_iteration_takes_everything(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(PAGE) as reg,
        ns.batch(50) as batch,
    ):
        for i in range(50):
            batch.read(reg, offset=i * PAGE, cookie=i)
        batch.submit()
        seen = [item.cookie async for item in batch]
        assert sorted(seen) == list(range(50))


async def test_several_submissions_in_flight(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(PAGE) as reg,
        ns.batch(64) as batch,
    ):
        for turn in range(8):
            for i in range(8):
                batch.read(reg, offset=i * PAGE, cookie=turn * 8 + i)
            assert batch.submit() == 8
        items = await batch.harvest(64)
        assert sorted(item.cookie for item in items) == list(range(64))


@pytest.mark.few
async def test_reads_writes_and_flush_in_one(world: World) -> None:
    data = pattern(PAGE, 1)
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(data, offset=0)
        async with ns.allocate(2 * PAGE) as reg:
            reg.view[PAGE:] = pattern(PAGE, 2)
            async with ns.batch() as batch:
                batch.read(reg[:PAGE], offset=0, cookie="read")
                batch.write(reg[PAGE:], offset=PAGE, fua=True, cookie="write")
                batch.flush(cookie="flush")
                batch.read(reg[0:0], offset=0, cookie="empty")
                assert batch.submit() == 4
                done = {i.cookie: i.result for i in await batch.harvest(4)}
                assert done == {"read": PAGE, "write": PAGE, "flush": 0, "empty": 0}
            assert reg.view[:PAGE] == data
            await ns.read(reg[:PAGE], offset=PAGE)
            assert reg.view[:PAGE] == pattern(PAGE, 2)


@pytest.mark.few
async def test_items_larger_than_a_command(world: World) -> None:
    async with world.open(emu={"size": MIB, "mdts": 1}, batch_depth=3, depth=3) as ns:
        data = pattern(128 * PAGE, 3)
        async with ns.register(bytearray(data)) as reg, ns.batch(4) as batch:
            for kind in (batch.write, batch.read):
                for i in range(4):
                    start = i * 32 * PAGE
                    kind(reg[start : start + 32 * PAGE], offset=start, cookie=i)
                batch.submit()
                items = await batch.harvest(4)
                assert [item.nbytes for item in items] == [32 * PAGE] * 4
                if kind == batch.write:
                    reg.view[:] = bytes(len(data))
            assert reg.view == data


@pytest.mark.few
@pytest.mark.parametrize("capacity", [1, 2, 3, 257, 5000])
async def test_capacities(world: World, capacity: int) -> None:
    async with (
        world.open(emu={"size": MIB, "data": "none"}) as ns,
        ns.allocate(PAGE) as reg,
        ns.batch(capacity) as batch,
    ):
        for _ in range(2):
            for i in range(capacity):
                batch.read(reg, offset=i % 256 * PAGE, cookie=i)
            with pytest.raises(BusyError, match=f"room for {capacity} "):
                batch.read(reg, offset=0)
            batch.submit()
            with pytest.raises(BusyError, match="harvest some"):
                batch.read(reg, offset=0)
            items = await batch.harvest(capacity)
            assert sorted(item.cookie for item in items) == list(range(capacity))


@pytest.mark.core
async def test_bad_items_are_refused_when_prepared(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(2 * PAGE) as reg,
        ns.batch(4) as batch,
    ):
        with nothing_sent(ns):
            for buf, offset, kind, words in (
                (reg[:PAGE], 1, AlignmentError, "block size 4096"),
                (reg[:5], 0, AlignmentError, "length 5"),
                (reg, MIB - PAGE, RangeError, "past the end"),
                (reg, -PAGE, RangeError, "negative"),
                (bytearray(PAGE), 0, MemoryLayoutError, "not registered"),
            ):
                with pytest.raises(kind, match=words):
                    batch.read(buf, offset=offset)
            with pytest.raises(RangeError, match=f"more than the {2 * PAGE} bytes"):
                batch.read(reg, offset=0, nbytes=3 * PAGE)
            assert (batch.prepared, batch.pending) == (0, 0)


async def test_a_refused_submit_sends_nothing_and_can_go_on(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        gone = ns.allocate(PAGE)
        async with ns.batch(4) as batch:
            async with gone:
                batch.read(reg, offset=0, cookie=0)
                batch.read(gone, offset=0, cookie=1)
            with nothing_sent(ns), pytest.raises(ClosedError, match="closed") as caught:
                batch.submit()
            assert caught.value.__notes__ == ["item 1"]
            assert (batch.prepared, batch.pending) == (0, 0)
            batch.read(reg, offset=0, cookie=2)
            batch.submit()
            assert [item.cookie for item in await batch.harvest()] == [2]


async def test_a_closed_batch_refuses(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        batch = ns.batch(4)
        async with batch:
            pass
        with nothing_sent(ns), pytest.raises(ClosedError, match="batch is closed"):
            batch.read(reg, offset=0)
        for capacity in (0, -1, True, "4", 1 << 25):
            with pytest.raises(OptionError, match="capacity="):
                ns.batch(capacity)


async def test_leaving_a_batch_ends_what_is_in_flight(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(8 * PAGE) as reg:
        with inject(ns, Fault.delay(0.02, "read")):
            async with ns.batch(8) as batch:
                for i in range(8):
                    batch.read(reg[i * PAGE : (i + 1) * PAGE], offset=i * PAGE)
                batch.submit()
        assert reg.inflight == 0
        assert ns.controller.statistics().inflight == 0


async def test_impossible_bounds_of_a_harvest(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.batch(2) as batch:
        for least, most in ((-1, None), (3, 2), (0, -1)):
            with pytest.raises(OptionError, match="min <= max"):
                await batch.harvest(least, most)
