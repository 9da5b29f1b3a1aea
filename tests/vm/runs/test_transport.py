"""The transport over the kernel helper: interrupts, removal, other drivers."""

from __future__ import annotations

from dataclasses import replace

from vm.bed.machine import Controller, Machine
from vm.bed.run import GuestRun

MACHINE = Machine(
    (
        Controller("nv0", vectors=17),
        Controller("few", queues=8, vectors=2),
        Controller("hot", port=True),
    )
)

RUNS = tuple(
    GuestRun(
        f"transport-{kernel}",
        ("vm.checks.interrupts", "vm.checks.watched", "vm.checks.removed"),
        kernel=kernel,
        machine=replace(MACHINE, iommu=kernel == "6.1"),
        modules=("kmod/ugds_drv.ko",),
        quick=kernel == "6.12",
    )
    for kernel in ("6.1", "6.12")
)
