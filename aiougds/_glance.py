"""A look at a controller of another process, through its statistics segment."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiougds._options import runtime_folder
from aiougds._segment import files, home_of, start_ticks
from aiougds._tallies import (
    STATES,
    TEXT,
    TEXT_END,
    TOLD,
    TOLD_WORDS,
    LatencyHistogram,
    QueueStatistics,
    read_head,
    read_pairs,
    read_rows,
)
from aiougds._timeline import COUNTED, EVENT_WORDS, RING, RING_AT, UNTIL, steady

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiougds._timeline import Event

TRIES: Final = 100
LOOK_S: Final = 0.005
LINGER_S: Final = 0.02  # what was on its way
MOST_BYTES: Final = 1 << 26  # of a file that may be one; 128 queue pairs need 3 MB
EVENT_BYTES: Final = 8 * EVENT_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What was there to see."""

    path: str
    pid: int
    alive: bool
    opened_ns: int
    state: str
    about: Mapping[str, str | int]
    """Address, model, command line and so on."""
    told: Mapping[str, int]
    """Counters of the whole, as old as ``stamp_ns``."""
    queues: tuple[QueueStatistics, ...]
    latencies: tuple[LatencyHistogram, ...]

    @property
    def address(self) -> str:
        """What the controller was opened with."""
        return str(self.about.get("address", ""))


def _open(path: str, flags: int) -> int:
    """Open what may be a segment. The name may be that of a pipe, which would wait."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        os.close(fd)
        raise ValueError("it is no statistics segment")
    return fd


def _exactly(fd: int, nbytes: int, offset: int) -> bytes:
    if nbytes > MOST_BYTES:
        raise ValueError("its head contradicts itself")
    raw = os.pread(fd, nbytes, offset)
    if len(raw) < nbytes:
        raise ValueError("it was cut off")
    return raw


def _told(fd: int) -> tuple[str, dict[str, int]]:
    """Return the words that belong together; the writer takes microseconds."""
    nbytes = 8 + 8 * len(TOLD_WORDS)
    for _ in range(TRIES):
        raw = _exactly(fd, nbytes, TOLD)
        seq = int.from_bytes(raw[:4], sys.byteorder)
        if not seq & 1 and raw[:4] == _exactly(fd, 4, TOLD):
            break
    else:  # it was stopped in the middle
        raw = bytes(nbytes)
    state = int.from_bytes(raw[4:8], sys.byteorder)
    words = memoryview(raw)[8:].cast("Q").tolist()
    name = STATES[state] if state < len(STATES) else "?"
    return name, dict(zip(TOLD_WORDS, words, strict=True))


def _about(text: bytes) -> dict[str, str | int]:
    """Return what is said of the controller; nothing while it is not written yet."""
    try:
        told: object = json.loads(text) if text else {}
    except RecursionError:
        told = None
    if not isinstance(told, dict):
        raise ValueError("it says nothing about a controller")
    said = cast("dict[str, object]", told)
    return {name: value for name, value in said.items() if isinstance(value, str | int)}


def look(path: str) -> Glance:
    """Look at a segment. Raises OSError, and ValueError for what is none."""
    fd = _open(path, os.O_RDONLY)
    try:
        first = _exactly(fd, TEXT_END, 0)
        head = read_head(first)
        state, told = _told(fd)
        raw = _exactly(fd, max(_ends(head.pairs, head.rows)), 0)
    finally:
        os.close(fd)
    memory = memoryview(raw)
    rows = read_rows(memory, head)
    return Glance(
        path=path,
        pid=head.pid,
        alive=bool(head.started) and start_ticks(head.pid) == head.started,
        opened_ns=head.opened_ns,
        state=state,
        about=_about(first[TEXT:].rstrip(b"\0")),
        told=told,
        queues=read_pairs(memory, head, rows),
        latencies=rows,
    )


def _ends(*parts: tuple[int, int, int]) -> list[int]:
    return [offset + stride * count for offset, stride, count in parts]


def record(path: str, spell_s: float) -> tuple[list[Event], int]:
    """Have commands traced for some time; return the events, and how many were lost.

    The ring is read often enough for some hundred thousand events a second. Asking is
    a word in the file that says until when, so nothing goes on if we are killed.
    Raises OSError, and ValueError for what is no segment, or is none any more.
    """
    fd = _open(path, os.O_RDWR)
    try:
        first = _exactly(fd, TEXT_END, 0)
        read_head(first)
        offset, nbytes, count = RING.unpack_from(first, RING_AT)
        if nbytes != EVENT_BYTES or not count:
            raise ValueError("its head contradicts itself")
        begin = int.from_bytes(first[COUNTED : COUNTED + 8], sys.byteorder)
        end = time.monotonic() + spell_s
        until = time.monotonic_ns() + int(spell_s * 1e9)
        os.pwrite(fd, until.to_bytes(8, sys.byteorder), UNTIL)
        found: dict[int, Event] = {}
        over = False
        while not over:
            time.sleep(max(0.0, min(LOOK_S, end + LINGER_S - time.monotonic())))
            over = time.monotonic() >= end + LINGER_S
            copies = [
                memoryview(_exactly(fd, nbytes * count, offset)).cast("Q")
                for _ in range(2)
            ]
            found |= steady(*copies)
        ended = int.from_bytes(_exactly(fd, 8, COUNTED), sys.byteorder)
    finally:
        os.close(fd)
    events = [event for number, event in found.items() if number > begin]
    return events, max(0, ended - begin - len(events))


def everything(folder: str | None = None) -> list[Glance]:
    """Look at all that this user's processes show."""
    where = runtime_folder() if folder is None else folder
    found: list[Glance] = []
    for path in files(home_of(where)) if where else ():
        try:
            found.append(look(path))
        except (OSError, ValueError):
            continue  # closed just now, or not written yet, or of another version
    return found
