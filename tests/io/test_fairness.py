"""A backlog delays nobody else: namespaces of a loop, and loops that share a queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest
from helpers.model import PAGE
from helpers.world import KIB, MIB, Opened, World

import aiougds
from aiougds import testing

# One command at a time at the device, and few in the queue: the rest waits in ours.
EMU = {"namespaces": "1:4MiB,2:4MiB,3:4MiB", "latency": "1ms", "channels": 1}
OPTIONS: dict[str, Any] = {"queues": 2, "depth": 8, "mode": "interrupt"}
MANY, FEW = 400, 20
LONG = "emu:?size=36MiB&threads=1&step=0&mdts=8"  # commands of 1 MiB
pytestmark = pytest.mark.few


async def backlog(
    ns: Opened, reg: Opened, went_on: Callable[[], Coroutine[Any, Any, None]]
) -> int:
    """Have many reads wait, do something, and return how many were over by then."""
    async with ns.batch(MANY) as batch:
        for i in range(MANY):
            batch.read(reg[:PAGE], offset=i % 1024 * PAGE)
        batch.submit()
        before = ns.controller.statistics().reads
        await went_on()
        after = ns.controller.statistics().reads
    return int(after - before)


async def some(ns: Opened, reg: Opened, count: int = FEW) -> None:
    """Read at once, as many tasks would."""
    async with anyio.create_task_group() as group:
        for i in range(count):
            group.start_soon(partial(ns.read, reg[:PAGE], offset=i * PAGE))


@pytest.mark.tasks
@pytest.mark.parametrize("scheduling", ["classes", "fifo"])
@pytest.mark.parametrize("io_class", ["normal", "latency"])
async def test_of_namespaces(
    world: World, io_class: aiougds.IoClass, scheduling: str
) -> None:
    """One with a backlog, and two that come later: each has its turns."""
    options = {**OPTIONS, "scheduling": scheduling, "io_class": io_class}
    async with world.open_controller(emu=EMU, **options) as ctrl:
        first, second, third = (ctrl.namespace(nsid) for nsid in (1, 2, 3))
        async with first.allocate(PAGE) as reg:

            async def others() -> None:
                async with anyio.create_task_group() as group:
                    group.start_soon(some, second, reg)
                    group.start_soon(some, third, reg)

            reads = await backlog(first, reg, others)
        for ns in (first, second, third):
            await ns.aclose()
    if scheduling == "fifo":
        assert reads > MANY - 16
    else:
        # Theirs, as many of the first, and what was in the queue.
        assert reads <= 3 * FEW + 3 * 8 + 40


@pytest.mark.core
@pytest.mark.parametrize("end", ["cancel", "reset", "deadline"])
@pytest.mark.parametrize("io_class", ["normal", "latency", "background"])
async def test_backlogs_that_are_given_up(
    world: World, io_class: aiougds.IoClass, end: str
) -> None:
    """More sources than there are lists for them; each operation ends once."""
    count = 20
    spaces = ",".join(f"{i + 1}:1MiB" for i in range(count))
    emu = {**EMU, "namespaces": spaces}
    options = {**OPTIONS, "io_class": io_class, "mode": world.mode}
    async with world.open_controller(emu=emu, **options) as ctrl:
        opened = [ctrl.namespace(i + 1) for i in range(count)]
        async with opened[0].allocate(count * PAGE) as reg:
            batches = [ns.batch(32) for ns in opened]
            for k, batch in enumerate(batches):
                # What was given up keeps its own bytes busy.
                for i in range(32):
                    batch.read(reg[k * PAGE : (k + 1) * PAGE], offset=i * PAGE)
                batch.submit(timeout_s=0.05 if end == "deadline" else None)
            if end == "reset":
                await ctrl.reset()
            elif end == "cancel":
                for batch in batches[::2]:
                    batch.cancel()
            for batch in batches:
                items = []
                while len(items) < 32:
                    items += await batch.harvest(1)
                assert not batch.pending
                if end == "cancel" and batch in batches[1::2]:
                    assert [item.result for item in items] == [PAGE] * 32
                await batch.aclose()
            # The device answers what was given up, a millisecond each.
            until = time.monotonic() + 20
            while ctrl.quarantine and time.monotonic() < until:
                await opened[-1].flush()
            async with opened[0].allocate(PAGE) as other:
                assert await opened[-1].read(other, offset=0) == PAGE
        for ns in opened:
            await ns.aclose()


def loop_of_its_own(work: Callable[[], Coroutine[Any, Any, None]]) -> threading.Thread:
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    return thread


@pytest.mark.parametrize("nbytes", [PAGE, 256 * KIB])
@pytest.mark.parametrize("io_class", ["normal", "background"])
def test_of_loops_that_share_a_queue_pair(
    nbytes: int, io_class: aiougds.IoClass
) -> None:
    """There is one pair; whoever comes later waits for a turn, not for the backlog."""
    many, few = (MANY, FEW) if nbytes == PAGE else (MANY, 4)
    address = "emu:?size=64MiB&latency=1ms&channels=1"
    start, counts = threading.Event(), []

    async def first() -> None:
        async with ns.batch(many) as batch:
            for i in range(many):
                batch.read(reg[:nbytes], offset=i % 64 * nbytes)
            batch.submit()
            start.set()
            await asyncio.to_thread(later.join)

    async def second() -> None:
        await asyncio.to_thread(start.wait)
        async with ns.batch(few) as batch:
            for i in range(few):
                batch.read(reg[nbytes:], offset=i * nbytes)
            before = ns.controller.statistics().reads
            batch.submit()
            await batch.harvest(few)
            counts.append(ns.controller.statistics().reads - before)

    opened = aiougds.blocking.open(address, queues=1, batch_depth=8, io_class=io_class)
    with opened as blocking, blocking.allocate(2 * nbytes) as reg:
        ns = blocking._ns
        later = loop_of_its_own(second)
        loop_of_its_own(first).join()
        assert counts[0] <= 2 * few + 3 * 8 + 40


def test_a_simulated_device_looks_for_commands_between_long_ones() -> None:
    """What is due does not keep it from new ones, whose time runs from then on."""

    async def overtaken() -> bool:
        ended: list[str] = []
        async with (
            aiougds.open(LONG, scheduling="fifo", mode="interrupt") as ns,
            ns.allocate(MIB) as reg,
            ns.allocate(PAGE) as small,
        ):
            held = testing.inject(ns, testing.Fault.hold("write"))

            async def write(index: int) -> None:
                await ns.write(reg, offset=index * MIB)
                ended.append("write")

            async with asyncio.TaskGroup() as group:
                for index in range(24):
                    group.create_task(write(index))
                while held.hits < 24:
                    await asyncio.sleep(0.001)
                held.clear()
                await ns.read(small, offset=32 * MIB)
                ended.append("read")
        return ended.index("read") < 16

    async def ever() -> bool:
        for _ in range(30):  # a busy machine may have us come too late
            if await overtaken():
                return True
        return False

    assert asyncio.run(ever())
