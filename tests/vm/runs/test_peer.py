"""Memory of a peer device: mapped, read into, written from and taken away."""

from __future__ import annotations

from dataclasses import replace

from vm.bed.machine import Blocks, Controller, Machine, Peer
from vm.bed.run import GuestRun

MACHINE = Machine(
    controllers=(Controller("nv0"), Controller("nv1", (Blocks(throttle=True),))),
    peers=(Peer("peer0", 256), Peer("peer1", 8192)),
)
MODULES = ("kmod/ugds_drv.ko", "tests/vm/kmod/peer/peerbar.ko")
CALLS = ("vm.checks.dmabuf", "vm.checks.revoked", "vm.checks.cuda")
TRANSFERS = ("vm.checks.p2p", "vm.checks.taken")

RUNS = tuple(
    GuestRun(
        f"peer-{line}-{'iommu' if iommu else 'direct'}",
        (*CALLS, *TRANSFERS),
        kernel=line,
        machine=replace(MACHINE, iommu=iommu),
        modules=MODULES,
    )
    for line, iommu in (("6.12", False), ("6.1", True))
)
