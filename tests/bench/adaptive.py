"""Adaptive beside poll and interrupt, over sizes, depths and device latencies.

Processor time is the process's without the embedded controller's own threads.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import aiougds
from aiougds.cli._suites.turns import device_clocks, processor_ns
from bench.line import Line, no_gc, turns
from bench.stage import Stage, loops, run_on, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final[tuple[aiougds.Mode, ...]] = ("adaptive", "poll", "interrupt")
LATENCIES = {
    "10us": 400,
    "80us": 200,
    "2ms": 8,
}  # and how many reads a round, one by one
SIZES = (4096, 65536, 1 << 20)
DEPTHS = (1, 8, 32)
ROUNDS = 15
SLOWER, DEARER, AS_GOOD = 1.1, 1.2, 1.05


class Cost(NamedTuple):
    """Of a read: how long it is awaited, and processor time; us."""

    wait: float
    cpu: float


async def cost(
    ns: aiougds.Namespace, reg: aiougds.Registration, depth: int, count: int
) -> Cost:
    """Run ``depth`` tasks that read one by one."""
    size = reg.nbytes // depth
    taken: list[int] = []

    async def reader(index: int) -> None:
        part = reg[index * size : (index + 1) * size]
        for _ in range(max(2, count // depth)):
            begin = time.perf_counter_ns()
            await ns.read(part, offset=index * size)
            taken.append(time.perf_counter_ns() - begin)

    device = device_clocks()
    cpu = processor_ns(device)
    async with asyncio.TaskGroup() as group:
        for index in range(depth):
            group.create_task(reader(index))
    return Cost(median(taken) / 1e3, (processor_ns(device) - cpu) / 1e3 / len(taken))


@contextmanager
def device_apart() -> Iterator[None]:
    """Keep the device's threads off this thread's core.

    On the same one they would take turns, and the device would be slower by tens of
    microseconds than it is said to be.
    """
    cores = sorted(os.sched_getaffinity(0))
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("ugds-emu"):
            os.sched_setaffinity(int(task.name), {cores[-1]})
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield
    finally:
        spread(set(cores))


async def cell(latency: str, size: int, depth: int) -> dict[str, Cost]:
    """Compare the three by turns; medians."""
    address = f"emu:?size=64MiB&latency={latency}&step=0&threads=1&data=none"
    samples: dict[str, list[Cost]] = {kind: [] for kind in KINDS}
    # One controller for all three: where its threads happen to be is the same for all.
    async with aiougds.open(address) as ns, ns.allocate(size * depth) as reg:
        handles: dict[str, aiougds.Namespace] = {KINDS[0]: ns}
        for mode in KINDS[1:]:
            handles[mode] = ns.using(mode=mode)
        for handle in handles.values():
            await cost(handle, reg, depth, LATENCIES[latency])
        with no_gc(), device_apart():
            for kind in turns(list(KINDS), ROUNDS):
                found = await cost(handles[kind], reg, depth, LATENCIES[latency])
                samples[kind].append(found)
    return {
        kind: Cost(median(c.wait for c in costs), median(c.cpu for c in costs))
        for kind, costs in samples.items()
    }


async def grid(loop: str) -> list[Line]:
    """Return the worst of all cells, in latency and in processor time."""
    waits: list[tuple[float, str]] = []
    cpus: list[tuple[float, str]] = [(1.0, "none")]
    for latency, size, depth in product(LATENCIES, SIZES, DEPTHS):
        found = await cell(latency, size, depth)
        ours, poll, interrupt = (found[kind] for kind in KINDS)
        best = min(poll.wait, interrupt.wait)
        name = f"{latency}, {size >> 10} KiB, depth {depth}"
        waits.append((ours.wait / best, f"{name}: {ours.wait:.0f} us for {best:.0f}"))
        if interrupt.wait <= AS_GOOD * min(best, ours.wait):
            what = f"{name}: {ours.cpu:.1f} us for {interrupt.cpu:.1f}"
            cpus.append((ours.cpu / interrupt.cpu, what))
    lines = []
    for title, found_in, most in (
        ("latency, of the better of poll and interrupt", waits, SLOWER),
        ("processor time, of interrupt's where that is as good", cpus, DEARER),
    ):
        worst = max(found_in)
        over = sum(ratio > most for ratio, _name in found_in)
        note = f"{over} of {len(found_in)} over it; the worst: {worst[1]}"
        lines.append(
            Line(
                f"adaptive, {loop}: {title}", worst[0], None, None, f"<= {most:g}",
                not over, "", note,
            )
        )  # fmt: skip
    return lines


def measure(stage: Stage) -> list[Line]:
    """Measure the grid on one loop: they differ by a constant."""
    loop = loops()[-1]
    return run_on(loop, lambda: grid(loop))
