"""Moving a function from one driver to another: all of it, or nothing.

``driver_override`` names the only driver that may have the function, so no other one
takes it in between, or at a rescan of the bus. The driver's own ``bind`` attribute is
used rather than ``drivers_probe``: it says with which error a probe failed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds.cli._failures import CommandError
from aiougds.cli._host import record
from aiougds.cli._host.functions import DRIVERS, OURS
from aiougds.cli._host.record import Record

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.system import System

KERNELS: Final = "nvme"


class Step(NamedTuple):
    """One write to sysfs."""

    path: str
    value: str

    def __str__(self) -> str:
        return f"echo {self.value or repr('')} > {self.path}"


class Move(NamedTuple):
    """A function goes to another driver, with what ``driver_override`` says then."""

    function: Function
    driver: str
    override: str

    def steps(self) -> list[Step]:
        """Return the writes, in order."""
        function = self.function
        steps = [Step(f"{function.folder}/driver_override", self.override)]
        if function.driver is not None:
            steps.append(Step(f"{DRIVERS}/{function.driver}/unbind", function.address))
        return [*steps, Step(f"{DRIVERS}/{self.driver}/bind", function.address)]

    def back(self) -> Move:
        """Return the move that undoes it."""
        before = self.function
        return Move(before, before.driver or "", before.override or "")


def to_us(function: Function) -> Move:
    """Return the move to ``ugds_drv``."""
    return Move(function, OURS, OURS)


def to_the_kernel(system: System, function: Function) -> Move:
    """Return the move to the driver that it had before, or to ``nvme``."""
    kept = record.load(system, function.address)
    if kept is None:
        return Move(function, KERNELS, "")
    return Move(function, kept.driver, kept.override)


def remember(system: System, function: Function) -> None:
    """Keep what ``unbind`` and udev have to know; before the node appears."""
    kept = Record(
        serial=function.serial or "",
        model=function.model or "",
        driver=function.driver or KERNELS,
        override=function.override or "",
        incarnation=record.incarnation(system, function.address),
    )
    record.save(system, function.address, kept)


@contextmanager
def one_at_a_time(system: System) -> Generator[None]:
    """Refuse while another ``bind`` or ``unbind`` is at work."""
    folder = system.path(record.FOLDER)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise CommandError("another aiougds bind or unbind is at work") from error
    finally:
        os.close(fd)


def needs_driver(system: System, driver: str) -> None:
    """Raise CommandError unless a driver is there to bind to."""
    if not system.exists(f"{DRIVERS}/{driver}/bind"):
        raise CommandError(
            f"the driver {driver} is not loaded, and nothing was changed: modprobe "
            f"{driver}"
        )


def carry_out(system: System, move: Move) -> None:
    """Make a move. Whatever ends it midway puts things back, and says if it could."""
    try:
        for step in move.steps():
            _write(system, step)
        _verify(system, move)
    except CommandError as error:
        _put_back(system, move)
        outcome = _outcome(system, move)
        raise CommandError(
            f"{error}; {outcome} (the kernel's log may say why)"
        ) from error
    except BaseException:  # an interrupt
        _put_back(system, move)
        raise


def _write(system: System, step: Step) -> None:
    try:
        system.write(step.path, f"{step.value}\n")
    except OSError as error:
        raise CommandError(f"'{step}' failed: {error.strerror}") from error


def _now(system: System, move: Move) -> str | None:
    return system.target(f"{move.function.folder}/driver")


def _verify(system: System, move: Move) -> None:
    if _now(system, move) != move.driver:
        address = move.function.address
        raise CommandError(f"the driver {move.driver} did not take {address}")


def _put_back(system: System, move: Move) -> None:
    """Undo what was done, going on over what fails: better half than nothing."""
    back = move.back()
    address = move.function.address
    steps = [Step(f"{move.function.folder}/driver_override", back.override)]
    now = _now(system, move)
    if (now or "") != back.driver:
        if now is not None:
            steps.append(Step(f"{DRIVERS}/{now}/unbind", address))
        if back.driver:
            steps.append(Step(f"{DRIVERS}/{back.driver}/bind", address))
    for step in steps:
        try:
            system.write(step.path, f"{step.value}\n")
        except OSError:
            continue  # the outcome is looked at, and told


def _outcome(system: System, move: Move) -> str:
    before, now = move.function.driver, _now(system, move)
    if now == before:
        return f"put back: {move.function.address} is with {before or 'no driver'}"
    return (
        f"it could NOT be put back: {move.function.address} is with "
        f"{now or 'no driver'}, and was with {before or 'no driver'}"
    )
