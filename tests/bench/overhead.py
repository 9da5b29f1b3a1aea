"""What the await adds to the C call, when the read completes inside it."""

from __future__ import annotations

import ctypes
from time import perf_counter_ns

import aiougds
from aiougds._ffi import lib
from bench.line import Duel, Line, async_duel, most_line
from bench.native import Raw, function
from bench.stage import PAGE, Stage, at, checked, int64s, loops, run_on

COUNT = 2000
ROUNDS = 25


def measure(stage: Stage) -> list[Line]:
    """Measure on each loop; the C time is of a C loop around the same calls."""
    stage.warm()
    return [on_loop(stage, loop) for loop in loops()]


def on_loop(stage: Stage, loop: str) -> Line:
    """Compare await, call from Python and call from C in turns."""
    fight = run_on(loop, lambda: _duel(stage))
    c, call, ours = (fight.median[name] for name in ("c", "call", "await"))
    return most_line(
        f"await above the C call, inline completion, {loop}",
        ours - c,
        1.5,
        "us",
        f"await {ours:.2f} us, the call from Python {call:.2f}, from C {c:.2f}",
    )


async def _duel(stage: Stage) -> Duel:
    offsets = stage.offsets(COUNT)
    where = int64s(offsets)
    async with (
        aiougds.open(f"emu:{stage.path}") as ns,
        ns.allocate(PAGE) as memory,
    ):
        part = memory[0:PAGE]
        await ns.read(part, offset=0)
        raw = Raw(ns, memory)
        rw, op = lib.ugds_rw, lib.UGDS_OP_READ

        async def from_c() -> float:
            chan, space, handle = raw.args
            spent = stage.helper.loop_rw(
                function("ugds_rw"),
                function("ugds_reap"),
                chan,
                space,
                handle,
                ctypes.c_uint64(PAGE),
                at(where),
                COUNT,
                op,
            )
            return checked(spent) / COUNT / 1000

        async def from_python() -> float:
            chan, space, handle = raw.chan, raw.space, raw.handle
            start = perf_counter_ns()
            for offset in offsets:
                rw(chan, space, handle, 0, PAGE, offset, op)
            return (perf_counter_ns() - start) / COUNT / 1000

        async def awaited() -> float:
            read = ns.read
            start = perf_counter_ns()
            for offset in offsets:
                await read(part, offset=offset)
            return (perf_counter_ns() - start) / COUNT / 1000

        return await async_duel(
            {"await": awaited, "c": from_c, "call": from_python}, ROUNDS
        )
