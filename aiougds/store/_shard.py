"""One device of a store: who gets a slot, who has to go, who sees what."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from aiougds._errors import OperationTimeoutError
from aiougds.store._disk import ALONE
from aiougds.store._entries import Put
from aiougds.store._errors import ChunkPinnedError, StoreFullError
from aiougds.store._journal import Journal
from aiougds.store._policy import Never
from aiougds.store._statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from aiougds._namespace import Namespace
    from aiougds._registration import Registration
    from aiougds._transfer import Clock
    from aiougds.store._disk import Disk
    from aiougds.store._recovery import Recovered
    from aiougds.store._slots import Pool, Slots
    from aiougds.store._statistics import EventKind

    Tell = Callable[[EventKind, list[tuple[bytes, int]]], None]

LOOK_S: Final = 0.02
NOTED: Final = 8192  # slots whose age is noted in one turn of the loop
GEN_BITS: Final = 40  # below them the epoch: no generation comes twice


class Shard:
    """Slots, index and journal of one device."""

    __slots__ = (
        "_deleted", "_freeing", "_limbo", "_lock", "_next_gen", "_noting", "_stored",
        "_tell", "counts", "disk", "journal", "kind", "lazy", "putting", "slots",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        recovered: Recovered,
        kind: int,
        tell: Tell,
        buffer: Registration,
        pages: Registration,
    ) -> None:
        self.disk = disk
        self.slots: Slots = recovered.slots
        self.kind = kind  # of the checksums of new chunks
        self.journal = Journal(disk, self.slots, recovered, buffer, pages, self)
        self._next_gen = recovered.epoch << GEN_BITS
        self._noting: Iterator[int] | None = None
        self._tell = tell
        # Threads pin; only the loop evicts and deletes. Neither may be in between.
        self._lock = Lock()
        self._stored: list[tuple[bytes, int]] = []
        self._limbo: list[int] = []  # slots that a given-up write may still reach
        self._freeing: dict[int, int] = {}  # by pool: slots to be free soon
        self._deleted: dict[int, int] = {}  # by pool: the last record that frees one
        self.lazy = 0
        """The record of the last put that nobody waited for."""
        for slot in recovered.slots.doubles:
            self._journal_delete(self.slots.pool_of(slot), slot)
        self.putting: dict[bytes, list[object]] = {}
        self.counts = Counts()

    def next_gen(self) -> int:
        """Return a generation that no slot has had."""
        self._next_gen += 1
        return self._next_gen

    def writer(self) -> Namespace:
        """Return what to write a chunk through: reads go before it."""
        reading = self.slots.busy or self.slots.reads
        return self.disk.yielding if reading else self.disk.puts

    # ---- getting a slot ----

    def take(self, pool: Pool, key: bytes) -> int | None:
        """Reserve a slot and return it; None: one will be free (:meth:`room`)."""
        pool.policy.admit(key)
        if pool.used >= pool.high:
            self._evict(pool, pool.used + 1 - pool.low)
        pool.used += 1
        return pool.free.pop() if pool.free else None

    async def room(
        self,
        pool: Pool,
        clock: Clock,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> int:
        """Wait for the slot that was reserved; ``before`` ends what others wait for."""
        try:
            if before is not None:
                await before()
            while not pool.free:
                await self._wait(pool, clock)
        except BaseException:
            pool.used -= 1
            raise
        return pool.free.pop()

    async def _wait(self, pool: Pool, clock: Clock) -> None:
        self.journal.check()
        if clock.over():
            raise OperationTimeoutError(
                "no slot was free within timeout_s: pinned chunks and puts in flight "
                "hold them all; unpin some, or use a larger device"
            )
        if self._freeing.get(pool.first):
            await self.journal.settle(self._deleted[pool.first], clock)
        elif self._limbo and not self.disk.is_stuck():
            limbo, self._limbo = self._limbo, []
            for slot in limbo:
                self.slots.pool_of(slot).held_back -= 1
                self._free(slot)
        elif pool.used + pool.held_back > pool.count and self._evict(pool, 1):
            return
        elif isinstance(pool.policy, Never) and not pool.held_back:
            raise StoreFullError(
                f"all {pool.count} slots of {pool.slot_bytes} bytes are in use, and "
                "with eviction=None nothing makes room: delete chunks, or open the "
                "store with eviction='lru'"
            )
        else:
            self.counts.waits += 1
            left = clock.left()
            if self._limbo:  # nobody tells when the device has answered
                left = LOOK_S if left is None else min(left, LOOK_S)
            await self.disk.home.park(pool.waiting, ALONE, left)

    def _evict(self, pool: Pool, count: int) -> int:
        gone: list[tuple[bytes, int]] = []
        slots, keys = self.slots, self.slots.columns.keys
        with self._lock:
            while len(gone) < count:
                slot = pool.policy.evict(keys, slots.pins)
                if slot is None:
                    break
                gone.append(slots.withdraw(slot))
                self._journal_delete(pool, slot)
        if gone:
            self.counts.evictions += len(gone)
            self._tell("evicted", gone)
        return len(gone)

    # ---- giving one back ----

    def _journal_delete(self, pool: Pool, slot: int) -> int:
        first = pool.first
        self._freeing[first] = self._freeing.get(first, 0) + 1
        ticket = self.journal.delete(slot, self.slots.columns.gens[slot])
        self._deleted[first] = ticket
        return ticket

    def give_back(self, slot: int) -> None:
        """Take a slot back that nothing was published in."""
        pool = self.slots.pool_of(slot)
        pool.used -= 1
        if self.disk.is_stuck():
            self._limbo.append(slot)
            pool.held_back += 1
        else:
            self._free(slot)

    def _free(self, slot: int) -> None:
        pool = self.slots.pool_of(slot)
        pool.free.append(slot)
        if pool.waiting:
            self.disk.home.wake(pool.waiting)

    def hold(self, slot: int) -> None:
        """A read of the slot begins: it is not used for anything else."""
        busy = self.slots.busy
        busy[slot] = busy.get(slot, 0) + 1

    def let_go(self, slot: int) -> None:
        """A read of it has ended."""
        busy = self.slots.busy
        left = busy[slot] - 1
        if left:
            busy[slot] = left
            return
        del busy[slot]
        if slot in self.slots.zombies:
            self._bury([slot])

    def hold_all(self, slots: Sequence[int]) -> frozenset[int]:
        """Reads of these begin."""
        held = frozenset(slots)
        self.slots.reads.append(held)
        return held

    def let_all_go(self, held: frozenset[int]) -> None:
        """Reads of them have ended."""
        self.slots.reads.remove(held)
        if not held.isdisjoint(self.slots.zombies):
            self._bury(held & self.slots.zombies)

    def _bury(self, slots: Iterable[int]) -> None:
        for slot in slots:
            if not self.slots.is_read(slot):
                self.slots.zombies.discard(slot)
                self.slots.pool_of(slot).held_back -= 1
                self._free(slot)

    def abandon(self, put: Put) -> None:
        """Nobody waits for a put any more that is not durable: take it back."""
        if not self.journal.withdraw(put):
            put.abandoned = True  # it is being written
            return
        pool = self.slots.pool_of(put.slot)
        pool.used -= 1
        self.slots.columns.gens[put.slot] = put.gen
        self._freeing[pool.first] = self._freeing.get(pool.first, 0) + 1
        self._deleted[pool.first] = max(put.ticket, self._deleted.get(pool.first, 0))

    async def settle_lazy(self, clock: Clock) -> None:
        """Have durable what was put without waiting for it."""
        if self.journal.done < self.lazy:
            await self.journal.settle(self.lazy, clock)

    def close(self) -> None:
        """Have whoever waits find that it is over."""
        home = self.disk.home
        for pool in self.slots.pools:
            home.wake(pool.waiting)
        for others in self.putting.values():
            home.wake(others)
        self.disk.close()

    # ---- what the journal says ----

    def published(self, put: Put) -> None:
        """A put is durable: have everybody see it, or nobody."""
        if put.abandoned:
            pool = self.slots.pool_of(put.slot)
            pool.used -= 1
            self.slots.columns.gens[put.slot] = put.gen
            self._journal_delete(pool, put.slot)
        else:
            self.show(put)

    def show(self, put: Put) -> None:
        """Have everybody see a chunk."""
        put.seen = True
        self.slots.publish(
            put.slot, put.key, put.gen, put.length, put.checksum, put.kind
        )
        self._stored.append((put.key, put.length))

    def freed(self, slot: int) -> None:
        """A deletion is durable: an older chunk cannot come back over a new one."""
        pool = self.slots.pool_of(slot)
        self._freeing[pool.first] -= 1
        if self.slots.is_read(slot):
            self.slots.zombies.add(slot)
            pool.held_back += 1
        else:
            self._free(slot)

    def committed(self) -> None:
        """Tell what was put; what waits for room may evict it now."""
        if self._stored:
            stored, self._stored = self._stored, []
            for pool in self.slots.pools:
                if pool.waiting:
                    self.disk.home.wake(pool.waiting)
            self._tell("stored", stored)

    async def aged(self) -> bool:
        """Note the order of use, at the end; False: nothing about it is new."""
        before = bytes(self.slots.columns.ages)
        done = 0
        for count in self.slots.note_ages(self._next_gen):
            done += count
            if done >= NOTED:
                done = 0
                await self.disk.home.breathe()
        return self.slots.columns.ages != before

    def note_use(self, calls: int) -> bool:
        """Note a part of the order of use, all in so many calls; True: all is noted."""
        if self._noting is None:
            self._noting = self.slots.note_ages(self._next_gen)
        most = max(NOTED, -(-len(self.slots.columns.keys) // calls))
        done = 0
        for count in self._noting:
            done += count
            if done >= most:
                return False
        self._noting = None
        return True

    # ---- deleting and pinning ----

    def remove(self, slot: int, why: EventKind, *, pinned: bool = False) -> int:
        """Have nobody see a chunk any more; returns what to settle.

        Raises ChunkPinnedError, unless ``pinned`` ones go too.
        """
        slots = self.slots
        with self._lock:
            key = slots.columns.keys[slot]
            if slot in slots.pins:
                if not pinned:
                    raise ChunkPinnedError(
                        f"the chunk {key!r} is pinned {slots.pins[slot]} times; unpin "
                        "it first"
                    )
                del slots.pins[slot]
            pool = slots.pool_of(slot)
            pool.policy.remove(slot)
            item = slots.withdraw(slot)
            ticket = self._journal_delete(pool, slot)
        self._tell(why, [item])
        return ticket

    def pin(self, key: bytes) -> int:
        """Count one more that needs the chunk, of that generation; from any thread."""
        slots = self.slots
        with self._lock:
            slot = slots.index.get(key)
            if slot is None:
                return 0
            slots.pins[slot] = slots.pins.get(slot, 0) + 1
            return slots.columns.gens[slot]

    def unpin(self, key: bytes, generation: int | None) -> bool:
        """Count one less; from any thread."""
        slots = self.slots
        with self._lock:
            slot = slots.index.get(key)
            count = 0 if slot is None else slots.pins.get(slot, 0)
            if slot is None or not count:
                return False
            if generation not in (None, slots.columns.gens[slot]):
                return False
            if count > 1:
                slots.pins[slot] = count - 1
                return True
            del slots.pins[slot]
            pool = slots.pool_of(slot)
        if pool.waiting:
            home = self.disk.home
            home.post(lambda: home.wake(pool.waiting))
        return True
