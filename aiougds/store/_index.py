"""What a store knows without asking a device: its index, pins, listeners, numbers."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from aiougds._errors import ClosedError, RangeError
from aiougds._transfer import whole
from aiougds.store._errors import check_keys
from aiougds.store._gets import not_found
from aiougds.store._puts import no_room
from aiougds.store._statistics import (
    COUNTED,
    Capacity,
    ChunkInfo,
    StoreEvent,
    StoreStatistics,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from aiougds.store._shard import Shard
    from aiougds.store._statistics import EventKind

StoreListener: TypeAlias = Callable[[StoreEvent], object]
"""What is called with each event, on the store's loop."""

_log: Final = logging.getLogger("aiougds.store")


class StoreIndex:
    """The half of a :class:`ChunkStore` that awaits nothing.

    Once it is closed, whoever asks for chunks gets ClosedError; numbers remain.
    """

    __slots__ = ("_closed", "_key_bytes", "_listeners", "_shards", "_took_s")

    def __init__(self, took_s: float) -> None:
        self._shards: list[Shard] = []
        self._listeners: list[StoreListener] = []
        self._took_s = took_s
        self._key_bytes = 0
        self._closed = False

    def begin(self, shards: list[Shard]) -> None:
        """Take the devices, once they are recovered."""
        self._shards = shards
        self._key_bytes = shards[0].disk.superblock.key_bytes

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed; open it again")

    def _shard(self, key: bytes) -> Shard:
        if self._closed:
            self._check_open()
        shards = self._shards
        if type(key) is not bytes:
            check_keys([key])
        if len(shards) == 1:
            return shards[0]
        return shards[zlib.crc32(key) % len(shards)]

    @property
    def broken(self) -> str | None:
        """Why nothing can be put any more; None: it can."""
        for shard in self._shards:
            if shard.journal.broken is not None:
                return str(shard.journal.broken)
        return None

    def _checked(self, key: bytes) -> Shard:
        shard = self._shard(key)
        if not 0 < len(key) <= self._key_bytes:
            raise RangeError(
                f"a key of {len(key)} bytes: this store was formatted for keys of "
                f"1 .. {self._key_bytes}"
            )
        return shard

    # ---- looking ----

    def contains(self, key: bytes) -> bool:
        """Whether the chunk is there; no use of it, as far as eviction goes."""
        return key in self._shard(key).slots.index

    def contains_many(self, keys: Iterable[bytes]) -> list[bool]:
        """Tell for each key whether its chunk is there."""
        self._check_open()
        shards = self._shards
        if len(shards) == 1:
            index = shards[0].slots.index
            asked = list(keys)
            check_keys(asked)
            return [key in index for key in asked]
        return [key in self._shard(key).slots.index for key in keys]

    def __contains__(self, key: bytes) -> bool:
        return self.contains(key)

    def __len__(self) -> int:
        self._check_open()
        return self._chunks()

    def _chunks(self) -> int:
        return sum(len(shard.slots.index) for shard in self._shards)

    def chunk(self, key: bytes) -> ChunkInfo:
        """Return what is known of a chunk, or raise ChunkNotFoundError."""
        shard = self._shard(key)
        slot = shard.slots.index.get(key)
        if slot is None:
            raise not_found(key)
        return self._info(shard, slot)

    def _info(self, shard: Shard, slot: int) -> ChunkInfo:
        columns = shard.slots.columns
        return ChunkInfo(
            columns.lengths[slot],
            columns.gens[slot],
            shard.disk.superblock.member,
            slot,
            shard.slots.pins.get(slot, 0),
        )

    def scan(self) -> Iterator[tuple[bytes, ChunkInfo]]:
        """Iterate over the chunks of this moment, those of a device oldest first."""
        self._check_open()
        return self._scan()

    def _scan(self) -> Iterator[tuple[bytes, ChunkInfo]]:
        for shard in self._shards:
            gens = shard.slots.columns.gens
            there = sorted(shard.slots.index.items(), key=lambda item: gens[item[1]])
            for key, slot in there:
                if shard.slots.index.get(key) == slot:
                    yield key, self._info(shard, slot)

    def pin(self, key: bytes) -> int:
        """Keep a chunk from eviction and deletion; 0: it is not there.

        Returns its generation. Counted: it is free again after as many
        :meth:`unpin`. Pins are not kept when the store is closed, nor when a chunk
        turns out to be damaged, and is dropped.
        """
        return self._shard(key).pin(key)

    def unpin(self, key: bytes, generation: int | None = None) -> bool:
        """Take one pin back; False: there was none.

        With the ``generation`` that :meth:`pin` returned, only of that chunk: where
        it was dropped and put anew since, the pins of the new one stay. A closed store
        has none.
        """
        if self._closed:
            return False
        return self._shard(key).unpin(key, generation)

    def touch(self, keys: Iterable[bytes]) -> None:
        """Note, on the store's loop, that chunks were used by whoever has a copy."""
        for key in keys:
            slots = self._shard(key).slots
            slot = slots.index.get(key)
            if slot is not None:
                slots.pool_of(slot).policy.touch(slot)

    @contextmanager
    def pinned(self, key: bytes) -> Generator[ChunkInfo]:
        """Pin a chunk for as long as a ``with``; ChunkNotFoundError: not there."""
        generation = self.pin(key)
        if not generation:
            raise not_found(key)
        try:
            yield self.chunk(key)
        finally:
            self.unpin(key, generation)

    # ---- listeners and numbers ----

    def add_listener(self, listener: StoreListener, *, replay: bool = False) -> None:
        """Call ``listener`` with each event of chunks that come or go, on the loop.

        It must not wait; what it raises is logged, and goes no further. With
        ``replay`` it hears first of all chunks that are there, as one event
        ``restored``, the oldest first.
        """
        if replay:
            listener(
                StoreEvent(
                    "restored", [(key, info.nbytes) for key, info in self.scan()]
                )
            )
        self._listeners.append(listener)

    def remove_listener(self, listener: StoreListener) -> None:
        """Call ``listener`` no more."""
        self._listeners.remove(listener)

    def tell(self, kind: EventKind, items: list[tuple[bytes, int]]) -> None:
        """Tell the listeners; for the devices of the store."""
        if self._listeners:
            event = StoreEvent(kind, items)
            for listener in tuple(self._listeners):
                try:
                    listener(event)
                except Exception:  # noqa: BLE001 - the user's code, no fault of a put
                    _log.exception("a listener raised at %s", event.kind)

    @property
    def capacity(self) -> Capacity:
        """How much there is room for."""
        pools = [pool for shard in self._shards for pool in shard.slots.pools]
        return Capacity(
            bytes=sum(pool.slot_bytes * pool.count for pool in pools),
            slots=sum(pool.count for pool in pools),
            # Puts that wait for room have a place in ``used`` already.
            free_slots=sum(max(0, pool.count - pool.used) for pool in pools),
            used_bytes=sum(shard.slots.used_bytes for shard in self._shards),
        )

    def slot_bytes_for(self, nbytes: int) -> int:
        """Return the size of the slot that a chunk of so many bytes gets.

        Raises ChunkTooLargeError where there is none that is large enough.
        """
        shard, length = self._shards[0], whole(nbytes, "nbytes")
        pool = shard.slots.fitting(length)
        if pool is None or length < 1:
            raise no_room(shard, length)
        return pool.slot_bytes

    def statistics(self) -> StoreStatistics:
        """Return the counters of this moment."""
        shards = self._shards
        return StoreStatistics(
            chunks=self._chunks(),
            pinned=sum(len(shard.slots.pins) for shard in shards),
            commits=sum(shard.journal.commits for shard in shards),
            journal_blocks=sum(shard.journal.blocks for shard in shards),
            checkpoints=sum(shard.journal.checkpoints.count for shard in shards),
            recovery_s=self._took_s,
            **{
                name: sum(getattr(shard.counts, name) for shard in shards)
                for name in COUNTED
            },
        )
