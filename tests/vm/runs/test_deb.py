"""The module as a Debian package: DKMS builds it where it is installed."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.machine import Controller, Machine
from vm.bed.run import GuestRun

RUNS = tuple(
    GuestRun(
        f"deb-{line}",
        ("vm.checks.deb",),
        kernel=line,
        machine=Machine(controllers=(Controller("nv0"), Controller("nv1"))),
        packages=("dkms",),
    )
    for line in LINES
)
