"""A workload that keeps a book, a power cut in it, and what may be there afterwards.

The book says of each key which chunks it may have: those of the puts and deletions
that have ended are settled, those on their way may have happened or not. A chunk's
bytes follow from its key and the number of the put, so that no chunk can pass for
another, nor half of one for a whole one.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

import aiougds
from aiougds import store as st
from aiougds.testing import Fault, inject

ABSENT = 0  # in place of the number of a put
HEAD = struct.Struct("<II")
POOL = random.Random(1).randbytes(1 << 17)


def content(key: bytes, number: int, nbytes: int) -> bytes:
    """Return the bytes of a put."""
    at = zlib.crc32(key, number) % (len(POOL) - nbytes)
    body = POOL[at : at + nbytes]
    head = HEAD.pack(number, zlib.crc32(body))
    return (head + body)[:nbytes]


@dataclass(frozen=True, slots=True)
class Variant:
    """What is run."""

    name: str
    lba: int = 4096
    workers: int = 1
    eviction: st.Eviction | None = "lru"
    flush: st.Flush = "put"
    checksum: st.Checksum | None = None
    size: int = 4 << 20
    steps: int = 60
    many: int = 0
    """Chunks of each put_many, of which there are some."""


@dataclass(slots=True)
class Book:
    """What each key may have."""

    may: dict[bytes, set[int]] = field(default_factory=dict)
    sizes: dict[tuple[bytes, int], int] = field(default_factory=dict)
    number: int = 0
    acknowledged: int = 0

    def begin_put(self, key: bytes, nbytes: int) -> int:
        """A put begins: from now on it may be there."""
        self.number += 1
        self.sizes[key, self.number] = nbytes
        self.may.setdefault(key, {ABSENT}).add(self.number)
        return self.number

    def end_put(self, key: bytes, number: int, *, there: bool) -> None:
        """It is there, unless it went again before its caller heard of it."""
        self.may[key] = {number} if there else {number, ABSENT}
        self.acknowledged += 1

    def hear(self, event: st.StoreEvent) -> None:
        """Chunks may be gone."""
        if event.kind in ("evicted", "deleted"):
            for key, _ in event.items:
                self.may[key].add(ABSENT)

    def end_delete(self, key: bytes) -> None:
        """It is gone."""
        self.may[key] = {ABSENT}

    async def check(self, chunks: st.ChunkStore) -> None:
        """Compare with what is there, which is what must be there from now on."""
        into = bytearray(1 << 16)
        there = {key for key, _ in chunks.scan()}
        assert there <= set(self.may), "a key that nobody put"
        for key, may in self.may.items():
            found = ABSENT
            if key in there:
                n = await chunks.get(key, into)
                found = next(
                    (
                        number
                        for number in may - {ABSENT}
                        if self.sizes[key, number] == n
                        and into[:n] == content(key, number, n)
                    ),
                    -1,
                )
                assert found > 0, f"{key!r} is torn, or another: {n} bytes, {may}"
            assert found in may, f"{key!r} is lost: {may}"
            self.may[key] = {found}


class Work:
    """Random puts, deletions and gets, until the device has gone."""

    __slots__ = ("book", "chunks", "rng", "variant")

    def __init__(
        self, chunks: st.ChunkStore, book: Book, variant: Variant, seed: int
    ) -> None:
        self.chunks = chunks
        self.book = book
        self.variant = variant
        self.rng = random.Random(seed)
        chunks.add_listener(book.hear)

    async def run(self, keys: list[bytes]) -> None:
        """One worker, with keys of its own."""
        try:
            for _ in range(self.variant.steps):
                await self._step(keys)
        except aiougds.UGDSError:
            return

    async def _step(self, keys: list[bytes]) -> None:
        rng, chunks, book = self.rng, self.chunks, self.book
        key = rng.choice(keys)
        lazy = self.variant.flush == "lazy"
        dice = rng.random()
        if dice < 0.15 and key in chunks:
            await chunks.delete(key)
            if not lazy:
                book.end_delete(key)
            return
        if self.variant.many and dice < 0.3:
            await self._many(rng.sample(keys, min(self.variant.many, len(keys))))
            return
        if lazy and dice < 0.35:
            before = {k: set(v) for k, v in book.may.items()}
            await chunks.flush()
            self._settled(before)
            return
        if key in chunks:
            into = bytearray(1 << 16)
            n = await chunks.get(key, into)
            assert any(
                into[:n] == content(key, number, n)
                for number in book.may[key] - {ABSENT}
                if book.sizes[key, number] == n
            )
            return
        nbytes = rng.choice((5, 600, 4096, 5000, 8192, 12_287))
        number = book.begin_put(key, nbytes)
        if await chunks.put(key, content(key, number, nbytes)) and not lazy:
            book.end_put(key, number, there=key in chunks)

    async def _many(self, keys: list[bytes]) -> None:
        book = self.book
        new = [key for key in keys if key not in self.chunks]
        numbers = [book.begin_put(key, 3000) for key in new]
        async with await self.chunks.allocate(4096 * max(1, len(new))) as reg:
            items = []
            for i, (key, number) in enumerate(zip(new, numbers, strict=True)):
                part = reg[i * 4096 : i * 4096 + 3000]
                part.view[:] = content(key, number, 3000)
                items.append((key, part))
            try:
                done = await self.chunks.put_many(items)
            except aiougds.UGDSError:
                return
        for key, number, result in zip(new, numbers, done, strict=True):
            if isinstance(result, aiougds.UGDSError):
                raise result
            if self.variant.flush == "put":
                book.end_put(key, number, there=key in self.chunks)

    def _settled(self, before: dict[bytes, set[int]]) -> None:
        """After a flush with one worker: what is there is all that may be."""
        for key in before:
            present = key in self.chunks
            newest = max(self.book.may[key])
            self.book.may[key] = {newest} if present else {ABSENT}


@asynccontextmanager
async def device(variant: Variant, seed: int) -> AsyncIterator[aiougds.Namespace]:
    """Open a device that forgets."""
    address = (
        f"emu:?size={variant.size}&lba={variant.lba}&volatile=1&seed={seed}&queues=2"
    )
    async with aiougds.open(address, queues=2) as ns:
        yield ns


def opening(ns: aiougds.Namespace, variant: Variant) -> Awaitable[st.ChunkStore]:
    """Open the store of a variant."""
    return st.open(
        [ns],
        create=st.Layout(slot_bytes=12 << 10, key_bytes=200),
        eviction=variant.eviction,
        high=0.9,
        low=0.7,
        flush=variant.flush,
        checksum=variant.checksum,
    )


def keys_of(variant: Variant, worker: int) -> list[bytes]:
    """Return the keys of a worker; long ones, so that records fill blocks."""
    return [b"%d-%d-" % (worker, n) + b"k" * 150 for n in range(60)]


async def live(
    ns: aiougds.Namespace, chunks: st.ChunkStore, work: Work, skip: int
) -> bool:
    """Work until the power goes in the middle of a command; False: it did not.

    ``skip`` commands pass before.
    """
    variant = work.variant
    with inject(ns, Fault.power_cut(skip=skip)) as cut:
        async with anyio.create_task_group() as tasks:
            left = variant.workers

            async def worker(number: int) -> None:
                nonlocal left
                await work.run(keys_of(variant, number))
                left -= 1
                if not left:
                    tasks.cancel_scope.cancel()

            for number in range(variant.workers):
                tasks.start_soon(worker, number)
            while not cut.hits:
                await anyio.sleep(0)
            await ns.controller.reset()
            while left:  # all of them have noticed
                await anyio.sleep(0.0005)
            tasks.cancel_scope.cancel()
        return cut.hits > 0


async def cut_at(variant: Variant, skip: int, seed: int, twice: bool = True) -> bool:
    """Lose power at that command, look; go on, lose it again, look."""
    async with device(variant, seed) as ns:
        book = Book()
        chunks = await opening(ns, variant)
        hit = await live(ns, chunks, Work(chunks, book, variant, 7), skip)
        await leave(chunks, hit=hit)
        chunks = await opening(ns, variant)
        await book.check(chunks)
        if hit and twice:
            again = random.Random(seed).randrange(40)
            hit_again = await live(ns, chunks, Work(chunks, book, variant, 8), again)
            await leave(chunks, hit=hit_again)
            chunks = await opening(ns, variant)
            await book.check(chunks)
        await chunks.aclose()
        return hit


async def leave(chunks: st.ChunkStore, *, hit: bool) -> None:
    """Close a store; after a cut nothing more of it may reach the device."""
    before = chunks.statistics().commits
    await chunks.aclose()
    if hit:
        assert chunks.statistics().commits == before


Check = Callable[[], Awaitable[None]]
