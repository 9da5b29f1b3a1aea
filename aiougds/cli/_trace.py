"""``aiougds trace``: the life of single commands of a running process, from outside."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiougds._glance import record
from aiougds._timeline import chrome, timelines
from aiougds.cli._common import add_output
from aiougds.cli._console import Console
from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._top import chosen, listed
from aiougds.cli._units import as_time, count, filepath, seconds

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction

    from aiougds._glance import Glance
    from aiougds._timeline import CommandTimeline

SCHEMA: Final = 1
COLUMNS: Final = (
    "at", "queue", "id", "command", "class", "bytes", "block", "waited", "doorbell",
    "device", "future", "task", "status",
)  # fmt: skip


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "trace", parents=parents, help="record commands of a running process"
    )
    parser.add_argument(
        "target", metavar="PID|ADDRESS", help="of a process, or a controller"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument(
        "--last", type=count, default=40, metavar="N", help="print so many (default 40)"
    )
    parser.add_argument(
        "--chrome",
        type=filepath,
        metavar="FILE",
        help="write all of them for chrome://tracing and Perfetto",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    spell_s: float = args.seconds
    if not 0 < spell_s <= 600:
        raise UsageError(f"--seconds {spell_s:g} is outside 0 .. 600")
    found = chosen(args.target)
    if len(found) > 1:
        raise UsageError(
            f"{args.target!r} is {len(found)} controllers: {listed(found)}; one at a "
            "time"
        )
    (glance,) = found
    began = time.monotonic_ns()
    try:
        events, lost = record(glance.path, spell_s)
    except ValueError as error:
        raise CommandError(f"{glance.path}: {error}") from error
    lines = timelines(events)
    console = Console(quiet=args.output == "json")
    chrome_file: Path | None = args.chrome
    if chrome_file is not None:
        _export(chrome_file, glance, lines)
    if console.quiet:
        console.json(
            {
                "schema": SCHEMA,
                "pid": glance.pid,
                "address": glance.address,
                "lost_events": lost,
                "commands": [describe(line) for line in lines],
            }
        )
        return 0
    show(console, lines[-args.last :], began)
    console.line(f"{len(lines)} commands in {spell_s:g} s, {lost} events lost")
    if chrome_file is not None:
        console.line(f"{chrome_file}: open it in https://ui.perfetto.dev")
    return 0


def _export(path: Path, glance: Glance, lines: list[CommandTimeline]) -> None:
    text = json.dumps(chrome(lines, glance.pid, glance.address))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {os.strerror(error.errno or 0)}") from error


def describe(line: CommandTimeline) -> dict[str, object]:
    """Return the stable form of a command's life."""
    return {
        "command": line.command,
        "io_class": line.io_class,
        "queue_id": line.queue_id,
        "command_id": line.command_id,
        "nbytes": line.nbytes,
        "slba": line.slba,
        "status": line.status,
        "submitted_ns": line.submitted_ns,
        "queued_ns": line.queued_ns,
        "doorbell_ns": line.doorbell_ns,
        "completed_ns": line.completed_ns,
        "future_ns": line.future_ns,
        "resumed_ns": line.resumed_ns,
    }


def _between(begin: int | None, end: int | None) -> str:
    return "-" if begin is None or end is None else as_time(end - begin)


def show(console: Console, lines: list[CommandTimeline], began: int) -> None:
    """Print them; each time is since the point before it."""
    rows = [
        [
            as_time(max(0, line.submitted_ns - began)),
            str(line.queue_id),
            f"{line.command_id:#x}",
            line.command or "?",
            line.io_class or "?",
            str(line.nbytes),
            str(line.slba),
            _between(line.submitted_ns, line.queued_ns),
            _between(line.queued_ns, line.doorbell_ns),
            _between(line.doorbell_ns or line.queued_ns, line.completed_ns),
            _between(line.completed_ns, line.future_ns),
            _between(line.future_ns, line.resumed_ns),
            f"{line.status:#x}" if line.status else "ok",
        ]
        for line in lines
    ]
    if rows:
        console.table("commands", COLUMNS, rows)
