"""Reads of one batch side by side, where they would wait for each other on a stream.

LMCache enqueues the reads of a batch one after another, into slots of its staging
buffer that do not overlap, and then the kernel that reads the slots. Such reads form a
group: each goes to a stream of ours, behind what was on LMCache's stream when the group
began, and LMCache's stream waits for each. A slot that comes again begins a group anew.

That is right only because nothing that LMCache enqueues between two reads of a group
touches a slot that a later one of them reads into.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiougds._order import recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._pinned import PinnedMemory


@dataclass
class _Group:
    """Reads that may run side by side, and the event that all of them come behind."""

    event: int
    kept: ExitStack
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def takes(self, start: int, end: int) -> bool:
        return all(end <= low or high <= start for low, high in self.ranges)


class Overlap:
    """The groups of each stream, and the streams that they run on."""

    def __init__(self, count: int, new_stream: Callable[[], int]) -> None:
        self._streams = [new_stream() for _ in range(count)]
        self._groups: dict[int, _Group] = {}
        self._turn = 0

    def place(
        self, stream: int, memory: PinnedMemory, start: int, end: int
    ) -> tuple[int, int]:
        """Return the stream to read on, and the event to read behind."""
        group = self._groups.get(stream)
        if group is None or not group.takes(start, end):
            self.end(stream)
            kept = ExitStack()
            _, event = kept.enter_context(
                recorded(stream, memory.memory, "reads that overlap")
            )
            group = self._groups[stream] = _Group(event, kept)
        group.ranges.append((start, end))
        self._turn = (self._turn + 1) % len(self._streams)
        return self._streams[self._turn], group.event

    def end(self, stream: int) -> None:
        """Let no later read of a stream join its group."""
        group = self._groups.pop(stream, None)
        if group is not None:
            group.kept.close()

    def close(self) -> None:
        """Forget all groups."""
        for stream in list(self._groups):
            self.end(stream)
