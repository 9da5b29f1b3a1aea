"""What a store tells of itself, and what it tells its listeners."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

EventKind = Literal["stored", "evicted", "deleted", "corrupt", "restored"]


class StoreEvent(NamedTuple):
    """Chunks that came or went."""

    kind: EventKind
    """``restored``: they were there already (``add_listener(..., replay=True)``)."""
    items: list[tuple[bytes, int]]
    """Keys, and the bytes of their chunks."""


class ChunkInfo(NamedTuple):
    """A chunk that is there."""

    nbytes: int
    """Its length."""
    generation: int
    """Larger than those of all chunks that were put before on its device."""
    device: int
    """Which of the store's devices it lies on."""
    slot: int
    """Number of its slot there."""
    pins: int
    """How often it is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much there is room for; fixed when the store is formatted."""

    bytes: int
    """If every chunk filled its slot."""
    slots: int
    """Chunks that there is room for."""
    free_slots: int
    """Slots without a chunk."""
    used_bytes: int
    """Of the chunks that are there, without what rounds them up."""


@dataclass(slots=True)
class Counts:
    """What one device of a store has counted."""

    puts: int = 0
    puts_present: int = 0
    put_bytes: int = 0
    gets: int = 0
    hits: int = 0
    misses: int = 0
    get_bytes: int = 0
    deletes: int = 0
    evictions: int = 0
    corrupt: int = 0
    waits: int = 0
    unregistered: int = 0
    tail_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """Counters since the store was opened, over all of its devices."""

    chunks: int
    """That are there now."""
    pinned: int
    """Of these, pinned."""
    puts: int
    """Chunks that were written."""
    puts_present: int
    """Puts that found their key there."""
    put_bytes: int
    """Bytes of chunks that were written."""
    gets: int
    """Chunks that were asked for."""
    hits: int
    """Of these, found and read."""
    misses: int
    """Of these, not there."""
    get_bytes: int
    """Bytes that gets read."""
    deletes: int
    """Chunks that were deleted."""
    evictions: int
    """Chunks that went to make room."""
    corrupt: int
    """Chunks that were dropped: their bytes were not those that had been put."""
    waits: int
    """How often a put waited because nothing could make room."""
    unregistered: int
    """Operations whose memory was registered for the call only."""
    tail_bytes: int
    """Bytes that were copied, of chunks that do not end with a block."""
    commits: int
    """Writes of the journal, each for all that was there by then."""
    journal_blocks: int
    """Blocks that these wrote."""
    checkpoints: int
    """Checkpoints that were written."""
    recovery_s: float
    """What reading the index took when it was opened."""


COUNTED = tuple(field.name for field in fields(Counts))
