"""What is journaled, and who hears that it is durable."""

from __future__ import annotations

from typing import Protocol


class Put:
    """A chunk on its way to be seen."""

    __slots__ = (
        "abandoned", "checksum", "gen", "key", "kind", "length", "seen", "slot",
        "ticket",
    )  # fmt: skip

    def __init__(self, key: bytes, slot: int, gen: int, length: int) -> None:
        self.key = key
        self.slot = slot
        self.gen = gen
        self.length = length
        self.checksum = 0
        self.kind = 0
        self.seen = False  # published already: it becomes durable later
        self.abandoned = False  # nobody waits for it any more: take it back
        self.ticket = 0


class Commit:
    """Blocks that are being written, and what they are about."""

    __slots__ = ("blocks", "entries", "first", "has_data")

    def __init__(
        self, first: int, blocks: list[bytes], entries: list[Put | int], has_data: bool
    ) -> None:
        self.first = first
        self.blocks = blocks
        self.entries = entries
        self.has_data = has_data


class Owner(Protocol):
    """Who is told what became durable."""

    def published(self, put: Put) -> None: ...
    def freed(self, slot: int) -> None: ...
    def committed(self) -> None: ...
    async def aged(self) -> bool: ...
    def note_use(self, calls: int) -> bool: ...
