"""C alone: what a command costs inside submit and reap, and bare rings beside it."""

from __future__ import annotations

import ctypes
import re
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiougds
from aiougds._ffi import ffi, lib
from bench.line import Line, most_line
from bench.native import Batches, Raw
from bench.stage import (
    MIB,
    PAGE,
    Stage,
    checked,
    cores_apart,
    load_helper,
    preemptions,
    run_child,
    run_on,
)

if TYPE_CHECKING:
    from aiougds._ffi import CData

DEVICE = "emu:?size=1GiB&data=none&step=0&threads=1"
DEPTH = 32
SLICE = 10_000  # commands a round
ROUNDS = 80
MOST_S = 10.0


def measure(stage: Stage) -> list[Line]:
    """Measure the first line of the table."""
    return run_on("asyncio", lambda: _measure(stage))


async def _measure(stage: Stage) -> list[Line]:
    async with aiougds.open(DEVICE) as ns, ns.allocate(MIB) as memory:
        raw = Raw(ns, memory)
        ours: list[float] = []
        bare: list[float] = []
        cycles = ffi.new("struct ugds_cycles *")
        with cores_apart() as (_, there):
            give_up = time.monotonic() + MOST_S
            while len(ours) < ROUNDS and (not ours or time.monotonic() < give_up):
                was = preemptions()
                checked(one_run(raw, SLICE, cycles))
                if preemptions() != was and time.monotonic() < give_up:
                    continue
                ns_per_tick = 1e9 / cycles.ticks_per_s
                spent = cycles.submit_ticks + cycles.reap_ticks
                ours.append(spent * ns_per_tick / SLICE)
                ticks = stage.helper.floor_rings(ctypes.c_uint64(SLICE), DEPTH, there)
                bare.append(checked(ticks) * ns_per_tick / SLICE)
        mine, floor = statistics.median(ours), statistics.median(bare)
        note = (
            f"{mine / ns_per_tick:.0f} ticks, {len(ours)} rounds without preemption; "
            f"best round {min(ours):.1f} ns, of bare rings {min(bare):.1f} ns"
        )
    counted = instructions(stage.folder)
    note += f"; {counted}"
    return [
        most_line(
            f"C submit + reap, 4 KiB, depth {DEPTH}, no data (peer: bare rings)",
            mine,
            40,
            "ns",
            note,
            floor,
        )
    ]


def one_run(raw: Raw, commands: int, cycles: CData) -> int:
    """Run commands at the depth with nothing but C."""
    return lib.ugds_bench_cycles(
        raw.chan, raw.space, raw.handle, MIB, DEPTH, commands, cycles
    )


# ---- instructions: the same calls under callgrind, which counts inside them only ----

BATCHES = 200
REST_NS = 1_000_000  # the device thread has its turn meanwhile: no empty looks
COUNTED = ("ugds_batch_submit_array", "ugds_reap", "ugds_batch_harvest_ok")


async def child(folder: str) -> None:
    """Run under callgrind, in a process of its own."""
    async with (
        aiougds.open(DEVICE, mode="interrupt") as ns,
        ns.allocate(MIB) as memory,
    ):
        batches = Batches(load_helper(Path(folder)), ns, memory, DEPTH)
        batches.run([k * PAGE for k in range(DEPTH)] * BATCHES, PAGE, BATCHES, REST_NS)
        batches.close()


def instructions(folder: Path) -> str:
    """Return instructions per command, or why they are not known."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return "no valgrind, so no instruction count"
    tool = [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind"]
    tool += [f"--toggle-collect={name}" for name in COUNTED]
    done = run_child("cycles", str(folder), under=tool)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None or not int(found[1]):
        return "callgrind counted nothing"
    count = int(found[1]) / (BATCHES * DEPTH)
    return f"{count:.0f} instructions by callgrind (batches of {DEPTH}, ugds_reap)"


if __name__ == "__main__":
    run_on("asyncio", lambda: child(sys.argv[1]))
