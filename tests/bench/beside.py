"""Small reads beside a checkpoint: what classes are for.

The device is a model: 8 channels of 375 MB/s (3 GB/s in all) and 80 us a command, over
memory that was written before: a page's first write makes its copy ten times as slow,
and says nothing about a device. Its own copies take processor time, so a busy machine
shows in all three.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

import aiougds
from bench.line import Line
from bench.stage import Stage, loops, run_on

DEVICE = "emu:?size=1GiB&latency=80us&latency_per_kib=2730ns&channels=8&step=0"
ROUNDS = 15
ALONE = 2000
WRITERS = 4
PIECE = 16 << 20
WRITTEN = 1 << 30
PAGE = 4096


def measure(stage: Stage) -> list[Line]:
    """Measure the 99th percentile alone, with classes, and first in, first out."""
    lines: list[Line] = []
    for loop in loops():
        lines += run_on(loop, lambda loop=loop: compared(loop))
    return lines


def p99(taken: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(taken)[len(taken) * 99 // 100]


async def alone(ns: aiougds.Namespace, reg: aiougds.Registration) -> float:
    """Return the 99th percentile of reads with nothing beside, in us."""
    taken = [await timed(ns, reg, index) for index in range(ALONE)]
    return p99(taken)


async def timed(ns: aiougds.Namespace, reg: aiougds.Registration, index: int) -> float:
    """Return how long a read took, in us."""
    begin = time.perf_counter_ns()
    await ns.read(reg[:PAGE], offset=index % 1024 * PAGE, io_class="latency")
    return (time.perf_counter_ns() - begin) / 1e3


async def written_once(ns: aiougds.Namespace, reg: aiougds.Registration) -> None:
    """Write everything, so that the device has its memory."""
    for index in range(WRITTEN // PIECE):
        await ns.write(reg[PAGE:], offset=index * PIECE)


async def beside(
    ns: aiougds.Namespace, reg: aiougds.Registration
) -> tuple[float, float]:
    """Return the same beside 1 GiB of background writes, and their GB/s."""
    quiet = ns.using(io_class="background")
    left = iter(range(WRITTEN // PIECE))

    async def write() -> None:
        for index in left:
            await quiet.write(reg[PAGE:], offset=index * PIECE)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write()) for _ in range(WRITERS)]
        await asyncio.sleep(0)
        taken = []
        while not all(writer.done() for writer in writers):
            taken.append(await timed(ns, reg, len(taken)))
    rate = WRITTEN / (time.perf_counter() - begin) / 1e9
    await quiet.aclose()
    return p99(taken), rate


async def compared(loop: str) -> list[Line]:
    """Run the three by turns."""
    idle: list[float] = []
    fifo: list[float] = []
    classes: list[float] = []
    rates: dict[str, list[float]] = {"fifo": [], "classes": []}
    for _ in range(ROUNDS):
        for scheduling in ("classes", "fifo"):
            async with (
                aiougds.open(DEVICE, scheduling=scheduling) as ns,
                ns.allocate(PAGE + PIECE) as reg,
            ):
                await written_once(ns, reg)
                if scheduling == "classes":
                    idle.append(await alone(ns, reg))
                value, rate = await beside(ns, reg)
                (fifo if scheduling == "fifo" else classes).append(value)
                rates[scheduling].append(rate)
    gain = median(f / c for f, c in zip(fifo, classes, strict=True))
    above = median(c / i for c, i in zip(classes, idle, strict=True))
    note = (
        f"alone {median(idle):.0f} us, classes {median(classes):.0f}, fifo "
        f"{median(fifo):.0f}; writes {median(rates['classes']):.2f} GB/s with classes, "
        f"{median(rates['fifo']):.2f} without"
    )
    title = f"p99 of 4 KiB reads beside 1 GiB of background writes, {loop}"
    ours = median(classes)
    return [
        Line(f"{title}, fifo", ours, median(fifo), gain, ">= 5", gain >= 5, "us", note),
        Line(
            f"{title}, alone", ours, median(idle), 1 / above, "<= 1.5 of it",
            above <= 1.5, "us",
        ),
    ]  # fmt: skip
