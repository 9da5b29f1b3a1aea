"""Behaviours: many transfers at once."""

from __future__ import annotations

from array import array

import anyio

import aiougds
from conformance.tools import Tools, idle, noise, refused

KIB = 1 << 10
MIB = 1 << 20
BLOCK = 4096


async def a_list_is_read_at_once(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(64 * BLOCK) as reg:
        reg.view[:] = data = noise(20, 64 * BLOCK)
        places = [(i * 37 % 64) * 2 * BLOCK for i in range(64)]
        items = [(reg[i * BLOCK :][:BLOCK], at) for i, at in enumerate(places)]
        assert await ns.write_many(items) == [BLOCK] * 64
        reg.view[:] = bytes(64 * BLOCK)
        assert await ns.read_many(items) == [BLOCK] * 64
        assert reg.view == data
        await refused(aiougds.RangeError, ns.read_many([(reg[:BLOCK], ns.size)]))
        idle(ns)
        tools.device.clean(ns)


async def arrays_are_read_at_once(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(300 * BLOCK) as reg:
        reg.view[:] = noise(21, 300 * BLOCK)
        await ns.write(reg, offset=0)
        offsets = array("q", (i * 7 % 300 * BLOCK for i in range(300)))
        starts = array("q", (i * 11 % 300 * BLOCK for i in range(300)))
        async with ns.allocate(300 * BLOCK) as back:
            done = await ns.read_many(
                back, offsets=offsets, nbytes=BLOCK, buf_offsets=starts
            )
            assert list(done) == [BLOCK] * 300
            for at, start in zip(offsets, starts, strict=True):
                assert back.view[start:][:BLOCK] == reg.view[at:][:BLOCK]
        idle(ns)


async def results_come_as_they_end(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(32 * BLOCK) as reg:
        items = [(reg[i * BLOCK :][:BLOCK], i * BLOCK) for i in range(32)]
        async with ns.as_completed(items) as done:
            seen = {index: result async for index, result in done}
        assert seen == dict.fromkeys(range(32), BLOCK)
        async with ns.as_completed(items) as done:
            async for _ in done:
                break  # leaving early drains the rest
        idle(ns)


async def a_batch_is_harvested(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(64 * BLOCK) as reg:
        batch = ns.batch(capacity=64)
        for turn in range(3):
            for i in range(64):
                part = reg[i * BLOCK :][:BLOCK]
                if turn:
                    batch.read(part, offset=i * BLOCK, cookie=(turn, i))
                else:
                    batch.write(part, offset=i * BLOCK, cookie=(turn, i))
            assert batch.submit() == 64
            first = await batch.harvest(min=16)
            assert len(first) >= 16
            rest = [item async for item in batch]
            cookies = {item.cookie for item in (*first, *rest)}
            assert cookies == {(turn, i) for i in range(64)}
            assert all(item.result == BLOCK for item in (*first, *rest))
            assert batch.pending == 0
        await batch.aclose()
        idle(ns)
        tools.device.clean(ns)


async def a_long_batch_is_windowed(address: str, tools: Tools) -> None:
    async with tools.open(address, queues=4, depth=8, batch_depth=16) as ns:
        async with ns.allocate(16 * BLOCK) as reg:
            offsets = array("q", (i % 1024 * BLOCK for i in range(2000)))
            starts = array("q", (i % 16 * BLOCK for i in range(2000)))
            done = await ns.read_many(
                reg, offsets=offsets, nbytes=BLOCK, buf_offsets=starts
            )
            assert sum(done) == 2000 * BLOCK
            assert ns.controller.statistics().commands == 2000
        idle(ns)


async def a_cancelled_batch_has_results(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(16 * BLOCK) as reg:
        batch = ns.batch(capacity=16)
        with tools.device.hold_next_read(ns):
            for i in range(16):
                batch.read(reg[i * BLOCK :][:BLOCK], offset=i * BLOCK, cookie=i)
            batch.submit()
            done = await batch.harvest(min=15, timeout_s=30)
            assert len(done) == 15
            batch.cancel()
        rest = [item async for item in batch]
        assert len(rest) == 1
        assert {item.cookie for item in (*done, *rest)} == set(range(16))
        await batch.aclose()
        idle(ns)


async def tasks_share_a_namespace(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(32 * BLOCK) as reg:
        reg.view[:] = data = noise(22, 32 * BLOCK)

        async def one(i: int) -> None:
            part = reg[i * BLOCK :][:BLOCK]
            for turn in range(4):
                await ns.write(part, offset=(i * 4 + turn) * BLOCK)
                await ns.read(part, offset=(i * 4 + turn) * BLOCK)

        async with anyio.create_task_group() as group:
            for i in range(32):
                group.start_soon(one, i)
        assert reg.view == data
        assert ns.controller.statistics().commands == 256
        idle(ns)


BEHAVIOURS = (
    a_list_is_read_at_once,
    arrays_are_read_at_once,
    results_come_as_they_end,
    a_batch_is_harvested,
    a_long_batch_is_windowed,
    a_cancelled_batch_has_results,
    tasks_share_a_namespace,
)
