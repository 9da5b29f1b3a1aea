"""Faults through the whole stack: processes that are killed, drives that break."""

from __future__ import annotations

from dataclasses import replace

from vm.bed.machine import Blocks, Controller, Machine, MediaError
from vm.bed.run import GuestRun

MODULES = ("kmod/ugds_drv.ko",)
# With doorbells that QEMU reads by itself (``ioeventfd``) it takes no command while it
# drains for a reset; otherwise it does, and QEMU 7.2 dies of that now and then.
STEADY = Controller("nv0", (Blocks(throttle=True),), ioeventfd=True)
BREAKING = Machine(
    (
        STEADY,
        Controller(
            "bad", (Blocks(errors=(MediaError(400), MediaError(1200, on="write"))),)
        ),
        Controller("slow", (Blocks(throttle=True),)),
        Controller("held", (Blocks(suspend=True),)),
        Controller("hot", (Blocks(throttle=True),), port=True),
        Controller("crowd", queues=80, vectors=2),
    )
)


def killed(name: str, kernel: str, *checks: str, iommu: bool) -> GuestRun:
    return GuestRun(
        f"{name}-{kernel}",
        tuple(f"vm.checks.{check}" for check in checks),
        kernel=kernel,
        machine=Machine((STEADY,), iommu=iommu),
        modules=MODULES,
        programs=("programs/kill_load.c",),
        quick=checks == ("killed",),
    )


def faults(kernel: str, *, iommu: bool) -> GuestRun:
    return GuestRun(
        f"faults-{kernel}",
        ("vm.checks.faults",),
        kernel=kernel,
        machine=replace(BREAKING, iommu=iommu),
        modules=MODULES,
        quick=iommu,
    )


RUNS = (
    killed("killed", "6.12", "killed", iommu=True),
    killed("killed-often", "6.12", "killed_often", iommu=True),
    killed("killed-often", "6.1", "killed", "killed_often", iommu=False),
    faults("6.12", iommu=True),
    faults("6.1", iommu=False),
)
