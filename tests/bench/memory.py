"""Python memory of 10 000 operations in flight, beyond the tasks that await them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial

import aiougds
from aiougds import testing
from bench.line import Line, most_line
from bench.stage import PAGE, Stage, loops, run_on

COUNT = 10_000


def measure(stage: Stage) -> list[Line]:
    """Measure on each loop."""
    return [run_on(loop, partial(on_loop, loop)) for loop in loops()]


async def held(
    start: Callable[[], Awaitable[object]], release: Callable[[], object]
) -> int:
    """Return the bytes that ``COUNT`` tasks hold while all of them wait."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.ensure_future(start()) for _ in range(COUNT)]
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    release()
    await asyncio.gather(*tasks)
    return taken


async def on_loop(loop: str) -> Line:
    """Hold every read at the device, and compare with tasks that await a future."""
    async with (
        aiougds.open("emu:?size=1GiB&step=0", mode="interrupt") as ns,
        ns.allocate(PAGE) as memory,
    ):
        await ns.read(memory, offset=0)
        gate = asyncio.get_running_loop().create_future()

        async def alone() -> object:
            return await gate

        async def read() -> object:
            return await ns.read(memory[0:PAGE], offset=0)

        tracemalloc.start()
        tasks = await held(alone, lambda: gate.set_result(None))
        fault = testing.inject(ns, testing.Fault.hold("read"))
        both = await held(read, fault.clear)
        tracemalloc.stop()
    each = (both - tasks) / COUNT
    note = f"{both / COUNT:.0f} bytes with the task, {tasks / COUNT:.0f} for it alone"
    return most_line(
        f"Python memory of an operation in flight, of {COUNT}, {loop}",
        each,
        1024,
        "bytes",
        note,
    )
