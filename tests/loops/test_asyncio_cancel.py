"""What asyncio does to tasks: cancels them once, twice, in groups, by timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from life.live import BLOCK, Clock, live, pattern, until

from aiougds import Namespace, Registration
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.asyncio
Pair = tuple[Namespace, Registration]


@pytest_asyncio.fixture(params=["adaptive", "interrupt", "poll"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with live(mode=request.param) as ns, ns.allocate(16 * BLOCK) as reg:
        await ns.write(pattern(16 * BLOCK), offset=0)
        yield ns, reg


async def test_cancel_waits_for_the_completion(opened: Pair) -> None:
    ns, reg = opened
    with inject(ns, Fault.hold("read", count=1)) as held:
        task = asyncio.create_task(ns.read(reg, offset=0))
        await until(lambda: held.hits == 1)
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        assert reg.inflight == 1
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reg.inflight == 0
    assert reg.view[:] == pattern(16 * BLOCK)  # the device had all the time it needed


async def test_repeated_cancels_change_nothing(opened: Pair) -> None:
    ns, reg = opened
    with inject(ns, Fault.hold("read", count=1)) as held:
        task = asyncio.create_task(ns.read(reg, offset=0))
        await until(lambda: held.hits == 1)
        for _ in range(20):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            assert reg.inflight == 1
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reg.inflight == 0
    assert ns.controller.statistics().quarantined == 0


async def test_cancel_and_completion_at_once(opened: Pair) -> None:
    """Whichever comes first, the memory is let go of when the task has ended."""
    ns, reg = opened
    ends = {"cancelled": 0, "done": 0}
    for turn in range(60):
        task = asyncio.create_task(ns.read(reg[:BLOCK], offset=0, mode="interrupt"))
        for _ in range(turn % 6):
            await asyncio.sleep(0)
        task.cancel()
        try:
            assert await task == BLOCK
            ends["done"] += 1
        except asyncio.CancelledError:
            ends["cancelled"] += 1
        assert reg.inflight == 0
    assert ends["cancelled"] > 0


async def test_timeout_blocks(opened: Pair) -> None:
    ns, reg = opened
    with inject(ns, Fault.delay(0.1, "read", count=1)):
        clock = Clock()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await ns.read(reg, offset=0)
        assert clock.within(0.1, 0.9)
    assert reg.inflight == 0
    with inject(ns, Fault.delay(0.1, "read", count=1)), pytest.raises(TimeoutError):
        await asyncio.wait_for(ns.read(reg, offset=0), 0.02)
    assert reg.inflight == 0
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_nested_timeouts_both_count(opened: Pair) -> None:
    """The outer one runs out while the inner one waits for the device."""
    ns, reg = opened
    with inject(ns, Fault.delay(0.15, "read", count=1)):
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(0.06) as outer:
                async with asyncio.timeout(0.02) as inner:
                    await ns.read(reg, offset=0)
        assert inner.expired()
        assert outer.expired()
    assert reg.inflight == 0
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_task_group_failure(opened: Pair) -> None:
    ns, reg = opened
    tasks: list[asyncio.Task[int]] = []
    with inject(ns, Fault.hold("read")) as held:

        async def release() -> None:
            await until(lambda: held.hits == 16)
            held.clear()

        releasing: list[asyncio.Task[None]] = []

        async def fail() -> None:
            await until(lambda: held.hits == 16)
            releasing.append(asyncio.create_task(release()))
            raise LookupError("one of the tasks")

        with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                for i in range(16):
                    part = reg[i * BLOCK : (i + 1) * BLOCK]
                    tasks.append(group.create_task(ns.read(part, offset=i * BLOCK)))
                group.create_task(fail())
        await releasing[0]
    assert [type(error) for error in failed.value.exceptions] == [LookupError]
    assert all(task.cancelled() for task in tasks)
    assert reg.inflight == 0


async def test_gather_cancelled(opened: Pair) -> None:
    ns, reg = opened
    with inject(ns, Fault.hold("read").on(skip=8)) as held:
        work = [
            ns.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK)
            for i in range(16)
        ]
        group = asyncio.gather(*work)
        await until(lambda: held.hits == 8)
        group.cancel()
    with pytest.raises(asyncio.CancelledError):
        await group
    await until(lambda: reg.inflight == 0)
    assert await ns.read(reg, offset=0) == 16 * BLOCK


async def test_shield_lets_it_finish(opened: Pair) -> None:
    ns, reg = opened
    with inject(ns, Fault.hold("read", count=1)) as held:
        read = asyncio.create_task(ns.read(reg, offset=0))
        waiter = asyncio.create_task(_shielded(read))
        await until(lambda: held.hits == 1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not read.done()
    assert await read == 16 * BLOCK


async def _shielded(task: asyncio.Task[int]) -> int:
    return await asyncio.shield(task)


async def test_task_cancelled_before_its_first_step(opened: Pair) -> None:
    ns, reg = opened
    before = ns.controller.statistics().commands
    task = asyncio.create_task(ns.read(reg, offset=0))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ns.controller.statistics().commands == before


async def test_reads_are_fair_to_the_loop(opened: Pair) -> None:
    """Reads that end at once still let others run."""
    ns, reg = opened
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    for _ in range(2000):
        await ns.read(reg[:BLOCK], offset=0)
    ticker.cancel()
    assert ticks >= 2000 // 64 - 1


async def test_endless_reads_can_be_cancelled(opened: Pair) -> None:
    ns, reg = opened

    async def forever() -> None:
        while True:
            await ns.read(reg[:BLOCK], offset=0)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await forever()
    assert reg.inflight == 0
