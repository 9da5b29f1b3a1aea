"""Random histories against a dictionary, with reopening in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import uvloop
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from store.tools import noise

import aiougds
from aiougds import store as st

KEYS = some.integers(0, 60).map(lambda n: b"key %d" % n)
SIZES = some.sampled_from([1, 100, 4095, 4096, 4097, 9000, 16_384])
MEMORY = 1 << 20
T = TypeVar("T")


class Machine(RuleBasedStateMachine):
    """A store of few slots: what its listener hears is what the model forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.runner: asyncio.Runner | None = None
        self.model: dict[bytes, bytes] = {}
        self.pins: dict[bytes, int] = {}
        self.number = 0

    def run(self, work: Coroutine[object, object, T]) -> T:
        assert self.runner is not None
        return self.runner.run(work)

    @initialize(
        uv=some.booleans(),
        mode=some.sampled_from(["adaptive", "interrupt"]),
        step=some.integers(0, 1),
        lba=some.sampled_from([512, 4096]),
        eviction=some.sampled_from(["lru", "arc"]),
        flush=some.sampled_from(["put", "lazy"]),
        checksum=some.sampled_from([None, "crc32c", "xxh3"]),
    )
    def start(
        self, uv: bool, mode: str, step: int, lba: int, **how: str | None
    ) -> None:
        factory = uvloop.new_event_loop if uv else asyncio.new_event_loop
        self.runner = asyncio.Runner(loop_factory=factory)
        self.how = how
        address = f"emu:?size=1MiB&lba={lba}&step={step}"
        self.ns = self.run(self._opened(address, mode))
        self.memory = self.run(self._ready())
        layout = st.Layout(slot_bytes=16_384, key_bytes=32)
        self.run(st.format([self.ns], layout))
        self.run(self._store())

    async def _opened(self, address: str, mode: str) -> aiougds.Namespace:
        return await aiougds.open(address, mode=mode)  # type: ignore[arg-type]

    async def _ready(self) -> aiougds.Registration:
        return await self.ns.allocate(MEMORY)

    async def _store(self) -> None:
        self.chunks = await st.open([self.ns], **self.how)  # type: ignore[arg-type]
        self.chunks.add_listener(self.hear)

    def hear(self, event: st.StoreEvent) -> None:
        if event.kind in ("evicted", "deleted"):
            for key, nbytes in event.items:
                assert len(self.model.pop(key)) == nbytes
                assert key not in self.pins
        if event.kind == "stored":
            for key, nbytes in event.items:
                self.model[key] = self.new[key]
                assert len(self.new[key]) == nbytes

    def data(self, key: bytes, nbytes: int) -> bytes:
        self.number += 1
        return noise((key, self.number), nbytes)

    @rule(key=KEYS, nbytes=SIZES)
    def put(self, key: bytes, nbytes: int) -> None:
        there = key in self.model
        data = self.data(key, nbytes)
        self.new = {key: data}
        assert self.run(self.chunks.put(key, data)) is not there
        assert key in self.model

    @rule(keys=some.lists(KEYS, min_size=1, max_size=12), nbytes=SIZES)
    def put_many(self, keys: list[bytes], nbytes: int) -> None:
        items, self.new = [], {}
        view = self.memory.view
        for i, key in enumerate(keys):
            data = self.data(key, nbytes)
            self.new.setdefault(key, data)
            part = self.memory[i * 32_768 : i * 32_768 + nbytes]
            view[i * 32_768 : i * 32_768 + nbytes] = self.new[key]
            items.append((key, part))
        done = self.run(self.chunks.put_many(items))
        assert all(isinstance(one, bool) for one in done)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        into = bytearray(16_400)
        if key not in self.model:
            try:
                self.run(self.chunks.get(key, into))
            except KeyError:
                return
            raise AssertionError("it is not there")
        n = self.run(self.chunks.get(key, into))
        assert into[:n] == self.model[key]
        assert not any(into[n:])

    @rule(keys=some.lists(KEYS, max_size=12, unique=True))
    def get_many(self, keys: list[bytes]) -> None:
        parts = [self.memory[i * 32_768 :][:16_384] for i in range(len(keys))]
        done = self.run(self.chunks.get_many(list(zip(keys, parts, strict=True))))
        for key, part, n in zip(keys, parts, done, strict=True):
            if key in self.model:
                assert part.view[:n] == self.model[key]
            else:
                assert isinstance(n, st.ChunkNotFoundError)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        there = key in self.model
        try:
            assert self.run(self.chunks.delete(key)) is there
        except st.ChunkPinnedError:
            assert key in self.pins
        else:
            assert key not in self.pins

    @precondition(lambda self: len(self.pins) < 4)
    @rule(key=KEYS)
    def pin(self, key: bytes) -> None:
        assert bool(self.chunks.pin(key)) is (key in self.model)
        if key in self.model:
            self.pins[key] = self.pins.get(key, 0) + 1

    @rule(key=KEYS)
    def unpin(self, key: bytes) -> None:
        assert self.chunks.unpin(key) is (key in self.pins)
        if key in self.pins:
            self.pins[key] -= 1
            if not self.pins[key]:
                del self.pins[key]

    @rule()
    def reopen(self) -> None:
        self.run(self.chunks.aclose())
        self.pins.clear()
        self.run(self._store())

    @rule()
    def flush(self) -> None:
        self.run(self.chunks.flush())

    @invariant()
    def agrees(self) -> None:
        if self.runner is None:
            return
        scanned = {key: info.nbytes for key, info in self.chunks.scan()}
        assert scanned == {key: len(data) for key, data in self.model.items()}
        room = self.chunks.capacity
        assert room.used_bytes == sum(scanned.values())
        assert room.free_slots == room.slots - len(scanned)
        assert self.chunks.statistics().pinned == len(self.pins)

    def teardown(self) -> None:
        if self.runner is not None:
            self.run(self.chunks.aclose())
            self.run(self.memory.aclose())
            assert aiougds.testing.counters(self.ns).iommu_faults == 0
            self.run(self.ns.aclose())
            self.runner.close()


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    settings.get_profile("same"), max_examples=40, stateful_step_count=40
)
