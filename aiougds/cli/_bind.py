"""``aiougds bind`` and ``unbind``: a drive goes to ``ugds_drv``, and back.

Both only say what they would do, unless told ``--yes``. Neither formats, unmounts or
stops anything: what stands in the way is named, with the command that removes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiougds.cli._bind_all import bind_all
from aiougds.cli._common import add_output, add_sysroot
from aiougds.cli._console import Console
from aiougds.cli._devices import load
from aiougds.cli._failures import RefusedError, UsageError
from aiougds.cli._host import binding, record
from aiougds.cli._host.contents import claimed
from aiougds.cli._host.functions import OURS, find, read_function
from aiougds.cli._host.obstacles import Obstacle, uses
from aiougds.cli._host.system import System
from aiougds.cli._moves import Report, show
from aiougds.cli._units import filepath

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Callable

    from aiougds.cli._devices import Devices
    from aiougds.cli._host.functions import Function

EPILOG: Final = (
    "ADDRESS: 0000:65:00.0, 65:00.0, /dev/nvme0, /dev/nvme0n1, /dev/ugds_drv0"
)


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add both commands."""
    parser = _add(commands, parents, "bind", "give an unused drive to ugds_drv", bind)
    parser.add_argument(
        "--serial",
        metavar="SERIAL",
        help="the drive's serial number: bind it whatever is stored on it",
    )
    parser.add_argument(
        "--config",
        type=filepath,
        metavar="FILE",
        help="bind the drives that this file names (/etc/aiougds/devices.toml)",
    )
    _add(commands, parents, "unbind", "give a drive back to its former driver", unbind)


