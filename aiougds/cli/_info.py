"""``aiougds info``: what a controller is, what it can do, and its namespaces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, cast

import aiougds
from aiougds._errors import CapabilityError
from aiougds.cli._common import add_output, run_on
from aiougds.cli._console import Console
from aiougds.cli._guard import embedded_path, is_embedded
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction

    from aiougds import Controller

NAMESPACE_KEYS: Final = ("nsid", "nbytes", "lba_bytes", "blocks", "usable", "reason")


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "info", parents=parents, help="show a controller and its namespaces"
    )
    parser.add_argument("address", metavar="ADDRESS", help="of a controller")
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    address: str = args.address
    console = Console(quiet=args.output == "json")
    return run_on("asyncio", lambda: _show(address, console))


async def _show(address: str, console: Console) -> int:
    # Memory is new with each open: there is nothing that reading only would protect.
    readonly = not is_embedded(address) or bool(embedded_path(address))
    async with aiougds.open_controller(address, readonly=readonly) as controller:
        info = dataclasses.asdict(controller.info)
        capabilities = dataclasses.asdict(controller.capabilities)
        namespaces = [_space(controller, nsid) for nsid in controller.namespaces()]
        state = controller.state
    if console.quiet:
        console.json(
            {
                "address": address,
                "state": state,
                "controller": info,
                "capabilities": capabilities,
                "namespaces": namespaces,
            }
        )
        return 0
    console.pairs(
        f"Controller {address}",
        {"state": state} | {name: _word(name, info[name]) for name in info},
    )
    console.pairs(
        "Capabilities",
        {name: _word(name, capabilities[name]) for name in capabilities},
    )
    columns = NAMESPACE_KEYS[:-1]
    console.table(
        "Namespaces",
        columns,
        [[_word(key, space[key]) for key in columns] for space in namespaces],
    )
    for space in namespaces:
        if space["reason"]:
            console.line(f"{space['reason']}")
    return 0


def _space(controller: Controller, nsid: int) -> dict[str, object]:
    """Describe a namespace; one of a format that is refused says why."""
    values: tuple[object, ...]
    try:
        ns = controller.namespace(nsid)
    except CapabilityError as error:
        values = (nsid, None, None, None, False, str(error))
    else:
        values = (nsid, ns.size, ns.lba_bytes, ns.size // ns.lba_bytes, True, "")
    return dict(zip(NAMESPACE_KEYS, values, strict=True))


def _word(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "cap" and isinstance(value, int):
        return f"{value:#018x}"
    if name == "mdts_bytes" and not value:
        return "no limit"
    if name in ("size", "nbytes") or name.endswith("_bytes"):
        return as_bytes(value) if isinstance(value, int) else str(value)
    if isinstance(value, tuple):
        return ".".join(map(str, cast("tuple[object, ...]", value)))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
