"""The engine beside the kernel's own driver, in one boot."""

from __future__ import annotations

from vm.bed.machine import Blocks, Controller, Machine
from vm.bed.run import GuestRun

# 6.1 finds the processors' clocks unsynchronised, and each look at the time would be a
# system call. Unwatched, the clock may be off by its calibration: nothing here minds.
MACHINE = Machine(
    (Controller("nv0", (Blocks(stored=False),), vectors=17),),
    kernel_options=("tsc=reliable",),
)

RUNS = tuple(
    GuestRun(
        f"speed-{kernel}",
        ("vm.checks.speed",),
        kernel=kernel,
        machine=MACHINE,
        modules=("kmod/ugds_drv.ko",),
        programs=("programs/kernel_reads.c",),
        alone=True,
    )
    for kernel in ("6.1", "6.12")
)
