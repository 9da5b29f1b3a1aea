"""The engine beside the kernel's own driver, in one boot."""

from __future__ import annotations

from vm.bed.machine import Blocks, Controller, Machine
from vm.bed.run import GuestRun

MACHINE = Machine((Controller("nv0", (Blocks(stored=False),), vectors=17),))

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
