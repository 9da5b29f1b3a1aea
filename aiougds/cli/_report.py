"""What ``aiougds bench`` found: records with stable names, and their table."""

from __future__ import annotations

import dataclasses
from array import array
from typing import TYPE_CHECKING

from aiougds.cli._latency import PERCENTILES, Distribution
from aiougds.cli._suites.place import show_machine
from aiougds.cli._units import as_bytes, as_count, as_rate, as_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds.cli._console import Console
    from aiougds.cli._load import Plan
    from aiougds.cli._suites.place import Machine


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """Reads, or writes, of a run. Latency is of one await: of a batch, if batched."""

    operations: int
    iops: float
    bytes_per_s: float
    awaits: int
    latency_us: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run: what was asked for, where it ran, and what came of it."""

    address: str
    transport: str
    model: str
    loop: str
    mode: str
    plan: Plan
    seconds: float
    read: Direction | None
    write: Direction | None
    cpu_us_per_operation: float
    controller: dict[str, int]
    machine: Machine


def direction(parts: Iterable[array[int]], plan: Plan, took: float) -> Direction | None:
    """Sum up the latencies of all workers; None when there were none."""
    spread = Distribution(parts)
    if not spread.n:
        return None
    operations = spread.n * max(1, plan.batch)
    return Direction(
        operations=operations,
        iops=round(operations / took, 1),
        bytes_per_s=round(operations * plan.size / took, 1),
        awaits=spread.n,
        latency_us=spread.as_us(),
    )


def show(console: Console, report: Report) -> None:
    """Print it for people."""
    plan = report.plan
    how = f"batches of {plan.batch}" if plan.batch else "single awaits"
    console.line(show_machine(report.machine))
    console.line(f"{report.address}: {report.model} ({report.transport})", style="bold")
    console.line(
        f"{plan.pattern} {plan.rw}, {as_bytes(plan.size)}, {how}, {plan.depth} at a "
        f"time, {report.mode} on {report.loop}, over {as_bytes(plan.span)}, "
        f"{report.seconds:.1f} s"
    )
    sides = [
        (label, side)
        for label, side in (("read", report.read), ("write", report.write))
        if side is not None
    ]
    rows = [
        ["IOPS", *(as_count(side.iops) for _, side in sides)],
        ["bandwidth", *(as_rate(side.bytes_per_s) for _, side in sides)],
    ]
    for name in ("min", "mean", *(f"p{p:g}" for p in PERCENTILES), "max"):
        key = name.replace(".", "_")
        rows.append([name, *(as_time(s.latency_us[key] * 1e3) for _, s in sides)])
    console.table("Latency of one await", ["", *(label for label, _ in sides)], rows)
    console.line(f"CPU: {report.cpu_us_per_operation:.2f} us per operation")
    counted = ", ".join(
        f"{as_count(value)} {name.replace('_', ' ')}"
        for name, value in report.controller.items()
    )
    console.line(f"Controller, warm-up included: {counted}")
    if report.transport == "emu":
        console.line(
            "This is the embedded controller: it measures the engine and the page "
            "cache, not an SSD."
        )
