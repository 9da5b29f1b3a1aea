"""The behaviours that every transport has, over the kernel helper."""

from __future__ import annotations

from vm.bed.machine import Blocks, Controller, Machine
from vm.bed.run import GuestRun

DRIVES = (Controller("nv0", (Blocks(suspend=True, throttle=True),), vectors=9),)
MACHINE = Machine(DRIVES)

RUNS = tuple(
    GuestRun(
        f"conformance-{kernel}-{way}",
        (f"vm.checks.conformance_{kernel.replace('.', '')}_{way}",),
        kernel=kernel,
        machine=Machine(DRIVES, iommu=iommu),
        modules=("kmod/ugds_drv.ko",),
        quick=(kernel, iommu) == ("6.12", True),
    )
    for kernel in ("6.1", "6.12")
    for iommu, way in ((False, "plain"), (True, "iommu"))
)
