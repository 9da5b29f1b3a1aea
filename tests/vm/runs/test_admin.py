"""The commands of whoever looks after the machine, in guests."""

from __future__ import annotations

from vm.bed.machine import Blocks, Controller, Machine
from vm.bed.run import GuestRun

DRIVES = (
    Controller("nv0"),
    Controller("nv1", blocks=(Blocks(), Blocks(lba=4096))),
    Controller("nv2", subsystem="pair"),
    Controller("nv3", subsystem="pair", blocks=()),
)
PLAIN = Machine(DRIVES)
TRANSLATED = Machine(DRIVES, iommu=True)
CHECKS = ("vm.checks.admin",)
MODULES = ("kmod/ugds_drv.ko",)

RUNS = (
    GuestRun("admin-6.1", CHECKS, kernel="6.1", machine=PLAIN, modules=MODULES),
    GuestRun("admin-6.12-iommu", CHECKS, machine=TRANSLATED, modules=MODULES),
)
