"""Memory of a peer device: mapped, read into, written from and taken away."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.machine import Controller, Machine, Peer
from vm.bed.run import GuestRun

MACHINE = Machine(
    controllers=(Controller("nv0"), Controller("nv1")),
    peers=(Peer("peer0", 256), Peer("peer1", 8192)),
)
MODULES = ("kmod/ugds_drv.ko", "tests/vm/kmod/peer/peerbar.ko")

RUNS = tuple(
    GuestRun(
        f"peer-{line}",
        ("vm.checks.dmabuf", "vm.checks.revoked", "vm.checks.cuda"),
        kernel=line,
        machine=MACHINE,
        modules=MODULES,
    )
    for line in LINES
)
