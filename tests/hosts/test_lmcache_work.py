"""LMCache's tasks over a real store: what is stored, locked, loaded, lost and told."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from helpers.model import pattern

from aiougds import ArgumentError
from aiougds._hosted_store import memory_at
from aiougds._store_options import StoreOptions
from aiougds.lmcache._keys import KeyFields, encode
from aiougds.lmcache._work import Work
from aiougds.store import ChunkStore, StoreEvent
from aiougds.testing import Fault, inject

MIB = 1 << 20
SLOT = 64 << 10


class Memory:
    """A memory object of LMCache's."""

    def __init__(self, arena: Arena, start: int, nbytes: int) -> None:
        self.data_ptr = arena.ptr + start
        self.nbytes = nbytes

    def get_size(self) -> int:
        return self.nbytes

    @property
    def bytes(self) -> memoryview:
        return memory_at(self.data_ptr, self.nbytes)


class Arena:
    """LMCache's memory."""

    def __init__(self, nbytes: int) -> None:
        self._keep = ctypes.create_string_buffer(nbytes + 4096)
        self.ptr = -(-ctypes.addressof(self._keep) // 4096) * 4096
        self.nbytes = nbytes

    def part(self, start: int, data: bytes) -> Memory:
        made = Memory(self, start, len(data))
        made.bytes[:] = data
        return made

    def room(self, start: int, nbytes: int) -> Memory:
        return self.part(start, bytes(nbytes))


def key(number: int, salt: str = "") -> KeyFields:
    return KeyFields(number.to_bytes(16, "big"), "model/x", 7, 0, salt)


class Desk:
    """An adapter's work, and what LMCache is told of it."""

    def __init__(self, address: str, **options: object) -> None:
        self.told: list[StoreEvent] = []
        self.accessed: list[KeyFields] = []
        self.signals = {name: threading.Semaphore(0) for name in ("s", "u", "l")}
        given = {"addresses": address, "slot_bytes": SLOT, **options}
        self.work: Work[KeyFields] = Work(
            StoreOptions.parse(given),
            listener=self.told.append,
            accessed=self.accessed.extend,
            stored=self.signals["s"].release,
            looked_up=self.signals["u"].release,
            loaded=self.signals["l"].release,
        )

    def store(self, keys: Sequence[KeyFields], parts: Sequence[Memory]) -> bool:
        task = self.work.submit_store(keys, parts)
        assert self.signals["s"].acquire(timeout=20)
        done = self.work.stored.take_all()
        assert list(done) == [task]
        return done[task][0]

    def lookup(self, keys: Sequence[KeyFields]) -> list[int]:
        task = self.work.submit_lookup(keys)
        assert self.signals["u"].acquire(timeout=0), "answered at once"
        found = self.work.looked_up.take(task)
        assert found is not None
        assert found.asked == len(keys)
        assert self.work.looked_up.take(task) is None, "once"
        return found.indices

    def load(self, keys: Sequence[KeyFields], parts: Sequence[Memory]) -> list[int]:
        task = self.work.submit_load(keys, parts)
        assert self.signals["l"].acquire(timeout=20)
        found = self.work.loaded.take(task)
        assert found is not None
        return found.indices

    def told_of(self, kind: str) -> list[bytes]:
        return [name for one in self.told if one.kind == kind for name, _ in one.items]


Opened = Callable[..., Desk]


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Opened]:
    made: list[Desk] = []

    def open_one(**options: object) -> Desk:
        desk = Desk(f"emu:{tmp_path}/kv?size=8MiB", **options)
        made.append(desk)
        return desk

    yield open_one
    for desk in made:
        desk.work.close()


