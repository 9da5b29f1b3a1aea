"""Every behaviour of the conformance list, over the embedded controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.matrix import MODES, Place
from helpers.world import World

from aiougds import Mode, Namespace
from aiougds.testing import Fault, counters, inject, raise_event
from conformance.behaviours import BEHAVIOURS
from conformance.tools import Tools

LOOPS = ("asyncio", "uvloop", "trio")


class Embedded:
    """The embedded controller as a behaviour's device."""

    @contextmanager
    def hold_next_read(self, ns: Namespace) -> Iterator[None]:
        with inject(ns, Fault.hold("read", count=1)):
            yield

    @contextmanager
    def slow(self, ns: Namespace) -> Iterator[None]:
        with inject(ns, Fault.delay(0.5, "read")):
            yield

    @contextmanager
    def warn(self, ns: Namespace) -> Iterator[None]:
        raise_event(ns, type=1, info=1, log_page=2)
        yield

    def clean(self, ns: Namespace) -> None:
        seen = counters(ns)
        assert seen.iommu_faults == seen.protocol_errors == 0


def cells() -> list[tuple[str, str, Mode, int]]:
    """Every behaviour in each mode; loops, block sizes and stepping take turns."""
    return [
        (name, LOOPS[(row + column) % 3], mode, 512 if (row + column) % 2 else 4096)
        for row, name in enumerate(BEHAVIOURS)
        for column, mode in enumerate(MODES)
    ]


def test_there_are_about_thirty() -> None:
    assert 30 <= len(BEHAVIOURS) <= 40


@pytest.mark.parametrize(("name", "loop", "mode", "lba"), cells())
def test_behaviour(tmp_path: Path, name: str, loop: str, mode: Mode, lba: int) -> None:
    place = World(Place(loop, mode, step=lba == 512))  # type: ignore[arg-type]
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    address = place.address(path, lba=lba, shadow=int(lba == 512))
    place.run(BEHAVIOURS[name](address, Tools(Embedded(), mode)))  # type: ignore[arg-type]
