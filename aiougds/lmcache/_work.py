"""LMCache's tasks over a chunk store: what the adapter does, without LMCache.

Called from LMCache's controller threads. Lookups, locks and results are answered in
the caller's thread, from memory; stores, loads and deletions run on the store's loop.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from aiougds._errors import ArgumentError, ClosedError, NVMeError, UGDSError
from aiougds._hosted_store import HostedStore, is_direct, memory_at
from aiougds.lmcache._keys import encode
from aiougds.store import ChunkNotFoundError, ChunkPinnedError
from aiougds.store._errors import told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiougds._pinned import RegistrationSlice
    from aiougds._store_options import StoreOptions
    from aiougds.lmcache._keys import ObjectKey
    from aiougds.store import StoreEvent

Done = TypeVar("Done")
Key = TypeVar("Key", bound="ObjectKey")

_log: Final = logging.getLogger("aiougds.lmcache")


class MemoryObject(Protocol):
    """What is used of LMCache's memory objects."""

    @property
    def data_ptr(self) -> int: ...
    def get_size(self) -> int: ...


class Found(NamedTuple):
    """Which keys of a task were found."""

    asked: int
    indices: list[int]


class Outbox(Generic[Done]):
    """Results of one kind of task, each of which can be taken once.

    ``notify`` makes LMCache look; it is a binary signal, given behind each result.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._done: dict[int, Done] = {}
        self.in_flight = 0

    def begin(self) -> None:
        with self._lock:
            self.in_flight += 1

    def put(self, task: int, result: Done) -> None:
        with self._lock:
            self._done[task] = result
            self.in_flight -= 1
        self._notify()

    def take(self, task: int) -> Done | None:
        with self._lock:
            return self._done.pop(task, None)

    def take_all(self) -> dict[int, Done]:
        with self._lock:
            done, self._done = self._done, {}
        return done


class Work(Generic[Key]):
    """The tasks of one adapter."""

    def __init__(
        self,
        options: StoreOptions,
        *,
        listener: Callable[[StoreEvent], None],
        accessed: Callable[[list[Key]], None],
        stored: Callable[[], None],
        looked_up: Callable[[], None],
        loaded: Callable[[], None],
    ) -> None:
        self._accessed = accessed
        self.stored: Outbox[tuple[bool, int]] = Outbox(stored)
        self.looked_up: Outbox[Found] = Outbox(looked_up)
        self.loaded: Outbox[Found] = Outbox(loaded)
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        # Generations in the order of their locks: the oldest are given back first.
        self._locks: dict[bytes, deque[int]] = {}
        self._spoiled: set[bytes] = set()  # cannot be read: to go when unlocked
        self.counts: Counter[str] = Counter()
        self.hosted = HostedStore(options, name="aiougds-lmcache", listener=listener)
        self.store = self.hosted.store

    # ---- tasks ----

    def submit_store(self, keys: Sequence[Key], objects: Sequence[MemoryObject]) -> int:
        """Store a batch; the objects stay as they are until it is done."""
        task = self._next(keys, objects)
        names, objects = [self._name(key) for key in keys], list(objects)
        self.stored.begin()
        try:
            self.hosted.post(lambda: self._store(task, names, objects))
        except ClosedError:
            self.stored.put(task, (False, 0))
        return task

    def submit_lookup(self, keys: Sequence[Key]) -> int:
        """Look up and lock; answered at once."""
        task = next(self._ids)
        found: list[int] = []
        self.looked_up.begin()
        if self.hosted.alive:
            names = [self._name(key) for key in keys]
            # closed just now: it has nothing
            with self._lock, suppress(ClosedError):
                for index, name in enumerate(names):
                    generation = name not in self._spoiled and self.store.pin(name)
                    if generation:
                        self._locks.setdefault(name, deque()).append(generation)
                        found.append(index)
        with self._lock:
            self.counts["looked up"] += len(keys)
            self.counts["found"] += len(found)
        self.looked_up.put(task, Found(len(keys), found))
        return task

    def unlock(self, keys: Sequence[Key]) -> None:
        """Give back locks; what is not locked is ignored."""
        if not self.hosted.alive:
            return
        with self._lock:
            for key in keys:
                name = self._name(key)
                locks = self._locks.get(name)
                if not locks:
                    continue
                self.store.unpin(name, locks.popleft())
                if not locks:
                    del self._locks[name]
                    if name in self._spoiled:
                        self._drop(name)

    def submit_load(self, keys: Sequence[Key], objects: Sequence[MemoryObject]) -> int:
        """Load a batch into the objects."""
        task = self._next(keys, objects)
        keys, objects = list(keys), list(objects)
        self.loaded.begin()
        try:
            self.hosted.post(lambda: self._load(task, keys, objects))
        except ClosedError:
            self.loaded.put(task, Found(len(keys), []))
        return task

    def delete(self, keys: Sequence[Key]) -> None:
        """Delete what is not locked, and return when that is done."""
        names = [self._name(key) for key in keys]

        async def delete() -> None:
            try:
                await self.store.delete_many(names)
            except UGDSError as error:
                _log.error("deleting %d chunks failed: %s", len(names), error)

        try:
            self.hosted.call(delete)
        except ClosedError:
            return

    def close(self) -> None:
        """Give back all locks, let the tasks end, and close the store.

        In this order: a store may wait for room that only locked chunks could make.
        """
        if self.hosted.alive:
            with self._lock:
                for name, locks in self._locks.items():
                    for generation in locks:
                        self.store.unpin(name, generation)
                self._locks.clear()
        self.hosted.close()

    # ---- what there is ----

    def register_arena(self, ptr: int, nbytes: int) -> None:
        """Register LMCache's memory once."""
        self.hosted.register_arena(memory_at(ptr, nbytes), ptr)

    def snapshot(self) -> list[tuple[bytes, int]]:
        """Return the name and length of every chunk, the oldest first."""

        async def look() -> list[tuple[bytes, int]]:
            return [(name, info.nbytes) for name, info in self.store.scan()]

        return self.hosted.call(look)

    def charge(self, nbytes: int) -> int:
        """Return what a chunk takes of the capacity: its slot."""
        return self.store.slot_bytes_for(nbytes) or nbytes

    def report(self) -> dict[str, object]:
        """Return how it is, and what it has done; in plain numbers and texts."""
        with self._lock:
            locks = sum(map(len, self._locks.values()))
            spoiled = len(self._spoiled)
        alive = self.hosted.alive
        report: dict[str, object] = {
            "is_healthy": alive and not self.hosted.broken,
            "addresses": list(self.hosted.options.addresses),
            "flush": self.hosted.options.flush,
            "checksum": self.hosted.options.checksum,
            "store_inflight_task_count": self.stored.in_flight,
            "load_inflight_task_count": self.loaded.in_flight,
            "locks": locks,
            "unreadable_chunks": spoiled,
            "registered_bytes": self.hosted.arena_bytes,
            **{name.replace(" ", "_"): count for name, count in self.counts.items()},
        }
        if alive:
            capacity = self.store.capacity
            report |= {
                "chunks": len(self.store),
                "capacity_bytes": capacity.bytes,
                "used_bytes": capacity.used_bytes,
                "free_slots": capacity.free_slots,
            }
        return report

    # ---- on the loop ----

    async def _store(
        self, task: int, names: list[bytes], objects: list[MemoryObject]
    ) -> None:
        done = (False, 0)
        try:
            done = await self._put(names, objects)
        finally:  # whatever went wrong: LMCache waits for an answer
            self.stored.put(task, done)

    async def _put(
        self, names: list[bytes], objects: list[MemoryObject]
    ) -> tuple[bool, int]:
        moved, failed = 0, 0
        began = time.perf_counter()
        try:
            pairs = [
                (name, self._source(one))
                for name, one in zip(names, objects, strict=True)
            ]
            for name, (_, memory), result in zip(
                names, pairs, await self.store.put_many(pairs), strict=True
            ):
                if isinstance(result, UGDSError):
                    failed += 1
                    _log.warning("a chunk was not stored (%s): %s", name.hex(), result)
                elif result:
                    moved += memory.nbytes
        except UGDSError as error:
            failed = len(names)
            _log.error("storing %d chunks failed: %s", len(names), error)
        self.counts["bytes stored"] += moved
        self.counts["stores failed"] += failed
        self.counts["us storing"] += int((time.perf_counter() - began) * 1e6)
        return not failed, moved

    async def _load(
        self, task: int, keys: list[Key], objects: list[MemoryObject]
    ) -> None:
        found: list[int] = []
        try:
            found = await self._get(keys, objects)
        finally:
            self.loaded.put(task, Found(len(keys), found))

    async def _get(self, keys: list[Key], objects: list[MemoryObject]) -> list[int]:
        found: list[int] = []
        began = time.perf_counter()
        names = [self._name(key) for key in keys]
        memories = [self._memory(one) for one in objects]
        results: Sequence[int | UGDSError]
        try:
            pairs = list(zip(names, memories, strict=True))
            results = await self.store.get_many(pairs)
        except UGDSError as error:
            _log.error("loading %d chunks failed: %s", len(names), error)
            results = told([error] * len(names))
        moved = 0
        for index, (result, one) in enumerate(zip(results, objects, strict=True)):
            if isinstance(result, UGDSError):
                self._failed(names[index], result)
            elif result != one.get_size():
                _log.warning(
                    "a chunk of %d bytes was asked for as one of %d: a miss (%s)",
                    result,
                    one.get_size(),
                    names[index].hex(),
                )
            else:
                found.append(index)
                moved += result
        for index in found:
            one, memory = objects[index], memories[index]
            if not is_direct(one.data_ptr) and isinstance(memory, memoryview):
                memory_at(one.data_ptr, len(memory))[:] = memory
        self.counts["bytes loaded"] += moved
        self.counts["loads failed"] += len(keys) - len(found)
        self.counts["us loading"] += int((time.perf_counter() - began) * 1e6)
        if found:
            self._accessed([keys[index] for index in found])
        return found

    def _failed(self, name: bytes, error: UGDSError) -> None:
        """Have no later lookup find what cannot be read."""
        if isinstance(error, ChunkNotFoundError):
            return
        _log.warning("a chunk was not loaded (%s): %s", name.hex(), error)
        if not isinstance(error, NVMeError):
            return
        with self._lock:
            self._spoiled.add(name)
            if not self._locks.get(name):
                self._drop(name)

    def _drop(self, name: bytes) -> None:
        async def drop() -> None:
            try:
                await self.store.delete(name)
            except ChunkPinnedError:
                return  # locked again: by a load without a lookup
            except UGDSError as error:
                _log.error("a chunk cannot be deleted (%s): %s", name.hex(), error)
                return
            with self._lock:
                self._spoiled.discard(name)

        with suppress(ClosedError):
            self.hosted.post(drop)

    # ---- memory ----

    def _memory(self, one: MemoryObject) -> RegistrationSlice | memoryview:
        """Return an object's memory as the store takes it, without a copy if it can."""
        ptr, nbytes = one.data_ptr, one.get_size()
        inside = self.hosted.within(ptr, nbytes)
        if inside is None:
            self.counts["outside the arena"] += 1
        if not is_direct(ptr):
            self.counts["bounced"] += 1
            return memoryview(bytearray(nbytes))
        return memory_at(ptr, nbytes) if inside is None else inside

    def _source(self, one: MemoryObject) -> RegistrationSlice | memoryview:
        memory = self._memory(one)
        if not is_direct(one.data_ptr):
            assert isinstance(memory, memoryview)
            memory[:] = memory_at(one.data_ptr, one.get_size())
        return memory

    # ---- small things ----

    def _next(self, keys: Sequence[object], objects: Sequence[object]) -> int:
        if len(keys) != len(objects):
            raise ArgumentError(
                f"{len(keys)} keys and {len(objects)} objects: as many of each"
            )
        return next(self._ids)

    def _name(self, key: Key) -> bytes:
        return encode(key)
