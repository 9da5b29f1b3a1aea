"""Opening an embedded controller with 16 queue pairs."""

from __future__ import annotations

import statistics
from time import perf_counter_ns

import aiougds
from bench.line import Line, most_line
from bench.stage import Stage, run_on

TIMES = 30
PAPER_MS = 42.0


def measure(stage: Stage) -> list[Line]:
    """Measure from the call to the controller, thread hop included."""
    return run_on("asyncio", _measure)


async def _measure() -> list[Line]:
    walls: list[float] = []
    for _ in range(TIMES):
        start = perf_counter_ns()
        async with aiougds.open_controller("emu:?size=64MiB", queues=16) as ctrl:
            walls.append((perf_counter_ns() - start) / 1e6)
            granted = ctrl.capabilities.queue_pairs
    return [
        most_line(
            "open an embedded controller with 16 queue pairs (peer: the paper's)",
            statistics.median(walls),
            5,
            "ms",
            f"{granted} pairs; best {min(walls):.2f} ms, worst {max(walls):.2f}",
            PAPER_MS,
        )
    ]
