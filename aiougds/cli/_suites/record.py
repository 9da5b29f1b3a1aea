"""What the suites found: records with stable names, as JSON and as CSV.

Version 1. A cell is what one side did in one shape; its metrics have the median of the
rounds, and their 5th and 95th percentiles. The CSV has a line for each metric of each
cell, with the same numbers.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aiougds.cli._failures import UsageError
from aiougds.cli._suites.turns import Spread, spread

if TYPE_CHECKING:
    from aiougds.cli._suites.place import Device, Machine

SCHEMA: Final = "aiougds-bench"
VERSION: Final = 1
COLUMNS: Final = (
    "suite", "side", "rw", "size", "tasks", "batch", "rounds", "metric", "unit",
    "median", "p5", "p95",
)  # fmt: skip
UNITS: Final = {
    "bandwidth": "MiB/s",
    "steady_bandwidth": "MiB/s",
    "latency": "us",
    "p50": "us",
    "p99": "us",
    "cpu": "us/op",
    "cpu_share": "%",
    "first": "us",
    "later": "us",
    "import": "ms",
    "open": "ms",
    "register": "ms",
    "first_read": "ms",
    "total": "ms",
    "sequential": "ms",
    "overlapped": "ms",
    "pipelined": "ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a side did in a shape; ``metrics`` are in :data:`UNITS`."""

    side: str
    rw: str
    size: int
    tasks: int
    batch: int
    rounds: int
    metrics: dict[str, Spread]


def cell(
    side: str,
    rw: str,
    rounds: list[Mapping[str, float]],
    *,
    size: int = 0,
    tasks: int = 1,
    batch: int = 0,
) -> Cell:
    """Make one of what each round measured."""
    return Cell(
        side=side,
        rw=rw,
        size=size,
        tasks=tasks,
        batch=batch,
        rounds=len(rounds),
        metrics={name: spread(found[name] for found in rounds) for name in rounds[0]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRecord:
    """Who was asked for; ``why_not`` says why it has no cells."""

    name: str
    how: str
    version: str
    why_not: str


@dataclass(slots=True, kw_only=True)
class SuiteRecord:
    """An experiment; ``why_not`` says why it did not run."""

    name: str
    section: str
    title: str
    method: str
    seconds: float = 0.0
    why_not: str = ""
    device: Device | None = None
    sides: list[SideRecord] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run."""

    schema: str = SCHEMA
    version: int = VERSION
    began: str
    command: list[str]
    machine: Machine
    repeat: int
    duration_s: float
    warmup_s: float
    suites: list[SuiteRecord]


def as_json(report: Report) -> dict[str, Any]:
    """Return it as JSON has it; each metric with its unit."""
    told = asdict(report)
    for suite in told["suites"]:
        for found in suite["cells"]:
            found["metrics"] = {
                name: {"unit": UNITS[name], **values}
                for name, values in found["metrics"].items()
            }
    return told


def lines(told: Mapping[str, Any]) -> Iterator[list[object]]:
    """Return the lines of the CSV of what :func:`as_json` returned."""
    for suite in told["suites"]:
        for found in suite["cells"]:
            shape = [found[name] for name in COLUMNS[1:7]]
            for name, values in found["metrics"].items():
                numbers = [values[key] for key in COLUMNS[8:]]
                yield [suite["name"], *shape, name, *numbers]


def write_json(path: Path, told: Mapping[str, Any]) -> None:
    """Write the whole record."""
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def write_csv(path: Path, told: Mapping[str, Any]) -> None:
    """Write all cells, a line for each metric."""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(lines(told))


def read_json(path: Path) -> dict[str, Any]:
    """Read a record; UsageError when it is none, or of another version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise UsageError(f"{path} is no JSON: {exc}") from exc
    told = cast("dict[str, Any]", found)
    if not isinstance(found, dict) or told.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} is no record of aiougds bench --suite: give a file that its "
            "--json wrote"
        )
    if told.get("version") != VERSION:
        raise UsageError(
            f"{path} is of version {told.get('version')} of the record, and this is "
            f"{VERSION}: measure again"
        )
    return told