@pytest.fixture
def arena() -> Arena:
    return Arena(2 * MIB)


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("at", [0, 64, 2, 4095])
@pytest.mark.parametrize("nbytes", [SLOT, 4096, 100, 61001])
def test_what_is_stored_is_loaded(
    desks: Opened, arena: Arena, registered: bool, at: int, nbytes: int
) -> None:
    """Wherever it lies, and however long it is; other bytes are left alone."""
    desk = desks()
    if registered:
        desk.work.register_arena(arena.ptr, arena.nbytes)
    keys = [key(i) for i in range(4)]
    data = [pattern(nbytes, i) for i in range(4)]
    room = 2 * SLOT
    assert desk.store(keys, [arena.part(at + i * room, data[i]) for i in range(4)])
    whole = arena.part(0, b"\xaa" * arena.nbytes)
    order = [2, 0, 3, 1]
    into = [Memory(arena, at + i * room, nbytes) for i in order]
    assert desk.load([keys[i] for i in order], into) == [0, 1, 2, 3]
    assert [bytes(one.bytes) for one in into] == [data[i] for i in order]
    assert bytes(whole.bytes).count(0xAA) >= arena.nbytes - 4 * nbytes
    assert bytes(whole.bytes[at + nbytes : at + nbytes + 16]) == b"\xaa" * 16
    assert desk.accessed == [keys[i] for i in order]
    bounced = desk.work.counts["bounced"]
    assert bounced == (8 if at % 4 else 0)
    assert desk.work.counts["outside the arena"] == (0 if registered else 8)


def test_memory_outside_the_arena_works_too(desks: Opened, arena: Arena) -> None:
    """A lazy arena grows behind what was registered."""
    desk = desks()
    desk.work.register_arena(arena.ptr, MIB)
    far = arena.part(MIB - 100, pattern(4096, 1))
    assert desk.store([key(1)], [far])
    into = arena.room(MIB + 64, 4096)
    assert desk.load([key(1)], [into]) == [0]
    assert bytes(into.bytes) == pattern(4096, 1)
    assert desk.work.counts["outside the arena"] == 2


def test_storing_again_changes_nothing(desks: Opened, arena: Arena) -> None:
    desk = desks()
    assert desk.store([key(1), key(1)], [arena.part(0, b"a" * 512)] * 2)
    assert desk.store([key(1), key(2)], [arena.part(0, b"b" * 512)] * 2)
    into = arena.room(0, 512)
    assert desk.load([key(1)], [into]) == [0]
    assert bytes(into.bytes) == b"a" * 512
    assert desk.told_of("stored") == [encode(key(1)), encode(key(2))]


def test_all_five_fields_are_the_identity(desks: Opened, arena: Arena) -> None:
    desk = desks()
    base = key(1)
    others = [
        base._replace(chunk_hash=b"x"), base._replace(model_name="model/y"),
        base._replace(kv_rank=8), base._replace(object_group_id=1),
        base._replace(cache_salt="s"),
    ]  # fmt: skip
    assert desk.store([base], [arena.part(0, b"a" * 512)])
    assert desk.lookup([base, *others]) == [0]


def test_locks_are_counted_and_keep_a_chunk(desks: Opened, arena: Arena) -> None:
    desk = desks()
    assert desk.store([key(1), key(2)], [arena.part(0, b"a" * 512)] * 2)
    assert desk.lookup([key(1), key(3), key(2)]) == [0, 2]
    assert desk.lookup([key(1)]) == [0]
    desk.work.unlock([key(2), key(3), key(4)])  # unknown ones are ignored
    desk.work.delete([key(1), key(2), key(5)])
    assert desk.told_of("deleted") == [encode(key(2))]
    desk.work.unlock([key(1)])
    desk.work.delete([key(1)])
    assert desk.lookup([key(1)]) == [0]
    desk.work.unlock([key(1), key(1)])
    desk.work.unlock([key(1)])  # once too often
    desk.work.delete([key(1)])
    assert desk.told_of("deleted") == [encode(key(2)), encode(key(1))]
    assert desk.lookup([key(1), key(2)]) == []


