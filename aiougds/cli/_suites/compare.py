"""A run beside an earlier one: where they differ by more than their rounds do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiougds.cli._suites.record import COLUMNS
from aiougds.cli._suites.show import number
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from aiougds.cli._console import Console

SHAPE: Final = COLUMNS[1:6]
COMPARED: Final = {
    "setup": "total",
    "sync": "latency",
    "batch": "bandwidth",
    "stream": "latency",
    "poll": "latency",
}
MOST: Final = 40


class Change(NamedTuple):
    """A cell of both: medians, and whether the rounds of the two lie apart."""

    words: str
    unit: str
    before: float
    after: float
    apart: bool


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Return the cells that both have."""
    before = dict(_cells(old))
    for key, (unit, values) in _cells(new):
        if key in before:
            was = before[key][1]
            yield Change(
                _words(key),
                unit,
                was["median"],
                values["median"],
                values["p5"] > was["p95"] or values["p95"] < was["p5"],
            )


def _cells(
    told: Mapping[str, Any],
) -> Iterator[tuple[tuple[Any, ...], tuple[str, Mapping[str, float]]]]:
    for suite in told["suites"]:
        metric = COMPARED[suite["name"]]
        for found in suite["cells"]:
            if metric in found["metrics"]:
                values = found["metrics"][metric]
                key = (suite["name"], *(found[name] for name in SHAPE))
                yield key, (f"{metric}, {values['unit']}", values)


def _words(key: tuple[Any, ...]) -> str:
    suite, side, rw, size, tasks, batch = key
    how = f" x {batch}" if batch else f", {tasks} tasks" if tasks > 1 else ""
    return f"{suite}: {side}, {rw} {as_bytes(size)}{how}"


def show_changes(
    console: Console, old: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    """Print what lies apart, the largest change first, and what else changed."""
    found = list(changes(old, new))
    console.line(f"beside the run of {old['began']} ({old['machine']['aiougds']}):")
    for name in ("processor", "cpus", "python", "loop"):
        was, now = old["machine"][name], new["machine"][name]
        if was != now:
            console.line(f"  another {name}: {was} then, {now} now")
    apart = [change for change in found if change.apart and change.before]
    apart.sort(key=lambda change: abs(change.after / change.before - 1), reverse=True)
    rows = [
        [
            change.words,
            change.unit,
            number(change.before),
            number(change.after),
            f"{change.after / change.before:.2f}",
        ]
        for change in apart[:MOST]
    ]
    if rows:
        heads = ["", "", "then", "now", ""]
        console.table("Apart by more than the rounds", heads, rows)
    console.line(
        f"  {len(found)} in both, {len(apart)} of them apart by more than their rounds"
    )
