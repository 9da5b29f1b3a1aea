"""The life of single commands, out of the ring that the engine traces them in.

The layout is of ``docs/how-to/observability.md``; nothing here needs the library.
"""

from __future__ import annotations

import bisect
import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds._tallies import CLASSES, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds._options import IoClass
    from aiougds._tallies import CommandName

UNTIL: Final = 256
COUNTED: Final = 320
RING: Final = struct.Struct("<3I")
RING_AT: Final = 72
EVENT_WORDS: Final = 8
COMMAND, DOORBELL, FUTURE, RESUMED = 1, 2, 3, 4

Event = tuple[int, ...]
"""Number, time, token, start, sent, first block, where, what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTimeline:
    """When a command came to each point of its way; ``CLOCK_MONOTONIC`` ns.

    None: it did not come there (an inline completion has no future), or that is not
    told: only event loops of asyncio tell when a task goes on.
    """

    command: CommandName | None
    """Which command."""
    io_class: IoClass | None
    """Class of its operation."""
    queue_id: int
    """Queue pair."""
    command_id: int
    """Identifier there (CID)."""
    nbytes: int
    """What it was to move."""
    slba: int
    """First block."""
    status: int
    """NVMe status; 0: success."""
    submitted_ns: int
    """The call that asked for it; of the last one, for an item of a batch."""
    queued_ns: int
    """It was put into the submission queue."""
    doorbell_ns: int | None
    """The doorbell that covers it was written."""
    completed_ns: int
    """Its completion was seen."""
    future_ns: int | None
    """Its waiter was told."""
    resumed_ns: int | None
    """The waiting task went on."""


def events_of(words: memoryview) -> dict[int, Event]:
    """Return the events that a copy of the ring holds, by number."""
    total = len(words) // EVENT_WORDS
    flat = words.tolist()
    found: dict[int, Event] = {}
    for i in range(total):
        number = flat[i * EVENT_WORDS]
        if number and (number - 1) % total == i:
            found[number] = tuple(flat[i * EVENT_WORDS : (i + 1) * EVENT_WORDS])
    return found


def steady(first: memoryview, second: memoryview) -> dict[int, Event]:
    """Return the events of a first copy that were whole: still there in a second.

    A writer takes the number away before it changes anything else.
    """
    left = events_of(second)
    return {n: event for n, event in events_of(first).items() if n in left}


class _Marks:
    """Times by key; the first one from some time on."""

    def __init__(self) -> None:
        self._times: defaultdict[object, list[int]] = defaultdict(list)

    def add(self, key: object, ns: int) -> None:
        bisect.insort(self._times[key], ns)

    def first(self, key: object, since_ns: int) -> int | None:
        times = self._times.get(key, [])
        at = bisect.bisect_left(times, since_ns)
        return times[at] if at < len(times) else None


def timelines(events: Iterable[Event]) -> list[CommandTimeline]:
    """Put together what belongs to each command, in the order they were sent."""
    commands: list[Event] = []
    marks = _Marks()
    for event in sorted(events):
        _, ns, token, _, _, _, where, what = event
        kind = what & 0xFF
        if kind == COMMAND:
            commands.append(event)
        elif kind == DOORBELL:
            marks.add((DOORBELL, where >> 32 & 0xFFFF), ns)
        else:
            marks.add((kind, what >> 32 & 0xFFFF, token), ns)
    found = [_timeline(event, marks) for event in commands]
    return sorted(found, key=lambda line: line.queued_ns)


def _timeline(event: Event, marks: _Marks) -> CommandTimeline:
    _, ns, token, start, sent, slba, where, what = event
    queue_id, channel = where >> 32 & 0xFFFF, what >> 32 & 0xFFFF
    cls = what >> 16 & 0xFF
    rung = marks.first((DOORBELL, queue_id), sent)
    return CommandTimeline(
        command=COMMANDS.get(what >> 8 & 0xFF),
        io_class=CLASSES[cls] if cls < len(CLASSES) else None,
        queue_id=queue_id,
        command_id=where >> 48,
        nbytes=where & 0xFFFFFFFF,
        slba=slba,
        status=what >> 48,
        submitted_ns=start,
        queued_ns=sent,
        doorbell_ns=rung if rung is not None and rung <= ns else None,
        completed_ns=ns,
        future_ns=marks.first((FUTURE, channel, token), ns),
        resumed_ns=marks.first((RESUMED, channel, token), ns),
    )


def chrome(lines: Iterable[CommandTimeline], pid: int, name: str) -> dict[str, object]:
    """Return them as ``chrome://tracing`` and Perfetto read them.

    Each is an asynchronous slice of its queue pair, with its phases inside.
    """
    told: list[dict[str, object]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    ]
    for number, line in enumerate(lines):
        title = f"{line.command or 'command'} {line.nbytes} B"
        end = line.resumed_ns or line.future_ns or line.completed_ns
        phases = (
            ("waits for room", line.submitted_ns, line.queued_ns),
            ("doorbell", line.queued_ns, line.doorbell_ns),
            ("device", line.doorbell_ns or line.queued_ns, line.completed_ns),
            ("to the future", line.completed_ns, line.future_ns),
            ("to the task", line.future_ns, line.resumed_ns),
        )
        common: dict[str, object] = {
            "cat": "nvme", "id": number, "pid": pid, "tid": line.queue_id,
        }  # fmt: skip
        args = {
            "slba": line.slba, "cid": line.command_id, "class": line.io_class,
            "status": line.status,
        }  # fmt: skip
        whole = {**common, "name": title}
        told.append({**whole, "ph": "b", "ts": line.submitted_ns / 1e3, "args": args})
        for phase, begin, until in phases:
            if begin is None or until is None or until < begin:
                continue
            part = {**common, "name": phase}
            told.append({**part, "ph": "b", "ts": begin / 1e3})
            told.append({**part, "ph": "e", "ts": until / 1e3})
        # Last, since readers keep the order of what is of the same time.
        told.append({**whole, "ph": "e", "ts": end / 1e3})
    return {"traceEvents": told, "displayTimeUnit": "ns"}
