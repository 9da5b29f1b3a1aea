"""The first batch after set-up against later ones, and its system calls."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from collections import Counter
from pathlib import Path

import aiougds
from bench.line import Line, most_line
from bench.native import Batches
from bench.stage import MIB, PAGE, Stage, load_helper, run_child, run_on

ITEMS = 128
BATCHES = 30
NO_DATA = "emu:?size=1GiB&data=none"


def measure(stage: Stage) -> list[Line]:
    """Measure in fresh processes; all that they share is the file."""
    stage.warm()
    load_helper(stage.folder)
    lines = []
    file = f"emu:{stage.path}"
    for what, address, count in (("no data", NO_DATA, 30), ("cached file", file, 10)):
        runs = [child_times(stage.folder, address) for _ in range(count)]
        ratios = [run[0] / statistics.median(run[1:]) for run in runs]
        first = statistics.median([run[0] for run in runs]) / 1000
        later = statistics.median([statistics.median(run[1:]) for run in runs]) / 1000
        lines.append(
            most_line(
                f"first batch of {ITEMS} x 4 KiB / median of later ones, {what}",
                statistics.median(ratios),
                1.1,
                "x",
                f"first {first:.1f} us, later {later:.1f} us, {count} processes",
            )
        )
    return [*lines, system_calls(stage.folder)]


def child_times(folder: Path, address: str) -> list[int]:
    """Return nanoseconds inside the C calls of each batch of a fresh process."""
    done = run_child("first_batch", str(folder), address)
    if done.returncode:
        raise RuntimeError(done.stderr)
    times: list[int] = json.loads(done.stdout)
    return times


async def child(folder: str, address: str) -> None:
    """Warm everything on one controller, then measure on another.

    Between two batches the first controller gets one, so that each of those measured
    finds the processor's caches and predictors as the others do.
    """
    helper = load_helper(Path(folder))
    where = [k * PAGE for k in range(ITEMS * BATCHES)]  # other blocks in each batch
    async with (
        aiougds.open(NO_DATA) as other,
        other.allocate(MIB) as own,
        aiougds.open(address) as ns,
        ns.allocate(MIB) as memory,
    ):
        memory.view[:] = bytes(MIB)
        warm = Batches(helper, other, own, ITEMS)
        warm.run(where, PAGE, BATCHES)
        batches = Batches(helper, ns, memory, ITEMS)
        times: list[int] = []
        for k in range(BATCHES):
            warm.run(where[:ITEMS], PAGE, 1)
            times += batches.run(where[k * ITEMS : (k + 1) * ITEMS], PAGE, 1)
        batches.close()
        warm.close()
    print(json.dumps(times))


def system_calls(folder: Path) -> Line:
    """Count what the submitting thread asks of the kernel between two marks."""
    name = "system calls in the C calls per batch after set-up, but the kick"
    strace = shutil.which("strace")
    out = folder / "strace"
    if strace is None:
        return Line(name, -1, None, None, "0", False, "calls", "no strace here")
    done = run_child(
        "first_batch",
        str(folder),
        NO_DATA,
        under=[strace, "-f", "-q", "-o", str(out)],
    )
    if done.returncode:
        return Line(name, -1, None, None, "0", False, "calls", done.stderr.strip())
    seen, kicks = between_marks(out.read_text(encoding="utf-8"))
    words = ", ".join(f"{call} {n}" for call, n in seen.most_common()) or "none"
    note = f"{3 * BATCHES} batches, {kicks} kicks; others: {words}"
    return most_line(name, sum(seen.values()) / (3 * BATCHES), 0, "calls", note)


CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")


def between_marks(trace: str) -> tuple[Counter[str], int]:
    """Return the calls of the marking thread between its marks, and its kicks."""
    seen: Counter[str] = Counter()
    kicks, thread = 0, ""
    for row in trace.splitlines():
        found = CALL.match(row)
        if found is None:
            continue
        tid, call, rest = found.groups()
        if "/bench-begin" in rest:
            thread = tid
        elif "/bench-end" in rest:
            thread = ""
        elif tid == thread:
            if call == "futex" and "FUTEX_WAKE" in rest:
                kicks += 1
            else:
                seen[call] += 1
    return seen, kicks


if __name__ == "__main__":
    run_on("asyncio", lambda: child(*sys.argv[1:3]))
