"""What statistics cost: the same calls with and without them, in turns."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiougds
from aiougds._ffi import ffi, lib
from bench.cycles import DEPTH, DEVICE, instructions, one_run
from bench.line import Line, most_line
from bench.native import Raw, function
from bench.stage import (
    MIB,
    PAGE,
    Stage,
    at,
    checked,
    cores_apart,
    int64s,
    load_helper,
    preemptions,
    run_child,
    run_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SWITCH: Final = "AIOUGDS_STATISTICS"
MEMORY = "emu:?size=1MiB"
SLICE = 2000
COUNT = 100
ROUNDS = 200
MOST_S = 20.0
COUNTED = 10
MODEL_US = 9.0  # an Optane-class device
BAR_NS = 5.0
BAR_SHARE = 0.01


def measure(stage: Stage) -> list[Line]:
    """Measure at depth 32, of a lone read, and count instructions of both."""
    batches = run_on("asyncio", lambda: _in_turns(DEVICE, at_depth))
    lone = run_on("asyncio", lambda: _in_turns(MEMORY, alone(stage)))
    slow = run_on("asyncio", lambda: _in_turns(f"{MEMORY}&latency=9us", alone(stage)))
    return [
        line(
            f"statistics, a command at depth {DEPTH}",
            batches,
            BAR_NS,
            of_both(instructions, stage.folder),
        ),
        line(
            "statistics, a lone inline read from memory",
            lone,
            MODEL_US * 1000 * BAR_SHARE,
            of_both(lone_instructions, stage.folder),
        ),
        line(
            f"statistics, a lone read of a {MODEL_US:g} us device",
            slow,
            MODEL_US * 1000 * BAR_SHARE,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Cost:
    """ns a command."""

    on: float
    off: float
    rounds: int


def line(name: str, cost: Cost, most: float, note: str = "") -> Line:
    """Return on less off, in ns."""
    on, off = cost.on, cost.off
    words = (
        f"on {on:.1f} ns, off {off:.1f} ns, {cost.rounds} rounds undisturbed; {note}"
    )
    return most_line(name, on - off, most, "ns", words)


async def _in_turns(device: str, work: Callable[[Raw], float]) -> Cost:
    async with (
        aiougds.open(device, statistics=True) as one,
        aiougds.open(device, statistics=False) as two,
        one.allocate(MIB) as memory,
        two.allocate(MIB) as other,
    ):
        on, off = Raw(one, memory), Raw(two, other)
        with cores_apart():
            return undisturbed(lambda: work(on), lambda: work(off))


def undisturbed(on: Callable[[], float], off: Callable[[], float]) -> Cost:
    """Return lower quartiles of short rounds, taken in turns.

    What disturbs a round only adds to it, and a median of few on a busy machine is of
    the disturbances.
    """
    samples: tuple[list[float], list[float]] = ([], [])
    give_up = time.monotonic() + MOST_S
    while len(samples[1]) < ROUNDS and time.monotonic() < give_up:
        was = preemptions()
        pair = on(), off()
        if preemptions() == was:
            samples[0].append(pair[0])
            samples[1].append(pair[1])
    if len(samples[1]) < ROUNDS // 10:
        return Cost(nan, nan, 0)
    first = [statistics.quantiles(values, n=4)[0] for values in samples]
    return Cost(first[0], first[1], len(samples[1]))


def at_depth(raw: Raw) -> float:
    """Return ns a command inside submit and reap."""
    cycles = ffi.new("struct ugds_cycles *")
    checked(one_run(raw, SLICE, cycles))
    spent = cycles.submit_ticks + cycles.reap_ticks
    return spent * 1e9 / cycles.ticks_per_s / SLICE


def alone(stage: Stage, count: int = COUNT) -> Callable[[Raw], float]:
    """Return what measures ns a read, one after another, in C."""
    where = int64s([k % 256 * PAGE for k in range(count)])

    def work(raw: Raw) -> float:
        spent = stage.helper.loop_rw(
            function("ugds_rw"),
            function("ugds_reap"),
            *raw.args,
            ctypes.c_uint64(PAGE),
            at(where),
            count,
            lib.UGDS_OP_READ,
        )
        return checked(spent) / count

    return work


# ---- instructions ----


async def child(folder: str) -> None:
    """Run under callgrind, in a process of its own."""
    stage = Stage()
    stage._helper = load_helper(Path(folder))
    async with aiougds.open("emu:?size=1MiB") as ns, ns.allocate(MIB) as memory:
        for _ in range(COUNTED):
            alone(stage)(Raw(ns, memory))


def lone_instructions(folder: Path) -> str:
    """Return instructions a read; "?" where nothing counts them."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return "?"
    tool = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    tool += ["--toggle-collect=ugds_rw"]
    done = run_child("tallies", str(folder), under=tool)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return f"{int(found[1]) / COUNT / COUNTED:.0f}" if found else "?"


def of_both(count: Callable[[Path], str], folder: Path) -> str:
    """Return what is counted with statistics, and without."""
    counts = []
    for switch in ("1", "0"):
        os.environ[SWITCH] = switch
        try:
            counts.append(count(folder))
        finally:
            del os.environ[SWITCH]
    return f"instructions on: {counts[0]}; off: {counts[1]}"


if __name__ == "__main__":
    run_on("asyncio", lambda: child(sys.argv[1]))