def test_a_full_store_makes_room_but_not_of_what_is_locked(
    desks: Opened, arena: Arena
) -> None:
    desk = desks()
    slots = desk.work.store.capacity.slots
    assert desk.store([key(0)], [arena.part(0, pattern(SLOT, 0))])
    assert desk.lookup([key(0)]) == [0]
    for i in range(1, 2 * slots):
        assert desk.store([key(i)], [arena.part(0, pattern(SLOT, i))])
    assert desk.told_of("evicted")
    assert encode(key(0)) not in desk.told_of("evicted")
    there = {name for name, _ in desk.work.snapshot()}
    gone = set(desk.told_of("evicted"))
    assert there == {encode(key(i)) for i in range(2 * slots)} - gone
    for i in (0, 2 * slots - 1):
        into = arena.room(0, SLOT)
        assert desk.load([key(i)], [into]) == [0]
        assert bytes(into.bytes) == pattern(SLOT, i)
    desk.work.unlock([key(0)])


def test_without_eviction_a_full_store_says_so(desks: Opened, arena: Arena) -> None:
    desk = desks(eviction="none")
    slots = desk.work.store.capacity.slots
    keys = [key(i) for i in range(slots)]
    assert desk.store(keys, [arena.part(0, b"x" * 512)] * slots)
    assert not desk.store([key(slots)], [arena.part(0, b"x" * 512)])
    desk.work.delete(keys[:1])
    assert desk.store([key(slots)], [arena.part(0, b"x" * 512)])


def test_a_miss_is_a_clear_bit(desks: Opened, arena: Arena) -> None:
    desk = desks()
    assert desk.store([key(1)], [arena.part(0, b"a" * 512)])
    into = [arena.room(0, 512), arena.room(512, 512)]
    assert desk.load([key(2), key(1)], into) == [1]
    # Of another length than it was stored with: never half a chunk.
    assert desk.load([key(1)], [arena.room(0, 1024)]) == []
    assert desk.load([key(1)], [arena.room(0, 256)]) == []
    assert desk.load([key(1)], [arena.room(0, 512)]) == [0]


def test_a_failed_write_fails_the_task_and_publishes_nothing(
    desks: Opened, arena: Arena
) -> None:
    desk = desks()
    ns = next(ns for _, ns in desk.work.store._mount.namespaces)
    with inject(ns, Fault.status("write", sct=2, sc=0x80, count=1)):
        assert not desk.store(
            [key(1), key(2)],
            [arena.part(0, b"a" * SLOT), arena.part(SLOT, b"b" * SLOT)],
        )
    found = desk.lookup([key(1), key(2)])
    assert len(found) == 1  # the other one is good, and is there
    assert len(desk.told_of("stored")) == 1


def test_what_cannot_be_read_is_a_miss_and_goes(desks: Opened, arena: Arena) -> None:
    """LMCache recomputes it; the next lookup does not promise it again."""
    desk = desks()
    parts = [arena.part(i * SLOT, pattern(SLOT, i)) for i in range(2)]
    assert desk.store([key(0), key(1)], parts)
    assert desk.lookup([key(0), key(1)]) == [0, 1]
    ns = next(ns for _, ns in desk.work.store._mount.namespaces)
    with inject(ns, Fault.status("read", sct=2, sc=0x81, count=1)):
        good = desk.load([key(0), key(1)], parts)
    assert len(good) == 1
    assert desk.lookup([key(0), key(1)]) == good
    desk.work.unlock([key(0), key(1)])
    desk.work.unlock([key(0), key(1)])
    until(lambda: not desk.work.report()["unreadable_chunks"])
    bad = 1 - good[0]
    assert desk.told_of("deleted") == [encode(key(bad))]
    assert desk.store([key(bad)], [arena.part(0, pattern(SLOT, bad))])
    assert desk.lookup([key(bad)]) == [0]


def test_chunks_are_there_after_a_restart(desks: Opened, arena: Arena) -> None:
    desk = desks()
    keys = [key(i, salt="s") for i in range(9)]
    data = [pattern(1000 * (i + 1), i) for i in range(9)]
    assert desk.store(keys, [arena.part(i * SLOT, data[i]) for i in range(9)])
    desk.work.delete(keys[:1])
    desk.work.close()
    again = desks()
    assert sorted(again.work.snapshot()) == sorted(
        (encode(keys[i]), len(data[i])) for i in range(1, 9)
    )
    into = [arena.room(i * SLOT, len(data[i])) for i in range(9)]
    assert again.load(keys, into) == list(range(1, 9))
    assert [bytes(one.bytes) for one in into[1:]] == data[1:]


