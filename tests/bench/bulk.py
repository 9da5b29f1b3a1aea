"""Bandwidth of 1 MiB reads from the page cache against ``preadv`` in C."""

from __future__ import annotations

import asyncio
import ctypes
import os
from functools import partial
from time import perf_counter_ns

import aiougds
from bench.line import Line, async_duel
from bench.stage import MIB, Stage, checked, loops, run_on

DEPTH = 8
ROUNDS = 15


def measure(stage: Stage) -> list[Line]:
    """Measure on each loop."""
    stage.warm()
    return [run_on(loop, partial(on_loop, stage, loop)) for loop in loops()]


async def on_loop(stage: Stage, loop: str) -> Line:
    """Eight tasks read the whole file; as many C threads as the device has do so."""
    # One core is the loop's: a third thread on two cores would measure the scheduler.
    threads = max(1, min(4, (os.cpu_count() or 1) - 1))
    fd = os.open(stage.path, os.O_RDONLY)
    async with (
        aiougds.open(f"emu:{stage.path}?threads={threads}") as ns,
        ns.allocate(DEPTH * MIB) as memory,
        ns.allocate(DEPTH * MIB) as other,
    ):
        gib = stage.nbytes / (1 << 30)

        async def reader(slot: int) -> None:
            part = memory[slot * MIB : (slot + 1) * MIB]
            for offset in range(slot * MIB, stage.nbytes, DEPTH * MIB):
                await ns.read(part, offset=offset)

        async def ours() -> float:
            start = perf_counter_ns()
            await asyncio.gather(*map(reader, range(DEPTH)))
            return (perf_counter_ns() - start) / 1e9 / gib

        place = ctypes.addressof(ctypes.c_char.from_buffer(other.view))

        async def loop_in_c() -> float:
            total = ctypes.c_int64(stage.nbytes)
            spent = stage.helper.floor_preadv(
                fd, total, MIB, DEPTH, threads, ctypes.c_void_p(place)
            )
            return checked(spent) / 1e9 / gib

        fight = await async_duel({"ours": ours, "preadv": loop_in_c}, ROUNDS)
    os.close(fd)
    ratio = fight.ratio["preadv"]
    return Line(
        f"1 MiB reads, page cache, depth {DEPTH} (peer: C preadv), {loop}",
        1 / fight.median["ours"],
        1 / fight.median["preadv"],
        ratio,
        "at least the peer's",
        ratio >= 1,
        "GiB/s",
        f"{threads} device thread(s), and as many of the peer",
    )
