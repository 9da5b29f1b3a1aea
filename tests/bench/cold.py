"""A cold cache: how long one read keeps the loop from turning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from functools import partial
from time import perf_counter_ns

import aiougds
from bench.line import Line, most_line
from bench.stage import Stage, loops, preemptions, run_on

READS = 400
TURNS = 4000


def measure(stage: Stage) -> list[Line]:
    """Measure on each loop, each time with a cache that was dropped just before."""
    return [run_on(loop, partial(on_loop, stage, loop)) for loop in loops()]


class Timed:
    """Awaits something and keeps the longest stretch that it ran without suspending.

    A stretch in which the kernel took the core for another program is kept apart: a
    read that blocked would have given the core up, which counts.
    """

    def __init__(self) -> None:
        self.longest_ns = 0
        self.preempted = 0
        self.longest_preempted_ns = 0

    def add(self, spent_ns: int, switches: int) -> None:
        """Count one stretch."""
        if switches:
            self.preempted += 1
            self.longest_preempted_ns = max(self.longest_preempted_ns, spent_ns)
        else:
            self.longest_ns = max(self.longest_ns, spent_ns)

    def __call__(self, work: Awaitable[int]) -> _Steps:
        return _Steps(self, work)


class _Steps:
    def __init__(self, timed: Timed, work: Awaitable[int]) -> None:
        self._timed = timed
        self._work = work

    def __await__(self) -> Generator[object, None, int]:
        steps = self._work.__await__()
        while True:
            before = preemptions()
            start = perf_counter_ns()
            try:
                waited_for = next(steps)
            except StopIteration as stop:
                result: int = stop.value
                return result
            finally:
                spent = perf_counter_ns() - start
                self._timed.add(spent, preemptions() - before)
            yield waited_for


async def longest_gap(until: asyncio.Event | None, turns: int) -> int:
    """Turn the loop, and return the longest time between two turns."""
    longest, last = 0, perf_counter_ns()
    while turns > 0 and not (until and until.is_set()):
        await asyncio.sleep(0)
        now = perf_counter_ns()
        longest = max(longest, now - last)
        last = now
        turns -= until is None
    return longest


async def on_loop(stage: Stage, loop: str) -> Line:
    """Read scattered blocks that are not in the cache while the loop turns."""
    stayed = stage.chill()
    timed, over = Timed(), asyncio.Event()
    async with (
        aiougds.open(f"emu:{stage.path}") as ns,
        ns.allocate(4096) as memory,
    ):
        quiet = await longest_gap(None, TURNS)
        turning = asyncio.ensure_future(longest_gap(over, 1))
        start = perf_counter_ns()
        for offset in stage.offsets(READS, seed=len(loop)):
            await timed(ns.read(memory, offset=offset))
        mean = (perf_counter_ns() - start) / READS / 1e6
        over.set()
        gap = await turning
    note = (
        f"longest gap between turns {gap / 1e6:.2f} ms, without reads "
        f"{quiet / 1e6:.2f} ms; mean read {mean:.3f} ms"
    )
    if timed.preempted:
        note += (
            f"; {timed.preempted} stretches apart in which other programs ran, the "
            f"longest {timed.longest_preempted_ns / 1e6:.2f} ms"
        )
    if stayed > 0.05:
        note += f"; {stayed:.0%} of the file stayed cached: not a cold measurement"
    return most_line(
        f"cold cache: longest stretch of a read on the loop, {loop}",
        timed.longest_ns / 1e6,
        1,
        "ms",
        note,
    )
