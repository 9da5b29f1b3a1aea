"""The same, as often as it takes to meet rare moments."""

from __future__ import annotations

from vm.checks.killed import killed
from vm.guest.check import check
from vm.guest.ground import Ground


@check(limit_s=240)
def two_hundred_processes_are_killed_under_load(ground: Ground) -> None:
    killed(ground, 200)
