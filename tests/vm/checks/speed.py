"""Beside the kernel's own driver: same boot, same device, both from C. Ratios only."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiougds.blocking
from aiougds import lowlevel
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import node
from vm.guest.syscalls import syscalls

MIB = 1 << 20
AREA = 16 * MIB
ROUNDS = 7
DEPTH_1 = 1000
DEPTH_32 = 5000


@contextmanager
def one_processor(ground: Ground) -> Generator[None]:
    """Poll where the device's interrupts go, as the kernel's driver waits for its own.

    Else they wake the other virtual CPU, which takes a host core from the device.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    for path in (ground.folder("nv0") / "msi_irqs").iterdir():
        where = Path("/proc/irq", path.name, "smp_affinity_list")
        if where.exists():  # a vector that is in use
            where.write_text("0")
    yield
    os.sched_setaffinity(0, before)


async def ours(ground: Ground, depth: int, reads: int) -> float:
    """Return nanoseconds for one 4 KiB read of a polling thread, in the best round.

    What else the host does takes time from both sides: the best round is the one that
    had the least of it.
    """
    took: list[float] = []
    path = node(ground, "nv0")
    async with aiougds.open(path, mode="inline") as ns, ns.allocate(AREA) as reg:
        with one_processor(ground):
            for _ in range(ROUNDS):
                start = time.perf_counter_ns()
                lowlevel.bench_cycles(ns, reg, depth=depth, commands=reads)
                took.append((time.perf_counter_ns() - start) / reads)
    return min(took)


async def measure(ground: Ground) -> tuple[float, float, float, float]:
    """Return ours and the kernel's at depth 1, then at depth 32."""
    one, many = await ours(ground, 1, DEPTH_1), await ours(ground, 32, DEPTH_32)
    ground.run("modprobe", "nvme")
    ground.bind("nv0", "nvme")
    disk, program = str(ground.kernel_disk("nv0")), ground.program("kernel_reads")
    preadv = float(ground.run(program, "preadv", disk, str(DEPTH_1)))
    uring = float(ground.run(program, "uring", disk, str(DEPTH_32)))
    ground.bind("nv0", "ugds_drv")
    return one, preadv, many, uring


@check(limit_s=120)
async def reads_take_a_part_of_the_kernel_s_time(ground: Ground) -> None:
    """Half the latency of ``preadv`` or less, three times the IOPS of io_uring."""
    one, preadv, many, uring = await measure(ground)
    latency, rate = one / preadv, uring / many
    print(
        f"depth 1: {latency:.2f} of preadv's latency; depth 32: {rate:.1f} x io_uring"
    )
    assert latency <= 0.5, (one, preadv)
    assert rate >= 3, (many, uring)


@check(limit_s=120)
async def polling_makes_no_system_calls(ground: Ground) -> None:
    """No more for four thousand reads than for five hundred.

    The best of five: housekeeping looks at the queue pair 25 times a second, and where
    the host stops it in the middle of that, the reading thread yields to it.
    """
    path, calls = node(ground, "nv0"), syscalls()
    async with aiougds.open(path, mode="inline") as ns, ns.allocate(AREA) as reg:

        def made(depth: int, reads: int) -> int:
            before = calls.mark()
            lowlevel.bench_cycles(ns, reg, depth=depth, commands=reads)
            return calls.since(before)

        for depth in (1, 32):
            few = min(made(depth, 500) for _ in range(5))
            many = min(made(depth, 4000) for _ in range(5))
            assert many <= few + 2, (depth, few, many)


@check(limit_s=60)
def one_call_reads_without_a_system_call(ground: Ground) -> None:
    """Reads of the public interface that end within the call, spinning."""
    path, calls = node(ground, "nv0"), syscalls()
    with (
        aiougds.blocking.open(path, mode="inline", spin_us=1000) as ns,
        ns.allocate(4096) as reg,
    ):
        silent = spun = 0
        ns.read(reg, offset=0)  # now this thread has a queue pair
        for _ in range(200):
            inline = ns.controller.statistics().inline_completions
            before = calls.mark()
            ns.read(reg, offset=0)
            made = calls.since(before)
            if ns.controller.statistics().inline_completions > inline:
                silent += not made
                spun += 1
        assert spun > 20, spun
        assert silent >= spun * 0.9, (silent, spun)
