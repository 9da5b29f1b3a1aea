"""What queue pairs have done, out of the memory that the engine counts in.

The layout is of ``docs/how-to/observability.md``, and the same inside the process and
in a file; nothing here needs the library that wrote it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiougds._options import IoClass

CommandName = Literal[
    "read", "write", "flush", "compare", "write_zeroes", "deallocate", "verify"
]
"""An NVMe command that moves data, as statistics and traces name it."""

MAGIC: Final = b"UGDSTALY"
VERSION: Final = 1
ANY: Final = 0xFF
CLASSES: Final[tuple[IoClass, ...]] = ("normal", "latency", "background")
COMMANDS: Final[dict[int, CommandName]] = {
    0: "flush", 1: "write", 2: "read", 5: "compare",
    8: "write_zeroes", 9: "deallocate", 12: "verify",
}  # fmt: skip
KINDS: Final[dict[int, Literal["general", "batch"]]] = {1: "general", 2: "batch"}
SIZES: Final = 12
BUCKETS: Final = 480
UNIT_NS: Final = 16

HEAD: Final = struct.Struct("<8s4I3Q6I")
PAIR: Final = struct.Struct("<HHBBHI52xQQ")
ROW: Final = struct.Struct("<IHBBB7xQQQQQ")
ROW_HEAD: Final = 64
TOLD: Final = 512
TEXT: Final = 1024
TEXT_END: Final = 4096
TOLD_WORDS: Final = (
    "stamp_ns", "reads", "writes", "others", "read_bytes", "write_bytes", "errors",
    "retries", "commands", "doorbells", "inline_completions", "wakeups",
    "unknown_cids", "stragglers", "timeouts", "cancels", "aborts", "resets", "dropped",
    "adopted", "inflight", "queued", "mappings", "channels", "quarantined",
    "free_queues", "executor_cpu_ns", "housekeeping_cpu_ns",
)  # fmt: skip
STATES: Final = ("live", "resetting", "wedged", "removed", "closed")


def bucket_low_ns(i: int) -> int:
    """Return where a bucket begins; it ends where the next one does."""
    shift = 0 if i < 32 else i // 16 - 1
    return (i if i < 32 else 16 + i % 16) * UNIT_NS << shift


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Commands alike, and how long each took from its submission to its completion.

    None: of several, for what :meth:`Statistics.latency` added up; and of whatever
    found no histogram of its own, where a queue pair met too many combinations.
    """

    queue_id: int | None
    """Queue pair."""
    io_class: IoClass | None
    """Class of the operations."""
    command: CommandName | None
    """Which command."""
    max_bytes: int | None
    """Of one command; the size class below is half of it. None: more than 4 MiB."""
    commands: int
    """How many completed."""
    nbytes: int
    """Of those that succeeded."""
    errors: int
    """Commands that failed; one that was sent again counts each time."""
    total_s: float
    """Sum of their latencies."""
    max_s: float
    """The longest."""
    buckets: tuple[tuple[float, int], ...]
    """Upper limit in seconds and commands below it, and not below the limit before.

    Empty ones are left out. A bucket is at most 6 % wide, from 0.5 us on.
    """

    @property
    def mean_s(self) -> float:
        """The mean; 0 when there are none."""
        return self.total_s / self.commands if self.commands else 0.0

    def percentile(self, percent: float) -> float:
        """Return the time in seconds that ``percent`` of the commands did not exceed.

        It is the upper limit of a bucket, or the longest time; 0 when there are none.

        >>> seen = LatencyHistogram(
        ...     queue_id=None, io_class=None, command="read", max_bytes=4096,
        ...     commands=3, nbytes=12288, errors=0, total_s=8e-6, max_s=5e-6,
        ...     buckets=((2e-6, 2), (5e-6, 1)),
        ... )
        >>> seen.percentile(50), seen.percentile(100)
        (2e-06, 5e-06)
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent={percent!r} is outside 0 .. 100")
        counted = sum(count for _, count in self.buckets)
        left = counted * percent / 100
        for limit, count in self.buckets:
            left -= count
            if left <= 0:
                return min(limit, self.max_s)
        return self.max_s

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram:
        """Return what came after ``earlier``, a look at the same.

        The longest time is not known of a part: it is the limit of a bucket.
        """
        before = dict(earlier.buckets)
        buckets = tuple(
            (limit, count - before.get(limit, 0))
            for limit, count in self.buckets
            if count > before.get(limit, 0)
        )
        return replace(
            self,
            commands=self.commands - earlier.commands,
            nbytes=self.nbytes - earlier.nbytes,
            errors=self.errors - earlier.errors,
            total_s=self.total_s - earlier.total_s,
            max_s=min(buckets[-1][0], self.max_s) if buckets else 0.0,
            buckets=buckets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """What one queue pair has done."""

    queue_id: int
    """Its identifier (QID)."""
    kind: Literal["general", "batch"]
    """``batch``: a deep one."""
    depth: int
    """Entries of its queues."""
    vector: int
    """Its interrupt vector."""
    coalesced: int
    """Completions that may share an interrupt; 0: each has its own."""
    commands: int
    """Sent to the device."""
    inflight: int
    """Of these, at the device now."""
    forgotten: int
    """Of these, given up by a reset or a removal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Whose memory it is, and where things lie in it."""

    pid: int
    started: int
    opened_ns: int
    nbytes: int
    pairs: tuple[int, int, int]
    """Offset, bytes of each, how many."""
    rows: tuple[int, int, int]


def read_head(memory: Sequence[int] | bytes | memoryview) -> Head:
    """Read and check the beginning; ValueError says what is wrong with it."""
    raw = bytes(memory[: HEAD.size])
    if len(raw) < HEAD.size or raw[:8] != MAGIC:
        raise ValueError("it is no statistics segment")
    (
        _, version, _, pid, nr_pairs, started, opened, nbytes,
        pair_off, pair_bytes, row_off, row_bytes, max_rows, nr_rows,
    ) = HEAD.unpack(raw)  # fmt: skip
    if version != VERSION:
        raise ValueError(f"it has layout {version}; this version reads {VERSION}")
    rows = min(max_rows, nr_rows)
    end = max(pair_off + nr_pairs * pair_bytes, row_off + rows * row_bytes)
    if pair_bytes < PAIR.size or row_bytes < ROW_HEAD + 8 * BUCKETS or end > nbytes:
        raise ValueError("its head contradicts itself")
    return Head(
        pid=pid,
        started=started,
        opened_ns=opened,
        nbytes=nbytes,
        pairs=(pair_off, pair_bytes, nr_pairs),
        rows=(row_off, row_bytes, rows),
    )


def _buckets(raw: bytes) -> tuple[tuple[float, int], ...]:
    """Most are empty: those before the first and after the last are cut off."""
    body = raw.rstrip(b"\0")
    first = (len(body) - len(body.lstrip(b"\0"))) // 8
    last = (len(body) + 7) // 8
    words = struct.unpack_from(f"<{last - first}Q", raw, first * 8)
    return tuple(
        (bucket_low_ns(first + i + 1) / 1e9, count)
        for i, count in enumerate(words)
        if count
    )


def read_rows(memory: memoryview, head: Head) -> tuple[LatencyHistogram, ...]:
    """Return what was counted; what met nothing is left out."""
    found: list[LatencyHistogram] = []
    offset, stride, count = head.rows
    count = min(count, (len(memory) - offset) // stride)  # others came meanwhile
    for at in range(offset, offset + stride * count, stride):
        row: tuple[int, ...] = ROW.unpack_from(memory, at)
        used, qid, cls, opcode, size, commands, nbytes, errors, total, most = row
        if not used or not commands:
            continue
        start = at + ROW_HEAD
        found.append(
            LatencyHistogram(
                queue_id=qid,
                io_class=CLASSES[cls] if cls < len(CLASSES) else None,
                command=COMMANDS.get(opcode),
                max_bytes=4096 << size if size < SIZES - 1 else None,
                commands=commands,
                nbytes=nbytes,
                errors=errors,
                total_s=total / 1e9,
                max_s=most / 1e9,
                buckets=_buckets(bytes(memory[start : start + 8 * BUCKETS])),
            )
        )
    return tuple(found)


def read_pairs(
    memory: memoryview, head: Head, rows: Iterable[LatencyHistogram]
) -> tuple[QueueStatistics, ...]:
    """Return the queue pairs, in the order of their identifiers."""
    back: dict[int | None, int] = {}
    for row in rows:
        back[row.queue_id] = back.get(row.queue_id, 0) + row.commands
    found: list[QueueStatistics] = []
    offset, stride, count = head.pairs
    for at in range(offset, offset + stride * count, stride):
        fields = PAIR.unpack_from(memory, at)
        qid, vector, kind, _, together, depth, sent, forgotten = fields
        found.append(
            QueueStatistics(
                queue_id=qid,
                kind=KINDS.get(kind, "general"),
                depth=depth,
                vector=vector,
                coalesced=together,
                commands=sent,
                # read word by word while they change
                inflight=max(0, sent - forgotten - back.get(qid, 0)),
                forgotten=forgotten,
            )
        )
    return tuple(found)


def added(rows: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """Return all of them as one; what they do not share is None."""
    parts = tuple(rows)
    buckets: dict[float, int] = {}
    for part in parts:
        for limit, count in part.buckets:
            buckets[limit] = buckets.get(limit, 0) + count
    queues = {part.queue_id for part in parts}
    classes: set[IoClass | None] = {part.io_class for part in parts}
    commands: set[CommandName | None] = {part.command for part in parts}
    sizes = {part.max_bytes for part in parts}
    return LatencyHistogram(
        queue_id=queues.pop() if len(queues) == 1 else None,
        io_class=classes.pop() if len(classes) == 1 else None,
        command=commands.pop() if len(commands) == 1 else None,
        max_bytes=sizes.pop() if len(sizes) == 1 else None,
        commands=sum(part.commands for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        errors=sum(part.errors for part in parts),
        total_s=sum(part.total_s for part in parts),
        max_s=max((part.max_s for part in parts), default=0.0),
        buckets=tuple(sorted(buckets.items())),
    )
