"""``aiougds bind --config``: the drives of a file, as at each boot.

One drive that cannot be bound keeps no other one from it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aiougds.cli._failures import CommandError, RefusedError
from aiougds.cli._host.functions import OURS, functions
from aiougds.cli._moves import SCHEMA, describe, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiougds.cli._console import Console
    from aiougds.cli._devices import Device, Devices
    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.system import System
    from aiougds.cli._moves import Report

# Nothing tells when the kernel has looked through a drive.
LOOK_EVERY_S: Final = 0.2


class MissingError(CommandError):
    """No drive of this serial number is there."""


def bind_all(
    system: System,
    wanted: Devices,
    console: Console,
    bind: Callable[[Function, str | None], Report],
) -> int:
    """Bind them all; ``bind`` is given a function, and its serial number to overrule.

    Raises a group of what kept drives from being bound.
    """
    until = time.monotonic() + wanted.wait_s
    reports: list[Report] = []
    errors: list[Exception] = []
    for device in wanted.devices:
        try:
            function = _awaited(system, device, until)
            report = bind(function, device.serial if device.overwrite else None)
            reports.append(report)
            if not report.allowed:
                raise RefusedError(report.refusal())
        except (CommandError, OSError) as error:
            errors.append(error)
    _show(console, reports, nothing=not wanted.devices)
    if errors:
        raise ExceptionGroup("drives that were not bound", errors)
    return 0


def _show(console: Console, reports: list[Report], *, nothing: bool) -> None:
    if console.quiet:
        console.json({"schema": SCHEMA, "moves": [describe(one) for one in reports]})
        return
    for report in reports:
        show(console, report)
    if nothing:
        console.line("nothing to bind")


def _awaited(system: System, device: Device, until: float) -> Function:
    """Return the drive when the kernel has looked through it, or as it is then."""
    while True:
        function = _found(functions(system), device)
        if function is not None and _ready(system, function):
            return function
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_EVERY_S)
    if function is None:
        raise MissingError(
            f"no NVMe drive has the serial number {device.serial}; aiougds list shows "
            "those that are there"
        )
    return function


def _found(there: Iterable[Function], device: Device) -> Function | None:
    for function in there:
        if function.serial != device.serial:
            continue
        if device.address not in (None, function.address):
            raise RefusedError(
                f"the drive {device.serial} is at {function.address}, and was to be at "
                f"{device.address}; it was not changed: correct the address, or leave "
                "it out"
            )
        return function
    return None


def _ready(system: System, function: Function) -> bool:
    if function.driver == OURS:
        return True
    state = system.text(f"{function.folder}/nvme/{function.controller}/state")
    return state in (None, "live") and bool(function.disks)
