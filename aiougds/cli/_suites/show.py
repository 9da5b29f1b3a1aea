"""The suites for people: a table for each metric, and who is not in it, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from aiougds.cli._suites.record import UNITS
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiougds.cli._console import Console
    from aiougds.cli._suites.record import Cell, SuiteRecord

TITLES: Final = {
    "bandwidth": "Bandwidth",
    "steady_bandwidth": "Bandwidth after the first batch",
    "latency": "Mean latency of an await",
    "p50": "Median latency of an await",
    "p99": "99th percentile of the latency of an await",
    "cpu": "Processor time",
    "cpu_share": "Processors kept busy",
    "first": "First batch",
    "later": "Later batches, the median",
    "sequential": "One after another",
    "overlapped": "Each transfer beside its work",
    "pipelined": "All enqueued, then waited for",
}
STAGES: Final = ("import", "open", "register", "first_read", "total")


def note(text: str) -> None:
    """Say at a terminal what goes on; the next line of the report covers it."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K\r", end="", file=sys.stderr, flush=True)


def show_suite(console: Console, record: SuiteRecord, shown: Sequence[str]) -> None:
    """Print a suite that ran, or why it did not."""
    console.line(f"{record.name} (paper, {record.section}): {record.title}")
    if record.why_not:
        console.line(f"  not measured: {record.why_not}")
        return
    if record.device is not None:
        console.line(f"  {record.device.address}: {record.device.label}")
        if record.device.memory != "host":
            console.line(f"  memory of {record.device.memory}")
    console.line(f"  {record.method}; {record.seconds:.0f} s")
    if record.cells:
        if shown[0] in STAGES:
            _stages(console, record.cells)
        else:
            for metric in shown:
                _metric(console, record.cells, metric)
        console.line(spread_words(record.cells, shown))
    for side in record.sides:
        if side.why_not:
            console.line(f"  {side.name} is missing: {side.why_not}")
    console.line()


def _stages(console: Console, cells: Sequence[Cell]) -> None:
    rows = [
        [found.side, *(number(found.metrics[name].median) for name in STAGES)]
        for found in cells
    ]
    heads = [name.replace("_", " ") for name in STAGES]
    console.table("Medians, ms", ["", *heads], rows)


def _metric(console: Console, cells: Sequence[Cell], metric: str) -> None:
    cells = [found for found in cells if metric in found.metrics]
    sides = list(dict.fromkeys(found.side for found in cells))
    values = {
        (shape(found), found.side): found.metrics[metric].median for found in cells
    }
    rows = [
        [words, *(number(values.get((words, side))) for side in sides)]
        for words in dict.fromkeys(shape(found) for found in cells)
    ]
    console.table(f"{TITLES[metric]}, {UNITS[metric]}", ["", *sides], rows)


def shape(found: Cell) -> str:
    """Say what a cell moved."""
    words = f"{found.rw} {as_bytes(found.size)}"
    if found.batch:
        return f"{words} x {found.batch}"
    return f"{words}, {found.tasks} task{'s' if found.tasks > 1 else ''}"


def number(value: float | None) -> str:
    """Return three significant digits, or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread_words(cells: Iterable[Cell], shown: Sequence[str]) -> str:
    """Say how far the rounds are apart, in half of the cells and in the worst."""
    apart = sorted(
        (values.p95 - values.p5) / values.median
        for found in cells
        for name, values in found.metrics.items()
        if name in shown and values.median
    )
    return (
        f"  spread of the rounds (95th less 5th percentile, of the median): "
        f"{apart[len(apart) // 2]:.0%} in the middle, {apart[-1]:.0%} at worst"
    )
