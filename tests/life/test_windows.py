"""What goes through a region or namespace, and ends, is closed or left in any order."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, Clock, pattern, until

import aiougds
from aiougds import (
    ClosedError,
    ControllerBusyError,
    OperationTimeoutError,
    RangeBusyError,
    blocking,
)
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.anyio, pytest.mark.few]


async def test_a_batch_keeps_the_region_that_it_came_from(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as ns, ns.allocate(BLOCK) as reg:
        reg.view[:] = data
        async with ns.region(2 * BLOCK, BLOCK).batch(1) as batch:
            gc.collect()
            others = [ns.region(8 * BLOCK, BLOCK, readonly=True) for _ in range(8)]
            batch.write(reg, offset=0)
            batch.submit()
            assert (await batch.harvest())[0].result == BLOCK
        pairs = [(reg[:], 0)]
        async with ns.region(2 * BLOCK, BLOCK).as_completed(pairs, op="write") as done:
            gc.collect()
            others += [ns.region(8 * BLOCK, BLOCK, readonly=True) for _ in range(8)]
            assert [pair async for pair in done] == [(0, BLOCK)]
        reg.view[:] = bytes(BLOCK)
        await ns.read(reg, offset=2 * BLOCK)
        assert reg.view == data


async def test_a_batch_of_a_closed_region_is_refused(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        region = ns.region(0, BLOCK)
        batch = region.batch(2)
        batch.read(reg, offset=0)
        batch.submit()
        await region.aclose()  # once nothing is in flight
        for call in (
            lambda: batch.read(reg, offset=0),
            batch.flush,
            batch.submit,
        ):
            with pytest.raises(ClosedError, match="closed"):
                call()
        assert (await batch.harvest())[0].result == BLOCK
        await batch.aclose()
        with pytest.raises(ClosedError, match="the batch is closed"):
            batch.flush()


async def test_closing_a_region_never_waits_for_a_quarantine(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        region = ns.region(0, BLOCK)
        with inject(ns, Fault.hold("read")):
            with pytest.raises(OperationTimeoutError):
                await region.read(reg, offset=0, timeout_s=0.2)
            await until(lambda: ns.controller.statistics().inflight == 1)
            clock = Clock()
            with pytest.raises(ControllerBusyError):
                await region.aclose()
            assert clock.within(0, 1)
            assert not region.closed
        await until(lambda: not ns.controller.quarantine)
        await region.aclose(timeout_s=0)


async def test_unregistered_memory_stays_busy_too(live: Live) -> None:
    """The next pin would be another mapping, but the bytes are the same."""
    memory = bytearray(2 * BLOCK)
    half = memoryview(memory)[:BLOCK]
    async with live() as ns:
        with inject(ns, Fault.hold("read")):
            with pytest.raises(OperationTimeoutError):
                await ns.read(half, offset=0, timeout_s=0.2)
            await until(lambda: ns.controller.statistics().inflight == 1)
            with pytest.raises(RangeBusyError, match="quarantine"):
                await ns.write(memory, offset=0)
            assert await ns.write(memoryview(memory)[BLOCK:], offset=0) == BLOCK
        await until(lambda: not ns.controller.quarantine)
        assert await ns.write(memory, offset=0) == 2 * BLOCK


async def test_an_old_cancel_is_not_for_what_is_submitted_later(live: Live) -> None:
    async with (
        live(cancel_grace_s=0.01) as ns,
        ns.allocate(2 * BLOCK) as reg,
        ns.batch(2) as batch,
    ):
        batch.read(reg[:BLOCK], offset=0, cookie="old")
        batch.submit()
        await until(lambda: reg.inflight == 0)
        batch.cancel()  # nothing is in flight; its result stays to be harvested
        with inject(ns, Fault.hold("read")):
            batch.read(reg[BLOCK:], offset=0, cookie="new")
            batch.submit()
            assert [i.cookie for i in await batch.harvest(2, timeout_s=0.1)] == ["old"]
        (item,) = await batch.harvest()
        assert (item.cookie, item.result) == ("new", BLOCK)


async def test_cancel_of_a_closed_batch_is_not_for_its_successor(live: Live) -> None:
    async with live(cancel_grace_s=0.01) as ns, ns.allocate(BLOCK) as reg:
        old = ns.batch(4)
        old.read(reg, offset=0)
        old.submit()
        await old.harvest()
        await old.aclose()
        async with ns.batch(4) as batch:
            with inject(ns, Fault.hold("read")):
                batch.read(reg, offset=0)
                batch.submit()
                old.cancel()
                assert await batch.harvest(timeout_s=0.1) == []
            assert (await batch.harvest())[0].result == BLOCK


async def quarantined(ns: aiougds.Namespace, reg: aiougds.Registration) -> None:
    with pytest.raises(OperationTimeoutError):
        await ns.read(reg[:BLOCK], offset=0, timeout_s=0.2)
    await until(lambda: ns.controller.statistics().inflight >= 1)


async def test_left_and_then_closed_by_force(
    address: Callable[[], str], mode: aiougds.Mode
) -> None:
    """It is freed once: whoever opens next does not free it again."""
    ns = await aiougds.open(address(), mode=mode)
    reg = ns.allocate(BLOCK)
    inject(ns, Fault.hold("read"))
    await quarantined(ns, reg)
    with pytest.raises(ControllerBusyError):
        await ns.__aexit__(None, None, None)
    # Without a wait: the device is stopped first, and then nothing is in the way.
    await ns.controller.aclose(timeout_s=0, force=True)
    await reg.aclose()
    for _ in range(3):
        await (await aiougds.open(address(), mode=mode)).aclose()


async def test_left_while_others_wait(
    address: Callable[[], str], mode: aiougds.Mode
) -> None:
    """What lingers is not freed under an operation that somebody awaits."""
    ns = await aiougds.open(address(), mode=mode)
    reg = ns.allocate(2 * BLOCK)
    held = inject(ns, Fault.hold("read"))
    results: list[int] = []

    async def read() -> None:
        results.append(await ns.read(reg[BLOCK:], offset=0))

    async with anyio.create_task_group() as group:
        await quarantined(ns, reg)
        group.start_soon(read)
        await until(lambda: held.hits == 2)
        with pytest.raises(ControllerBusyError):
            await ns.__aexit__(None, None, None)
        await (await aiougds.open(address(), mode=mode)).aclose()
        held.clear()
    assert results == [BLOCK]
    await until(lambda: not ns.controller.quarantine)
    await reg.aclose()
    await ns.controller.aclose()


def test_a_thread_sees_the_end_of_a_quarantine_without_memory() -> None:
    """No loop takes what is late: looking does."""
    with blocking.open("emu:?size=1MiB") as ns:
        with inject(ns, Fault.hold("flush")), pytest.raises(OperationTimeoutError):
            ns.flush(timeout_s=0.02)
        deadline = time.monotonic() + 30
        while ns.controller.quarantine:
            assert time.monotonic() < deadline
            os.sched_yield()
