"""Guests that systemd boots, with the package's unit, rule and group."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.machine import Controller, Machine
from vm.bed.run import GuestRun

RUNS = tuple(
    GuestRun(
        f"unit-{line}",
        ("vm.checks.unit",),
        kernel=line,
        machine=Machine(controllers=(Controller("nv0"), Controller("nv1"))),
        modules=("kmod/ugds_drv.ko",),
        boots="vm.checks.unit",
    )
    for line in LINES
)
