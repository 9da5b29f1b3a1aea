"""A lone ``await ns.read`` of 4 KiB from a cached file, against its peers."""

from __future__ import annotations

import os
from contextlib import nullcontext

from bench.line import Duel, Line, async_duel, most_line, ratio_line
from bench.reads import contestants
from bench.stage import Stage, at, checked, int64s, loops, one_core, run_on

ROUNDS = 25
HANDOFFS = 400
CAIO_BAR = {"asyncio": 3.0, "uvloop": 2.0}
ABOVE_FLOOR = {"asyncio": 6.0, "uvloop": 3.0}
AIO, URING = "caio-aio", "caio-uring"
NO_STEP = "?step=0&threads=1"


def measure(stage: Stage) -> list[Line]:
    """Measure all lines about a lone read from the cache."""
    stage.warm()
    lines: list[Line] = []
    for loop in loops():
        lines += adaptive(stage, loop)
    for loop in loops():
        lines += interrupt(stage, loop)
    for loop in loops():
        lines += pinned(stage, loop)
    return lines


def caio_lines(title: str, fight: Duel, least: float) -> list[Line]:
    """Return the line about caio's Linux AIO, and one for the record about io_uring.

    The bars are of the former. io_uring serves cached reads inside the submitting
    system call; caio's default adds a polling thread of the kernel, which is slower
    here than both and takes a core.
    """
    lines = []
    if AIO in fight.median:
        lines.append(ratio_line(f"{title}, {AIO}", fight, AIO, least))
    if URING in fight.median:
        lines.append(reported(f"{title}, {URING}", fight, URING))
    return lines


def reported(name: str, fight: Duel, peer: str) -> Line:
    """Return a line without a bar."""
    mine, theirs = fight.median["ours"], fight.median[peer]
    return Line(name, mine, theirs, fight.ratio[peer], "reported", True, "us")


def others(fight: Duel) -> str:
    """Return all medians as words."""
    return ", ".join(f"{name} {value:.2f}" for name, value in fight.median.items())


def adaptive(stage: Stage, loop: str) -> list[Line]:
    """Completed inside the call, for the most part."""

    async def work() -> Duel:
        async with contestants(stage, "") as found:
            return await async_duel(found, ROUNDS)

    fight = run_on(loop, work)
    title = f"lone await ns.read 4 KiB cached, adaptive, {loop}"
    note = others(fight)
    lines = [ratio_line(f"{title}, to_thread", fight, "to_thread", 15, note=note)]
    lines += caio_lines(title, fight, CAIO_BAR[loop])
    return [*lines, reported(f"{title}, os.preadv", fight, "preadv")]


def interrupt_duel(stage: Stage, loop: str, *, one: bool) -> Duel:
    """Through the device thread and the eventfd, beside the bare C of the same."""
    where = int64s(stage.offsets(HANDOFFS))

    async def work() -> Duel:
        async with contestants(stage, NO_STEP, mode="interrupt") as found:
            fd = os.open(stage.path, os.O_RDONLY)

            async def floor() -> float:
                spent = stage.helper.floor_handoff(fd, at(where), HANDOFFS)
                return checked(spent) / HANDOFFS / 1000

            found["floor"] = floor
            try:
                with one_core() if one else nullcontext():
                    return await async_duel(found, ROUNDS)
            finally:
                os.close(fd)

    return run_on(loop, work)


def interrupt(stage: Stage, loop: str) -> list[Line]:
    """Bounded by what a hand-off costs in C, on the same machine, just now."""
    fight = interrupt_duel(stage, loop, one=False)
    floor = fight.median["floor"]
    return [
        most_line(
            f"lone await ns.read 4 KiB cached, interrupt, {loop} (peer: C hand-off)",
            fight.median["ours"],
            floor + ABOVE_FLOOR[loop],
            "us",
            others(fight),
            floor,
        )
    ]


def pinned(stage: Stage, loop: str) -> list[Line]:
    """The same with everything on one core."""
    fight = interrupt_duel(stage, loop, one=True)
    title = f"lone await ns.read 4 KiB cached, interrupt, one core, {loop}"
    note = others(fight)
    lines = [ratio_line(f"{title}, to_thread", fight, "to_thread", 3, note=note)]
    return lines + caio_lines(title, fight, 1)
