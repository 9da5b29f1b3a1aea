"""Slots of one device in memory: what each holds, which are free, who goes first."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from aiougds.store._policy import make_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.store._layout import Place, Superblock
    from aiougds.store._policy import Eviction

NEW: Final = 63  # of ages: what was put, or put anew, since they were noted


class Columns:
    """What slots hold; an empty key: nothing that anybody may see.

    Bytes and machine words instead of an object for each slot: a million slots take
    the time of a few copies to save and to load.
    """

    __slots__ = ("ages", "gens", "keys", "kinds", "lengths", "sums")

    def __init__(self, count: int) -> None:
        self.keys = [b""] * count
        self.gens = array("Q", bytes(8 * count))
        self.lengths = array("Q", bytes(8 * count))
        self.sums = array("Q", bytes(8 * count))
        self.kinds = bytearray(count)
        # When each was used, as last noted: 0 longest ago; NEW since then.
        self.ages = bytearray(count)


class Pool:
    """Slots of one size of one device: an own order, own watermarks."""

    __slots__ = (
        "count", "first", "free", "held_back", "high", "low", "offset", "policy",
        "slot_bytes", "stride", "used", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        place: Place,
        first: int,
        eviction: Eviction | None,
        high: float,
        low: float,
    ) -> None:
        self.slot_bytes = place.slot_bytes
        self.stride = place.stride
        self.offset = place.offset - first * place.stride  # of slot number 0
        self.first = first
        self.count = place.slots
        self.high = max(1, int(high * place.slots))
        self.low = min(self.high, max(1, int(low * place.slots)))
        self.policy = make_policy(eviction, place.slots)
        self.free: list[int] = []
        self.used = 0
        """Slots with a chunk or with one on its way; not what is being freed."""
        self.held_back = 0
        """Slots with no chunk that the device may still read, or write."""
        self.waiting: list[object] = []

    def at(self, slot: int) -> int:
        """Return the offset of the slot's header."""
        return self.offset + slot * self.stride


class Slots:
    """All slots of one device, and the index of the keys in them."""

    __slots__ = (
        "busy", "columns", "doubles", "index", "pins", "pools", "reads", "used_bytes",
        "zombies",
    )  # fmt: skip

    def __init__(
        self,
        superblock: Superblock,
        eviction: Eviction | None,
        high: float,
        low: float,
    ) -> None:
        self.pools: list[Pool] = []
        first = 0
        for place in superblock.places:
            self.pools.append(Pool(place, first, eviction, high, low))
            first += place.slots
        self.columns = Columns(first)
        self.index: dict[bytes, int] = {}
        self.pins: dict[int, int] = {}
        self.busy: dict[int, int] = {}  # reads in flight
        self.reads: list[frozenset[int]] = []  # many of them, of one call
        # Deleted durably, but a read was in flight: free when that has ended.
        self.zombies: set[int] = set()
        self.used_bytes = 0
        self.doubles: set[int] = set()
        """After a recovery: slots whose key has a newer chunk; to be deleted."""

    def is_read(self, slot: int) -> bool:
        """Whether a read of the slot is in flight."""
        return slot in self.busy or any(slot in one for one in self.reads)

    def pool_of(self, slot: int) -> Pool:
        """Return the pool that the slot is of."""
        pools = self.pools
        if len(pools) == 1:
            return pools[0]
        return next(p for p in reversed(pools) if slot >= p.first)

    def fitting(self, nbytes: int) -> Pool | None:
        """Return the pool of the smallest slots that are large enough."""
        for pool in self.pools:
            if nbytes <= pool.slot_bytes:
                return pool
        return None

    def settle(self) -> None:
        """After a recovery: make index, order and free lists of the columns."""
        keys, gens = self.columns.keys, self.columns.gens
        index = {key: slot for slot, key in enumerate(keys) if key}
        if len(index) != len(keys) - keys.count(b""):
            self._drop_doubles()
            index = {key: slot for slot, key in enumerate(keys) if key}
        self.index = index
        lengths = self.columns.lengths
        self.used_bytes = sum(lengths[slot] for slot in index.values())
        for pool in self.pools:
            last = pool.first + pool.count
            mine = range(pool.first, last)
            pool.free = [
                slot
                for slot in reversed(mine)
                if not keys[slot] and slot not in self.doubles
            ]
            pool.used = sum(1 for slot in mine if keys[slot])
            live = [slot for slot in mine if keys[slot]]
            live.sort(key=gens.__getitem__)
            live.sort(key=self.columns.ages.__getitem__)  # of the same age by gens
            pool.policy.restore(live)

    def note_ages(self, newest: int) -> Iterator[int]:
        """Note the order of use, for the next opening; yields slots done each time.

        What is put meanwhile, with a generation beyond ``newest``, is new.
        """
        ages, gens = self.columns.ages, self.columns.gens
        for pool in self.pools:
            order = pool.policy.order()
            step = max(1, -(-len(order) // NEW))
            for age, first in enumerate(range(0, len(order), step)):
                part = order[first : first + step]
                for slot in part:
                    if gens[slot] <= newest:
                        ages[slot] = age
                yield len(part)

    def _drop_doubles(self) -> None:
        """Keep the newest of two slots with one key."""
        keys, gens = self.columns.keys, self.columns.gens
        best: dict[bytes, int] = {}
        for slot, key in enumerate(keys):
            if not key:
                continue
            other = best.get(key)
            if other is None or gens[other] < gens[slot]:
                if other is not None:
                    keys[other] = b""
                    self.doubles.add(other)
                best[key] = slot
            else:
                keys[slot] = b""
                self.doubles.add(slot)

    def publish(
        self, slot: int, key: bytes, gen: int, length: int, checksum: int, kind: int
    ) -> None:
        """Have everybody see a chunk."""
        columns = self.columns
        columns.keys[slot] = key
        columns.gens[slot] = gen
        columns.lengths[slot] = length
        columns.sums[slot] = checksum
        columns.kinds[slot] = kind
        columns.ages[slot] = NEW
        self.index[key] = slot
        self.used_bytes += length
        self.pool_of(slot).policy.insert(slot, key)

    def withdraw(self, slot: int) -> tuple[bytes, int]:
        """Have nobody see it any more; its slot is not free yet."""
        key = self.columns.keys[slot]
        length = self.columns.lengths[slot]
        self.columns.keys[slot] = b""
        del self.index[key]
        self.used_bytes -= length
        pool = self.pool_of(slot)
        pool.used -= 1
        return key, length
