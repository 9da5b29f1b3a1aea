"""The kernel helper by itself, on both kernels, with and without an IOMMU."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.machine import Controller, Machine, Peer
from vm.bed.run import GuestRun

MODULE = ("kmod/ugds_drv.ko",)
PROGRAMS = (
    "programs/fuzz_ioctl.c",
    "programs/kmod_calls.c",
    "programs/kmod_dma.c",
    "programs/kmod_life.c",
    "programs/kmod_many.c",
)

EVERYWHERE = tuple(
    GuestRun(
        f"kmod-{line}-{'iommu' if iommu else 'physical'}",
        ("vm.checks.kmod",),
        kernel=line,
        machine=Machine(
            controllers=(Controller("nv0"), Controller("nv1", port=True)),
            peers=(Peer("peer0", 16),),
            iommu=iommu,
        ),
        modules=MODULE,
        programs=PROGRAMS,
        quick=line == LINES[-1] and iommu,
    )
    for line in LINES
    for iommu in (False, True)
)

# The DMA layer copies whatever it is given.
COPIES = GuestRun(
    "kmod-copies",
    ("vm.checks.kmod_copies",),
    machine=Machine(kernel_options=("swiotlb=force",)),
    modules=MODULE,
    programs=("programs/kmod_calls.c",),
)

RUNS = (*EVERYWHERE, COPIES)
