"""``aiougds list``: every NVMe function of this machine, and who holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds.cli._common import add_output, add_sysroot
from aiougds.cli._console import Console
from aiougds.cli._host.functions import functions
from aiougds.cli._host.obstacles import uses
from aiougds.cli._host.scene import look_around
from aiougds.cli._host.system import System
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction

    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.obstacles import Obstacle

SCHEMA: Final = 1
COLUMNS: Final = (
    "address", "device", "driver", "model", "serial", "size", "NUMA", "IOMMU group",
    "held by",
)  # fmt: skip


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list", parents=parents, help="show this machine's NVMe functions"
    )
    add_output(parser)
    add_sysroot(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    show(System(args.sysroot), Console(quiet=args.output == "json"))
    return 0


def show(system: System, console: Console) -> None:
    """Print them all."""
    drives = functions(system)
    scene = look_around(system, drives)
    found = [(function, uses(system, function, scene)) for function in drives]
    if console.quiet:
        all_of_it = [describe(function, held) for function, held in found]
        console.json({"schema": SCHEMA, "functions": all_of_it})
        return
    if not found:
        console.line("No NVMe function on the PCI bus.")
        return
    rows = [_row(function, held) for function, held in found]
    console.table("NVMe functions", COLUMNS, rows)
    if any(function.known_from == "bind" for function, _ in found):
        console.line("(*) as the nvme driver read it before aiougds bind")


def _row(function: Function, held: list[Obstacle]) -> list[str]:
    device = function.node or (
        f"/dev/{function.controller}" * bool(function.controller)
    )
    told = "*" if function.known_from == "bind" else ""
    size = function.nbytes
    group = function.iommu_group
    return [
        function.address,
        device or "-",
        function.driver or "-",
        function.model or "-",
        f"{function.serial}{told}" if function.serial else "-",
        "-" if size is None else as_bytes(size),
        "-" if function.numa_node is None else str(function.numa_node),
        "-" if group is None else group,
        ", ".join(dict.fromkeys(map(str, held))) or "-",
    ]


def describe(function: Function, held: list[Obstacle]) -> dict[str, object]:
    """Return the stable form of a function."""
    return {
        "address": function.address,
        "pci_id": function.pci_id,
        "driver": function.driver,
        "driver_override": function.override,
        "controller": function.controller,
        "node": function.node,
        "model": function.model,
        "serial": function.serial,
        "firmware": function.firmware,
        "known_from": function.known_from,
        "nbytes": function.nbytes,
        "numa_node": function.numa_node,
        "iommu_group": function.iommu_group,
        "iommu_type": function.iommu_type,
        "iommu_members": list(function.iommu_members),
        "virtual_functions": function.virtual_functions,
        "namespaces": [
            {
                "node": disk.node,
                "nsid": disk.nsid,
                "nbytes": disk.nbytes,
                "lba_bytes": disk.lba_bytes,
                "partitions": [f"/dev/{name}" for name in disk.partitions],
            }
            for disk in function.disks
        ],
        "held_by": [
            {"kind": item.kind, "device": item.device, "holder": item.holder}
            for item in held
        ],
    }
