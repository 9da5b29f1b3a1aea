"""One read at a time on a modelled device: what its mode of waiting takes.

Every round opens controllers of its own, one after another: their device threads never
sleep, so that the model is kept to a microsecond, and two would share a core. Processor
time is the process's without the embedded controller's own threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import aiougds
from aiougds._ffi import lib
from aiougds.cli._suites.turns import device_clocks, processor_ns
from bench.adaptive import device_apart
from bench.line import Line, most_line, no_gc, turns
from bench.native import Raw, function
from bench.stage import MIB, PAGE, Stage, at, checked, int64s, loops, run_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROUNDS: Final = 15
WARM: Final = 30
LOOK, INTERRUPT, HAND_OFF = range(3)  # of paths.c
SLOW_SHARE, SLOW_LATENCY = 0.05, 1.1
SMALL_INLINE_US, SMALL_ABOVE_US = 13.0, 6.0


class Case(NamedTuple):
    """A device and a read."""

    latency_us: int
    nbytes: int
    spin_us: int
    count: int

    @property
    def address(self) -> str:
        """Where it is."""
        return (
            f"emu:?size=64MiB&data=none&step=0&threads=1&awake=1"
            f"&latency={self.latency_us}us"
        )


LARGE = Case(230, MIB, 400, 200)
SMALL = Case(9, PAGE, 20, 500)


class Cost(NamedTuple):
    """Of a read: how long it is waited for, and processor time; us."""

    wait: float
    cpu: float


def measure(stage: Stage) -> list[Line]:
    """Measure both devices on each loop."""
    lines: list[Line] = []
    for loop in loops():
        large = run_on(loop, lambda: compare(stage, LARGE, ("inline", "interrupt")))
        lines += large_lines(loop, large)
    for loop in loops():
        small = run_on(loop, lambda: compare(stage, SMALL, ("inline", "poll")))
        lines += small_lines(loop, small)
    return lines


def large_lines(loop: str, found: dict[str, Cost]) -> list[Line]:
    """Return the lines about interrupt mode and large reads."""
    ours, inline = found["interrupt"], found["inline"]
    title = f"await 1 MiB of a {LARGE.latency_us} us device, interrupt, {loop}"
    return [
        most_line(
            f"{title}: processor time (peer: inline)", ours.cpu,
            SLOW_SHARE * inline.cpu, "us", words(found), inline.cpu,
        ),
        most_line(
            f"{title}: latency (peer: the bare C path)", ours.wait,
            SLOW_LATENCY * found["bare interrupt"].wait, "us", "",
            found["bare interrupt"].wait,
        ),
    ]  # fmt: skip


def small_lines(loop: str, found: dict[str, Cost]) -> list[Line]:
    """Return the lines about small reads that are looked for."""
    title = f"await 4 KiB of a {SMALL.latency_us} us device"
    floor = found["bare hand-off"].wait
    return [
        most_line(
            f"{title}, inline, {loop}", found["inline"].wait, SMALL_INLINE_US, "us",
            words(found), found["bare look"].wait,
        ),
        most_line(
            f"{title}, poll, {loop} (peer: the bare C hand-off)", found["poll"].wait,
            floor + SMALL_ABOVE_US, "us", "", floor,
        ),
    ]  # fmt: skip


def words(found: dict[str, Cost]) -> str:
    """Return all of them, latency and processor time."""
    return ", ".join(
        f"{name} {cost.wait:.1f} ({cost.cpu:.1f})" for name, cost in found.items()
    )


async def compare(
    stage: Stage, case: Case, modes: tuple[aiougds.Mode, ...]
) -> dict[str, Cost]:
    """Return medians of rounds in turns."""
    contestants: dict[str, Callable[[], Awaitable[Cost]]] = {}
    for mode in modes:
        contestants[mode] = partial(awaited, case, mode)
        contestants[f"{mode} from C"] = partial(from_c, stage, case, mode)
    for name, how in (
        ("bare look", LOOK),
        ("bare interrupt", INTERRUPT),
        ("bare hand-off", HAND_OFF),
    ):
        contestants[name] = partial(bare, stage, case, how)
    contestants["bare loop"] = partial(pinged, stage, case)
    samples: dict[str, list[Cost]] = {name: [] for name in contestants}
    with no_gc():
        for name in turns(list(contestants), ROUNDS):
            samples[name].append(await contestants[name]())
    return {
        name: Cost(median(c.wait for c in costs), median(c.cpu for c in costs))
        for name, costs in samples.items()
    }


async def awaited(case: Case, mode: aiougds.Mode) -> Cost:
    """Read from Python."""
    taken: list[int] = []
    clock = time.perf_counter_ns
    async with (
        aiougds.open(case.address, mode=mode, spin_us=case.spin_us) as ns,
        ns.allocate(case.nbytes) as reg,
    ):
        part = reg[: case.nbytes]
        with device_apart():
            for _ in range(WARM):
                await ns.read(part, offset=0)
            device = device_clocks()
            cpu = processor_ns(device)
            for _ in range(case.count):
                begin = clock()
                await ns.read(part, offset=0)
                taken.append(clock() - begin)
            cpu = processor_ns(device) - cpu
    return Cost(median(taken) / 1e3, cpu / 1e3 / case.count)


async def from_c(stage: Stage, case: Case, mode: aiougds.Mode) -> Cost:
    """Read by the same calls from C, waiting with epoll."""
    taken = int64s([0] * case.count)
    async with (
        aiougds.open(case.address, mode=mode, spin_us=case.spin_us) as ns,
        ns.allocate(case.nbytes) as reg,
    ):
        raw = Raw(ns, reg)
        chan, space, handle = raw.args
        with device_apart():
            for count in (WARM, case.count):
                device = device_clocks()
                cpu = processor_ns(device)
                checked(
                    stage.helper.loop_wait(
                        function("ugds_rw"),
                        function("ugds_reap"),
                        lib.ugds_chan_fd(raw.chan),
                        chan,
                        space,
                        handle,
                        ctypes.c_uint64(case.nbytes),
                        count,
                        lib.UGDS_OP_READ,
                        at(taken),
                    )
                )
                cpu = processor_ns(device) - cpu
    return Cost(median(taken) / 1e3, cpu / 1e3 / case.count)


async def bare(stage: Stage, case: Case, how: int) -> Cost:
    """Wait for the bare model, in C."""
    taken = int64s([0] * case.count)
    there = max(os.sched_getaffinity(0))
    with device_apart():
        spent = stage.helper.floor_wait(
            how, ctypes.c_int64(case.latency_us * 1000), case.count, there, at(taken)
        )
    return Cost(median(taken) / 1e3, checked(spent) / case.count / 1e3)


async def pinged(stage: Stage, case: Case) -> Cost:
    """Wait for it on the loop: an eventfd, a reader, a future, and nothing else."""
    loop = asyncio.get_running_loop()
    taken: list[int] = []
    clock = time.perf_counter_ns
    ask = ctypes.PyDLL(stage.helper._name).floor_ask  # as cheap as a call can be
    ask.argtypes = [ctypes.c_int64]
    future: asyncio.Future[None]

    def ready() -> None:
        os.read(fd, 8)
        future.set_result(None)

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    fd = checked(stage.helper.floor_lend(cores[-1]))
    loop.add_reader(fd, ready)
    try:
        nanoseconds = case.latency_us * 1000
        for _ in range(case.count):
            begin = clock()
            future = loop.create_future()
            ask(nanoseconds)
            await future
            taken.append(clock() - begin)
            if len(taken) == 1:
                cpu = time.thread_time_ns()
        cpu = time.thread_time_ns() - cpu
    finally:
        loop.remove_reader(fd)
        stage.helper.floor_give_back()
        os.sched_setaffinity(0, cores)
    return Cost(median(taken) / 1e3, cpu / (case.count - 1) / 1e3)
