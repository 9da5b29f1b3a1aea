"""What must be gone when no device is open: mappings, and pages pinned for devices."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MAPPINGS = Path("/sys/module/ugds_drv/parameters/mappings")
REFRESH = Path("/proc/sys/vm/stat_refresh")
PINS = ("nr_foll_pin_acquired", "nr_foll_pin_released")


def pins() -> int:
    """Return how many pages are pinned for devices, in the whole guest."""
    REFRESH.write_text("1")  # each processor counts for itself for a while
    lines = Path("/proc/vmstat").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split() for line in lines)}
    return counts[PINS[0]] - counts[PINS[1]]


def mappings() -> int:
    """Return how many mappings the kernel helper has, of all devices."""
    return int(MAPPINGS.read_text())


@contextmanager
def nothing_left() -> Generator[None]:
    """Have a part of a check leave no mapping and no pinned page."""
    before = pins()
    yield
    mapped, pinned = mappings(), pins()
    assert (mapped, pinned) == (0, before)
