"""``aiougds check``: what this machine lacks for a real drive to be used."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from aiougds.cli._common import add_output, add_sysroot
from aiougds.cli._console import Console
from aiougds.cli._failures import FAILED
from aiougds.cli._host.checks import gpu, iommu, memory, nodes, software
from aiougds.cli._host.system import System

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction

    from aiougds.cli._host.checks.finding import Finding

SCHEMA: Final = 1
CHECKS: Final = (
    software.python, software.kernel, software.module, nodes.udev, nodes.nodes,
    iommu.iommu, iommu.groups, memory.memlock, memory.hugepages, gpu.gpu, gpu.p2p,
)  # fmt: skip
STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
EPILOG: Final = "exit status: 0 if nothing fails (warnings aside), 1 if something does"


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "check",
        parents=parents,
        help="tell what is missing for real drives, and the fix",
        epilog=EPILOG,
    )
    add_output(parser)
    add_sysroot(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    return show(findings(System(args.sysroot)), Console(quiet=args.output == "json"))


def findings(system: System) -> list[Finding]:
    """Return all that was found."""
    return [finding for check in CHECKS for finding in check(system)]


def show(found: list[Finding], console: Console) -> int:
    """Print it; return the exit status."""
    statuses = {finding.status for finding in found}
    worst = next(status for status in ("fail", "warn", "ok") if status in statuses)
    if console.quiet:
        checks = [dataclasses.asdict(finding) for finding in found]
        console.json({"schema": SCHEMA, "status": worst, "checks": checks})
    width = max(len(finding.name) for finding in found)
    for finding in found:
        line = f"{finding.status:4}  {finding.name:{width}}  {finding.text}"
        console.line(line, style=STYLES[finding.status])
        if finding.fix:
            console.line(f"{'':6}{'':{width}}  fix: {finding.fix}")
    return FAILED if worst == "fail" else 0
