"""The matrix of controllers, on both kernels, with and without an IOMMU."""

from __future__ import annotations

from vm.bed.machine import Blocks, Controller, Machine
from vm.bed.run import GuestRun

SMALL, LARGE = Blocks(mib=24), Blocks(lba=4096, mib=24)
CONTROLLERS = (
    Controller("nv0", (SMALL,)),
    Controller("large", (LARGE,), queues=16),
    Controller("mdts0", (SMALL,), mdts=0, queues=16),
    Controller("mdts1", (SMALL,), mdts=1, queues=16),
    Controller("mdts5", (SMALL,), mdts=5, queues=16),
    Controller("mdts9", (SMALL,), mdts=9, queues=16),
    Controller("one", (SMALL,), queues=1),
    Controller("two", (SMALL,), queues=2),
    Controller("few", (SMALL,), queues=8, vectors=2),
    Controller("meta", (Blocks(metadata=8, mib=24), SMALL, LARGE), queues=16),
    Controller("several", (SMALL, LARGE, SMALL), queues=16),
    Controller("cmb", (SMALL,), cmb_mib=16, queues=16),
)

RUNS = tuple(
    GuestRun(
        f"matrix-{kernel}-{'iommu' if iommu else 'direct'}",
        ("vm.checks.matrix",),
        kernel=kernel,
        machine=Machine(CONTROLLERS, iommu=iommu),
        modules=("kmod/ugds_drv.ko",),
        quick=kernel == "6.12",
    )
    for kernel, iommu in (("6.12", True), ("6.1", False))
)
