"""``read_many`` of 128 x 4 KiB: the engine alone, and against thread hops."""

from __future__ import annotations

import asyncio
import os
from time import perf_counter_ns

import aiougds
from bench.line import Duel, Line, async_duel, most_line, ratio_line
from bench.reads import Contestant
from bench.stage import PAGE, Stage, int64s, loops, run_on

ITEMS = 128
CALLS = 40
ROUNDS = 25
NO_DATA = "emu:?size=1GiB&data=none"
BARS = {"list": 0.8, "array": 0.1}


def measure(stage: Stage) -> list[Line]:
    """Measure both forms on both devices."""
    stage.warm()
    lines: list[Line] = []
    for loop in loops():
        fight = run_on(loop, lambda: _duel(NO_DATA, None))
        for form, bar in BARS.items():
            title = f"read_many {ITEMS} x 4 KiB, no data, {form}, per item, {loop}"
            lines.append(most_line(title, fight.median[form], bar, "us"))
    for loop in loops():
        fight = run_on(loop, lambda: _duel(f"emu:{stage.path}", stage))
        title = f"read_many {ITEMS} x 4 KiB cached, per item, gather(to_thread), {loop}"
        note = ", ".join(f"{name} {value:.2f}" for name, value in fight.median.items())
        lines.append(ratio_line(title, fight, "gather", 10, note=note))
    return lines


async def _duel(address: str, stage: Stage | None) -> Duel:
    async with (
        aiougds.open(address) as ns,
        ns.allocate(ITEMS * PAGE) as memory,
    ):
        offsets = (
            stage.offsets(ITEMS) if stage else [k * PAGE * 3 for k in range(ITEMS)]
        )
        words = int64s(offsets)
        pairs = [
            (memory[k * PAGE : (k + 1) * PAGE], offset)
            for k, offset in enumerate(offsets)
        ]

        async def listed() -> float:
            start = perf_counter_ns()
            for _ in range(CALLS):
                await ns.read_many(pairs)
            return (perf_counter_ns() - start) / CALLS / ITEMS / 1000

        async def arrays() -> float:
            start = perf_counter_ns()
            for _ in range(CALLS):
                await ns.read_many(memory, offsets=words, nbytes=PAGE)
            return (perf_counter_ns() - start) / CALLS / ITEMS / 1000

        found: dict[str, Contestant] = {"list": listed, "array": arrays}
        if stage is None:
            return await async_duel(found, ROUNDS)
        fd = os.open(stage.path, os.O_RDONLY)
        bufs = [bytearray(PAGE) for _ in offsets]

        async def gathered() -> float:
            start = perf_counter_ns()
            await asyncio.gather(
                *(
                    asyncio.to_thread(os.preadv, fd, [buf], offset)
                    for buf, offset in zip(bufs, offsets, strict=True)
                )
            )
            return (perf_counter_ns() - start) / ITEMS / 1000

        found["gather"] = gathered
        try:
            return await async_duel(found, ROUNDS)
        finally:
            os.close(fd)
