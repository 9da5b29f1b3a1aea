"""The bed itself: both kernels boot and are what they were said to be."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.run import GuestRun

RUNS = tuple(
    GuestRun(f"bed-{line}", ("vm.checks.bed",), kernel=line, quick=True)
    for line in LINES
)
