"""Interrupts that are lost, early or too many; completions that are late."""

from __future__ import annotations

import time

import anyio
import pytest
from life.conftest import Case, Live
from life.live import BLOCK, Clock, pattern, until

from aiougds.testing import Fault, counters, inject

pytestmark = pytest.mark.anyio
PATIENCE_S = 30.0


@pytest.mark.few
async def test_lost_interrupt_is_recovered_and_counted(live: Live, case: Case) -> None:
    data = pattern(BLOCK)
    async with live("latency=1ms") as ns, ns.allocate(BLOCK) as reg:
        await ns.write(data, offset=0)
        before = ns.controller.statistics().stragglers
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with inject(ns, Fault.lose_interrupt("read", count=1)) as lost:
                clock = Clock()
                assert await ns.read(reg, offset=0) == BLOCK
                assert lost.hits == 1
                assert clock.within(0, 3)
            assert reg.view[:] == data
            # An owner that is slow to sleep sees it by its last look before.
            found = ns.controller.statistics().stragglers - before
            if case.mode != "interrupt" or found:
                break
        if case.mode == "interrupt":  # nobody else looks
            assert found == 1
        assert ns.controller.statistics().timeouts == 0
        assert ns.controller.state == "live"


@pytest.mark.few
async def test_all_interrupts_of_a_batch_are_lost(live: Live) -> None:
    async with live() as ns, ns.allocate(16 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(16)]
        with inject(ns, Fault.lose_interrupt("read")) as lost:
            assert await ns.read_many(pairs) == [BLOCK] * 16
            assert lost.hits == 16
        assert await ns.read_many(pairs) == [BLOCK] * 16


async def test_a_lost_interrupt_is_found_with_the_next(live: Live) -> None:
    """Whatever completes later wakes the owner, who then takes both."""
    async with live() as ns, ns.allocate(2 * BLOCK) as reg:
        results: list[int] = []

        async def read(slot: int) -> None:
            part = reg[slot * BLOCK : (slot + 1) * BLOCK]
            results.append(await ns.read(part, offset=slot * BLOCK))

        with inject(ns, Fault.lose_interrupt("read", count=1)) as lost:
            async with anyio.create_task_group() as group:
                group.start_soon(read, 0)
                await until(lambda: lost.hits == 1)
                group.start_soon(read, 1)
        assert results == [BLOCK, BLOCK]


async def test_spurious_interrupts(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault("spurious_interrupt", "read")) as extra:
            for _ in range(50):
                assert await ns.read(reg, offset=0) == BLOCK
            assert extra.hits == 50
        assert ns.controller.statistics().inflight == 0


async def test_interrupt_before_its_completion(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        early = Fault("early_interrupt", "read", count=1, delay_s=0.02)
        with inject(ns, early) as injected:
            clock = Clock()
            assert await ns.read(reg, offset=0) == BLOCK
            assert injected.hits == 1
            assert clock.within(0.02, 3)


async def test_delays_pass_and_keep_no_order(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        order: list[int] = []

        async def read(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            assert await ns.read(part, offset=i * BLOCK) == BLOCK
            order.append(i)

        with (
            inject(ns, Fault.delay(0.30, "read").on(slba=0, nlb=1)),
            inject(ns, Fault.delay(0.15, "read").on(slba=1, nlb=1)),
        ):
            clock = Clock()
            async with anyio.create_task_group() as group:
                for i in range(8):
                    group.start_soon(read, i)
            assert clock.within(0.30, 0.7)
        assert order[-2:] == [1, 0]
        assert sorted(order) == list(range(8))


@pytest.mark.few
async def test_a_latency_model_is_waited_out(live: Live) -> None:
    async with live("latency=5ms&jitter=1ms&seed=7") as ns, ns.allocate(BLOCK) as reg:
        clock = Clock()
        for _ in range(10):
            assert await ns.read(reg, offset=0) == BLOCK
        assert clock.within(0.04, 0.5)


async def test_wake_ups_are_armed_not_taken(live: Live, case: Case) -> None:
    """One at most for each read; none where it was served while its owner looked."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        for _ in range(200):
            await ns.read(reg, offset=0)
        stats, seen = ns.controller.statistics(), counters(ns)
        assert stats.wakeups <= stats.reads == 200
        if case == ("asyncio", "adaptive", 1):
            assert stats.inline_completions >= 180
            assert stats.wakeups <= stats.reads - stats.inline_completions
            assert seen.stepped >= 150
        if not case.step:
            assert seen.stepped == 0
