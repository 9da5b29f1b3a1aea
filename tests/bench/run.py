"""Runs the lines, prints the table, writes the JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

from bench.line import Line
from bench.stage import Stage, system

GROUPS = (
    "cycles",
    "tallies",
    "lone",
    "cold",
    "overhead",
    "many",
    "first_batch",
    "bulk",
    "beside",
    "adaptive",
    "waiting",
    "opening",
    "memory",
)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure aiougds beside its peers."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines")
    parser.add_argument("--md", action="store_true", help="print Markdown")
    parser.add_argument("--folder", help="where the file to read is made")
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}"
    )
    given = parser.parse_args(argv)
    unknown = set(given.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    return given


def number(value: float | None) -> str:
    """Return three significant digits, or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(line: Line) -> list[str]:
    """Return a line as the table has it."""
    return [
        line.name,
        f"{number(line.ours)} {line.unit}",
        number(line.peer),
        number(line.ratio),
        line.bar,
        "yes" if line.met else "NO",
    ]


HEAD = ["what", "ours", "peer", "ratio", "bar", "met"]


def plain_table(lines: list[Line]) -> str:
    """Return the table in columns."""
    rows = [HEAD, *map(cells, lines)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    table = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    notes = [f"- {line.name}: {line.note}" for line in lines if line.note]
    return "\n".join([*table, "", *notes])


def markdown(lines: list[Line]) -> str:
    """Return the table, and the notes below it, as Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *map(cells, lines)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    notes = "\n".join(f"- {line.name}: {line.note}" for line in lines if line.note)
    return f"{table}\n\n{notes}"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; 0 also when a bar is missed: the table says so."""
    given = arguments(argv)
    stage = Stage(given.folder)
    lines: list[Line] = []
    start = time.monotonic()
    if os.getloadavg()[0] > 0.5:
        print("other programs run on this machine: expect noise", file=sys.stderr)
    try:
        stage.make()
        for group in given.groups or GROUPS:
            module = importlib.import_module(f"bench.{group}")
            began = time.monotonic()
            lines += module.measure(stage)
            print(f"{group}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        stage.close()
    if given.json:
        text = json.dumps([line.record() for line in lines], indent=1)
        given.json.write_text(text + "\n", encoding="utf-8")
    print(markdown(lines) if given.md else plain_table(lines))
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    missed = sum(not line.met for line in lines)
    print(
        f"\n{len(lines) - missed} met, {missed} missed; {system()}; load {load}; "
        f"{time.monotonic() - start:.0f} s"
    )
    return 0