def _add(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
    name: str,
    text: str,
    action: Callable[[argparse.Namespace, System], Report],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, parents=parents, help=text, epilog=EPILOG)
    # Of a bind there may be a file that names them.
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?" if name == "bind" else None,
        help="of the drive",
    )
    parser.add_argument(
        "--yes", action="store_true", help="do it; without, only say what would be done"
    )
    add_output(parser)
    add_sysroot(parser)
    parser.set_defaults(run=run, action=action)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run either command."""
    system = System(args.sysroot)
    if args.yes and not system.real:
        raise UsageError("--yes changes the running machine: it goes without --sysroot")
    console = Console(quiet=args.output == "json")
    config: Path | None = getattr(args, "config", None)
    if config is not None:
        if args.address is not None or args.serial is not None:
            raise UsageError(
                "--config names the drives: say no ADDRESS and no --serial"
            )
        return _from_file(system, load(config), console, do=args.yes)
    if args.address is None:
        raise UsageError("say which drive: its ADDRESS, or --config FILE for several")
    action: Callable[[argparse.Namespace, System], Report] = args.action
    return finish(action(args, system), console)


def finish(report: Report, console: Console) -> int:
    """Show what came of it; raise RefusedError if something stands in the way."""
    show(console, report)
    if not report.allowed:
        raise RefusedError(report.refusal())
    return 0


def bind(args: argparse.Namespace, system: System) -> Report:
    """Give a function to ``ugds_drv``."""
    function = find(system, args.address)
    serial: str | None = args.serial
    if not args.yes:
        return _bind(system, function, serial=serial, do=False)
    with binding.one_at_a_time(system):
        # Once more: another bind may have been at work until now.
        function = read_function(system, function.address)
        return _bind(system, function, serial=serial, do=True)


def _from_file(system: System, wanted: Devices, console: Console, *, do: bool) -> int:
    def one(function: Function, serial: str | None) -> Report:
        return _bind(system, function, serial=serial, do=do)

    if not do:
        return bind_all(system, wanted, console, one)
    with binding.one_at_a_time(system):
        return bind_all(system, wanted, console, one)


def _bind(
    system: System, function: Function, *, serial: str | None, do: bool
) -> Report:
    if serial is not None and serial.strip() != function.serial:
        raise RefusedError(
            f"--serial {serial!r} is not the serial number of {function.address}, "
            f"which is {function.serial or 'not known'}; nothing was changed"
        )
    if function.driver == OURS:
        return Report("bind", function, note=f"it is with {OURS} already")
    with claimed(system, function) as contents:
        found = [*_unknown(system, function), *uses(system, function)]
        told = {item.device for item in found if not item.overridable}
        disks = {disk.node: disk.partitions for disk in function.disks}
        for item in contents:
            if item.kind == "claimed" and _told(item, told, disks):
                continue  # by whom has been said better
            found.append(item)
        move = binding.to_us(function)
        report = Report(
            "bind",
            function,
            obstacles=tuple(found),
            named=serial is not None,
            steps=move.steps(),
        )
        if report.allowed:
            binding.needs_driver(system, OURS)
        if not (do and report.allowed):
            return report
        binding.remember(system, function)
        try:
            binding.carry_out(system, move)
        except BaseException:
            record.forget(system, function.address)
            raise
    after = read_function(system, function.address)
    return report.finished(after)


def _told(item: Obstacle, told: set[str], disks: dict[str, tuple[str, ...]]) -> bool:
    parts = (f"/dev/{name}" for name in disks[item.device])
    return item.device in told or any(part in told for part in parts)


def _unknown(system: System, function: Function) -> list[Obstacle]:
    """Only the nvme driver knows what a drive holds, and its serial number."""
    if function.driver == binding.KERNELS and function.serial:
        return _unfinished(system, function)
    if function.driver is None:
        holder = "has no driver, so what it holds and who it is cannot be seen"
    elif function.driver == binding.KERNELS:
        holder = "does not answer its nvme driver"
    else:
        holder = f"is with {function.driver}, so what it holds cannot be seen"
    remedy = f"give it to nvme first: {_by_hand(function)}"
    return [
        Obstacle(kind="unknown", device=function.address, holder=holder, remedy=remedy)
    ]


def _unfinished(system: System, function: Function) -> list[Obstacle]:
    """Namespaces appear one by one when a controller starts: none is not empty."""
    node = f"/dev/{function.controller}"
    state = system.text(f"{function.folder}/nvme/{function.controller}/state")
    if state not in (None, "live"):
        holder, remedy = f"is {state}, and not live", f"wait, or see dmesg for {node}"
        return [Obstacle(kind="unknown", device=node, holder=holder, remedy=remedy)]
    if function.disks:
        return []
    holder = "shows no namespace: it has none, or is still looked through"
    remedy = f"wait a moment; nvme list-ns {node} --all tells whether there is one"
    return [Obstacle(kind="unreadable", device=node, holder=holder, remedy=remedy)]


def _by_hand(function: Function) -> str:
    if function.driver is None:
        return f"aiougds unbind {function.address} --yes"
    if function.driver == binding.KERNELS:
        return "the kernel's log says why it does not answer"
    steps = binding.Move(function, binding.KERNELS, "").steps()
    return "; ".join(map(str, steps))


def unbind(args: argparse.Namespace, system: System) -> Report:
    """Give a function back."""
    function = find(system, args.address)
    if not args.yes:
        return _unbind(system, function, do=False)
    with binding.one_at_a_time(system):
        return _unbind(system, read_function(system, function.address), do=True)


def _unbind(system: System, function: Function, *, do: bool) -> Report:
    if function.driver not in (OURS, None):
        return Report("unbind", function, note=f"it is with {function.driver}")
    move = binding.to_the_kernel(system, function)
    found = tuple(uses(system, function))
    report = Report("unbind", function, obstacles=found, steps=move.steps())
    if report.allowed:
        binding.needs_driver(system, move.driver)
    if not (do and report.allowed):
        return report
    binding.carry_out(system, move)
    record.forget(system, function.address)
    return report.finished(read_function(system, function.address))