def test_a_slot_is_what_a_chunk_is_charged(desks: Opened) -> None:
    desk = desks(slot_bytes=None, classes=[[4096, 0.5], [65536, 0.5]])
    assert [desk.work.charge(n) for n in (1, 4096, 4097, 65536)] == [
        4096, 4096, 65536, 65536,
    ]  # fmt: skip


def test_after_closing_tasks_fail_and_nothing_raises(
    desks: Opened, arena: Arena
) -> None:
    desk = desks()
    desk.work.close()
    assert not desk.store([key(1)], [arena.part(0, b"a" * 512)])
    assert desk.lookup([key(1)]) == []
    assert desk.load([key(1)], [arena.room(0, 512)]) == []
    desk.work.unlock([key(1)])
    desk.work.delete([key(1)])
    assert desk.work.report()["is_healthy"] is False


def test_as_many_objects_as_keys(desks: Opened, arena: Arena) -> None:
    desk = desks()
    with pytest.raises(ArgumentError, match="2 keys and 1 objects"):
        desk.work.submit_store([key(1), key(2)], [arena.room(0, 512)])
    with pytest.raises(ArgumentError, match="0 keys and 1 objects"):
        desk.work.submit_load([], [arena.room(0, 512)])


def test_many_threads_at_once(desks: Opened, arena: Arena) -> None:
    """Lookups and locks beside stores, loads and deletions of the same keys."""
    desk = desks()
    desk.work.register_arena(arena.ptr, arena.nbytes)
    keys = [key(i) for i in range(16)]
    failures: list[str] = []

    def use(worker: int) -> None:
        own = [arena.room(worker * 4 * SLOT + i * SLOT, SLOT) for i in range(4)]
        for turn in range(30):
            some = [keys[(worker + turn + i) % 16] for i in range(4)]
            for one, part in zip(some, own, strict=True):
                part.bytes[:] = pattern(SLOT, int.from_bytes(one.chunk_hash, "big"))
            desk.work.submit_store(some, own)
            done = desk.work.submit_lookup(some)
            found = desk.work.looked_up.take(done)
            assert found is not None
            held = [some[i] for i in found.indices]
            desk.work.delete(some)
            if not all(desk.work.store.contains(encode(one)) for one in held):
                failures.append("a locked chunk is gone")
            desk.work.unlock(held)
            while desk.work.stored.in_flight:
                desk.signals["s"].acquire(timeout=0.01)

    workers = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not failures
    for one in keys:
        into = arena.room(0, SLOT)
        if desk.load([one], [into]):
            number = int.from_bytes(one.chunk_hash, "big")
            assert bytes(into.bytes) == pattern(SLOT, number)
    assert desk.work.report()["locks"] == 0


def test_whatever_goes_wrong_is_answered(
    desks: Opened, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, one = desks(), arena.room(0, 100)
    assert desk.store([key(1)], [one])

    async def wrong(*_: object) -> None:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(ChunkStore, "put_many", wrong)
    monkeypatch.setattr(ChunkStore, "get_many", wrong)
    assert not desk.store([key(2)], [one])
    assert desk.load([key(1)], [one]) == []


def test_closing_waits_for_no_room_that_locks_hold(desks: Opened, arena: Arena) -> None:
    desk, one = desks(), arena.room(0, 100)
    for i in range(desk.work.store.capacity.slots):
        assert desk.store([key(i)], [one])
        assert desk.lookup([key(i)]) == [0]  # so none of them can be evicted
    desk.work.submit_store([key(-1 & 0xFFFF)], [one])
    desk.work.close()
    assert desk.signals["s"].acquire(timeout=20)
