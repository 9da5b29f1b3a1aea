"""The conformance list over a device of the kernel helper.

Kernel, IOMMU, completion mode and loop are paired so that every two of their values
meet; each pairing runs the whole list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from conformance.behaviours import BEHAVIOURS, Behaviour
from conformance.tools import Tools
from helpers.pairwise import pairwise

from aiougds import Mode, Namespace
from vm.guest.check import Check, check
from vm.guest.ground import Ground

ADDRESS: Final = "/dev/ugds_drv0"
KERNELS: Final = ("6.1", "6.12")
MODES: Final[tuple[Mode, ...]] = ("adaptive", "inline", "interrupt", "poll")
LOOPS: Final = ("asyncio", "uvloop", "trio")


class Cell(NamedTuple):
    """One pairing."""

    kernel: str
    iommu: bool
    mode: Mode
    loop: str


# Of the quick part, and the plainest way on the other kernel.
FULL: Final = (
    Cell("6.1", False, "adaptive", "asyncio"),
    Cell("6.12", True, "adaptive", "asyncio"),
)
ROWS: Final[tuple[Cell, ...]] = FULL + tuple(
    # typed: the columns are in the order of the fields
    Cell(*row)  # type: ignore[arg-type]
    for row in pairwise((KERNELS, (False, True), MODES, LOOPS), start=FULL)
)


class Drive:
    """The guest's first controller as a behaviour's device."""

    def __init__(self, ground: Ground, name: str = "nv0") -> None:
        self._ground = ground
        self._name = name

    @contextmanager
    def hold_next_read(self, ns: Namespace) -> Generator[None]:
        node = f"{self._name}-{ns.nsid}"
        self._ground.qmp.hold_next(node)
        try:
            yield
        finally:
            self._ground.qmp.let_go(node)

    @contextmanager
    def slow(self, ns: Namespace) -> Generator[None]:
        node = f"{self._name}-{ns.nsid}"
        self._ground.qmp.throttle(node, 4)
        try:
            yield
        finally:
            self._ground.qmp.throttle(node, 0)

    @contextmanager
    def warn(self, ns: Namespace) -> Generator[None]:
        path = f"/machine/peripheral/{self._name}"
        self._ground.qmp.qom_set(path, "smart_critical_warning", 1)
        try:
            yield
        finally:
            self._ground.qmp.qom_set(path, "smart_critical_warning", 0)

    def clean(self, ns: Namespace) -> None:
        """The runner looks at the kernel's messages, and at the IOMMU's."""


def run(loop: str, behaviour: Behaviour, tools: Tools) -> None:
    """Run a behaviour on a loop of its own."""

    async def work() -> None:
        await behaviour(ADDRESS, tools)

    if loop == "trio":
        import trio

        trio.run(work)
        return
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())


def one(cell: Cell, name: str, module: str) -> Check:
    """Return the check of a behaviour in a cell."""

    @check(name=f"{name}-{cell.mode}-{cell.loop}", limit_s=60)
    def it(ground: Ground) -> None:
        if ground.driver("nv0") != "ugds_drv":
            ground.bind("nv0", "ugds_drv")
        run(cell.loop, BEHAVIOURS[name], Tools(Drive(ground), cell.mode))

    return replace(it, module=module)


def checks_for(kernel: str, iommu: bool, module: str) -> Sequence[Check]:
    """Return the checks of the guest with that kernel and IOMMU."""
    cells = [cell for cell in ROWS if cell[:2] == (kernel, iommu)]
    return tuple(one(cell, name, module) for cell in cells for name in BEHAVIOURS)
