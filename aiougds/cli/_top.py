"""``aiougds top``: what a running process does with its controllers, from outside."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

from aiougds._glance import everything, look
from aiougds._options import runtime_folder
from aiougds._segment import files, home_of
from aiougds._tallies import added
from aiougds.cli._common import add_output
from aiougds.cli._console import Console
from aiougds.cli._failures import INTERRUPTED, CommandError, UsageError
from aiougds.cli._screen import Screen, at_screen, printable
from aiougds.cli._units import as_rate, as_time, seconds

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Iterable, Mapping, Sequence

    from aiougds._glance import Glance
    from aiougds._tallies import LatencyHistogram, QueueStatistics

SCHEMA: Final = 1
RATES: Final = (
    "reads", "writes", "others", "read_bytes", "write_bytes", "errors", "retries",
    "commands", "doorbells", "inline_completions", "wakeups",
)  # fmt: skip
COUNTS: Final = (
    "errors", "retries", "timeouts", "cancels", "aborts", "resets", "stragglers",
    "unknown_cids", "dropped", "adopted",
)  # fmt: skip
QUEUES: Final = ("queue", "kind", "depth", "in flight", "per s", "p50", "p99", "max")
KINDS: Final = ("class", "command", "up to", "per s", "rate", "p50", "p99", "max")
SPARE: Final = ("max", "kind", "depth", "rate", "up to", "p50", "in flight")


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "top", parents=parents, help="watch the controllers of running processes"
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="PID|ADDRESS",
        help="of one process, or one controller (default: all of this user)",
    )
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument(
        "--once", action="store_true", help="show one interval, and end"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    interval_s: float = args.interval
    target: str | None = args.target
    if not 0 < interval_s <= 3600:
        raise UsageError(f"--interval {interval_s:g} s is outside 0 .. 3600 s")
    before = {glance.path: glance for glance in chosen(target)}
    if args.once or args.output == "json" or not at_screen():
        return _print(before, args)
    try:
        return _draw(before, target, interval_s)
    except KeyboardInterrupt:  # how it is left
        return INTERRUPTED


def _print(before: dict[str, Glance], args: argparse.Namespace) -> int:
    """Print one interval after another, or one."""
    console = Console(quiet=args.output == "json")
    while True:
        time.sleep(args.interval)
        now = chosen(args.target, seen=bool(before))
        report = [describe(glance, before.get(glance.path)) for glance in now]
        if console.quiet and args.once:
            console.json({"schema": SCHEMA, "controllers": report})
        elif console.quiet:
            line = {"schema": SCHEMA, "controllers": report}
            print(json.dumps(line, separators=(",", ":")), flush=True)
        else:
            for glance in now:
                show(console, glance, before.get(glance.path))
            if not now:
                console.line("It has ended.")
        if args.once or not now:
            return 0
        before = {glance.path: glance for glance in now}


def _draw(before: dict[str, Glance], target: str | None, interval_s: float) -> int:
    """Show intervals in place of each other."""
    now = list(before.values())
    while now:
        screen = Screen(SPARE)
        for glance in now:
            # What was there first is shown as it has been since it was opened.
            was = before.get(glance.path)
            show(screen, glance, None if was is glance else was)
        screen.draw()
        before = {glance.path: glance for glance in now}
        time.sleep(interval_s)
        now = chosen(target, seen=True)
    print("It has ended.")
    return 0


def chosen(target: str | None, *, seen: bool = False) -> list[Glance]:
    """Return what is to be watched; nothing there is an error, unless it was seen."""
    if not runtime_folder():
        raise UsageError(
            "XDG_RUNTIME_DIR is not set, and it is the folder that processes show "
            "their controllers in; set it to that of the process to be watched: as a "
            f"rule it is /run/user/{os.geteuid()}"
        )
    found = [glance for glance in everything() if glance.alive]
    here = [glance for glance in found if target is None or matches(glance, target)]
    if here or seen:
        return here
    if target is None:
        raise CommandError(
            "no process of this user shows a controller (they do unless opened with "
            "statistics_segment=False)"
        )
    raise CommandError(f"{_absent(target)}; there are: {listed(found)}")


def listed(found: Iterable[Glance]) -> str:
    """Return them in a line."""
    names = [f"{glance.pid} {printable(glance.address)}" for glance in found]
    return ", ".join(names) or "none"


def _absent(target: str) -> str:
    """Say why nothing can be seen of what was asked for."""
    if not target.isdecimal():
        return f"nothing here is {target!r}"
    try:
        user = os.stat(f"/proc/{int(target)}").st_uid
    except OSError:
        return f"there is no process {target}"
    for path in files(home_of(runtime_folder())):
        if os.path.basename(path).startswith(f"{int(target)}-"):
            try:
                look(path)
            except (OSError, ValueError) as error:
                return f"{path}: {error}"
    if user != os.geteuid():
        return (
            f"process {target} belongs to user {user}, who alone sees its controllers, "
            "with the XDG_RUNTIME_DIR that it has"
        )
    return (
        f"process {target} shows no controller here: it has none open, or with "
        "statistics_segment=False, or with another XDG_RUNTIME_DIR"
    )


def matches(glance: Glance, target: str) -> bool:
    """Whether it is of that process, or was opened with that address."""
    if target.isdecimal():
        return glance.pid == int(target)
    return target in (glance.address, glance.address.partition("?")[0])


def _since(
    rows: Iterable[LatencyHistogram], before: Iterable[LatencyHistogram]
) -> list[LatencyHistogram]:
    """Return what came in between; queue, class, command and size tell them apart."""
    old = {
        (row.queue_id, row.io_class, row.command, row.max_bytes): row for row in before
    }
    found: list[LatencyHistogram] = []
    for row in rows:
        was = old.get((row.queue_id, row.io_class, row.command, row.max_bytes))
        new = row if was is None else row.since(was)
        if new.commands > 0:
            found.append(new)
    return found


def _elapsed(now: Glance, before: Glance | None) -> tuple[float, dict[str, float]]:
    """Return rates per second between two looks by the writer.

    Since it was opened, if there was none before. What lies between two looks of the
    reader may be no look of the writer, or two.
    """
    old: Mapping[str, int] = before.told if before is not None else {}
    start = old.get("stamp_ns") or now.opened_ns
    spent = (now.told["stamp_ns"] - start) / 1e9
    names = (*RATES, "executor_cpu_ns", "housekeeping_cpu_ns")
    if spent <= 0:
        return 0.0, dict.fromkeys(names, 0.0)
    return spent, {name: (now.told[name] - old.get(name, 0)) / spent for name in names}


def _percentiles(row: LatencyHistogram) -> dict[str, float]:
    return {
        "p50_us": round(row.percentile(50) * 1e6, 3),
        "p99_us": round(row.percentile(99) * 1e6, 3),
        "max_us": round(row.max_s * 1e6, 3),
    }


def describe(now: Glance, before: Glance | None) -> dict[str, object]:
    """Return the stable form of a controller in an interval."""
    spent_s, rates = _elapsed(now, before)
    recent = _since(now.latencies, before.latencies if before else ())
    return {
        "pid": now.pid,
        **now.about,
        "state": now.state,
        "interval_s": round(spent_s, 6),
        "per_second": {name: round(rates[name], 3) for name in RATES},
        "executor_cpu": round(rates["executor_cpu_ns"] / 1e9, 4),
        "housekeeping_cpu": round(rates["housekeeping_cpu_ns"] / 1e9, 4),
        "totals": {
            name: value
            for name, value in now.told.items()
            if name not in ("stamp_ns", "executor_cpu_ns", "housekeeping_cpu_ns")
        },
        "queues": [
            {
                "queue_id": queue.queue_id,
                "kind": queue.kind,
                "depth": queue.depth,
                "inflight": queue.inflight,
                "commands": queue.commands,
                "recent": _recent(recent, queue),
            }
            for queue in now.queues
        ],
        "recent": [
            {
                "queue_id": row.queue_id,
                "io_class": row.io_class,
                "command": row.command,
                "max_bytes": row.max_bytes,
                "commands": row.commands,
                "nbytes": row.nbytes,
                "errors": row.errors,
                **_percentiles(row),
            }
            for row in recent
        ],
    }


def _recent(
    rows: Sequence[LatencyHistogram], queue: QueueStatistics
) -> dict[str, float]:
    row = added(row for row in rows if row.queue_id == queue.queue_id)
    return {"commands": row.commands, **_percentiles(row)}


# ---- for people ----


def _times(row: LatencyHistogram) -> list[str]:
    if not row.commands:
        return ["-", "-", "-"]
    times = (row.percentile(50), row.percentile(99), row.max_s)
    return [as_time(value * 1e9) for value in times]


def show(console: Console | Screen, now: Glance, before: Glance | None) -> None:
    """Print a controller in an interval."""
    spent_s, rates = _elapsed(now, before)
    told = now.told
    recent = _since(now.latencies, before.latencies if before else ())
    span = spent_s or 1.0
    mode = printable(str(now.about.get("mode", "?")))
    console.line(f"{printable(now.address)}, process {now.pid}", style="bold")
    console.line(f"  {printable(str(now.about.get('command', '')))}")
    console.line(
        f"  {now.state}, mode {mode}; in flight "
        f"{told['inflight']}, waiting {told['queued']}, loops and threads "
        f"{told['channels']}, mappings {told['mappings']}, quarantined "
        f"{told['quarantined']}"
    )
    console.line(
        f"  reads {rates['reads']:.0f}/s {as_rate(rates['read_bytes'])}, writes "
        f"{rates['writes']:.0f}/s {as_rate(rates['write_bytes'])}, others "
        f"{rates['others']:.0f}/s"
    )
    console.line(
        f"  completed inline {rates['inline_completions']:.0f}/s, wake-ups "
        f"{rates['wakeups']:.0f}/s, doorbells {rates['doorbells']:.0f}/s; executor "
        f"{rates['executor_cpu_ns'] / 1e7:.1f} % of a core, housekeeping "
        f"{rates['housekeeping_cpu_ns'] / 1e7:.1f} %"
    )
    odd = ", ".join(f"{name} {told[name]}" for name in COUNTS if told[name])
    if odd:
        console.line(f"  {odd}", style="yellow")
    rows: list[list[str]] = []
    for queue in now.queues:
        mine = added(row for row in recent if row.queue_id == queue.queue_id)
        if queue.commands:
            rows.append(_queue_row(queue, mine, span, now.about.get("executor_queue")))
    if rows:
        console.table("queue pairs in use", QUEUES, rows)
    kinds = sorted({_kind(row) for row in recent})
    if kinds:
        console.table(
            "commands",
            KINDS,
            [
                _kind_row(added(row for row in recent if _kind(row) == kind), span)
                for kind in kinds
            ],
        )
    console.line()


def _queue_row(
    queue: QueueStatistics, row: LatencyHistogram, span: float, executor: object
) -> list[str]:
    kind = "executor" if queue.queue_id == executor else queue.kind
    return [
        str(queue.queue_id), kind, str(queue.depth), str(queue.inflight),
        f"{row.commands / span:.0f}", *_times(row),
    ]  # fmt: skip


def _kind(row: LatencyHistogram) -> tuple[str, str, int]:
    return row.io_class or "any", row.command or "any", row.max_bytes or 1 << 62


def _kind_row(row: LatencyHistogram, span: float) -> list[str]:
    cls, command, size = _kind(row)
    limit = "more" if size == 1 << 62 else f"{size >> 10} KiB"
    return [
        cls, command, limit,
        f"{row.commands / span:.0f}", as_rate(row.nbytes / span), *_times(row),
    ]  # fmt: skip
