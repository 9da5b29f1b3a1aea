"""The KV cache of the demo: chunks in memory, chunks on a namespace, checksums."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio import to_thread

from aiougds.cli._ends import digest
from aiougds.cli._latency import LONGEST_NS, Distribution, samples
from aiougds.cli._units import KIB, MIB

if TYPE_CHECKING:
    from array import array
    from types import TracebackType

    from aiougds import Namespace, Registration
    from aiougds.cli._console import Advance

LARGE_BYTES: Final = 2 * MIB
SMALL_BYTES: Final = 4 * KIB
SMALL: Final = 128
WRITERS: Final = 8
ROUNDS: Final = 2000  # lone reads of small chunks


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast something went. ``latency`` is of one await."""

    name: str
    count: int
    nbytes: int
    seconds: float
    latency: Distribution

    @property
    def bytes_per_s(self) -> float:
        """Throughput."""
        return self.nbytes / max(self.seconds, 1e-9)

    def as_json(self) -> dict[str, object]:
        """Return it with stable names."""
        return {
            "name": self.name,
            "count": self.count,
            "bytes": self.nbytes,
            "seconds": round(self.seconds, 6),
            "bytes_per_s": round(self.bytes_per_s),
            "latency_us": self.latency.as_us(),
        }


class _Stopwatch:
    """Times a phase, and each await in it."""

    __slots__ = ("_began", "each")

    def __init__(self) -> None:
        self.each: array[int] = samples()
        self._began = time.perf_counter_ns()

    async def time(self, operation: Awaitable[object]) -> None:
        before = time.perf_counter_ns()
        await operation
        self.each.append(min(time.perf_counter_ns() - before, LONGEST_NS))

    def stop(self, name: str, count: int, nbytes: int) -> Measured:
        took = (time.perf_counter_ns() - self._began) / 1e9
        return Measured(name, count, nbytes, took, Distribution([self.each]))


class Cache:
    """``layers`` large chunks and :data:`SMALL` small ones, in registered memory."""

    __slots__ = ("_chunks", "_digests", "_ns", "_reg", "_stack", "layers", "nbytes")

    def __init__(self, ns: Namespace, layers: int) -> None:
        self._ns = ns
        self._stack = AsyncExitStack()
        self.layers = layers
        self.nbytes = self.room(layers)
        # name -> (first byte, bytes): the same place in memory and on the namespace
        self._chunks: dict[str, tuple[int, int]] = {
            f"layer {i} tokens 0-511": (i * LARGE_BYTES, LARGE_BYTES)
            for i in range(layers)
        }
        base = layers * LARGE_BYTES
        self._chunks |= {
            f"block table {i}": (base + i * SMALL_BYTES, SMALL_BYTES)
            for i in range(SMALL)
        }
        self._digests: dict[str, bytes] = {}

    @staticmethod
    def room(layers: int) -> int:
        """Return the bytes that a cache takes."""
        return layers * LARGE_BYTES + SMALL * SMALL_BYTES

    async def __aenter__(self) -> Self:
        self._reg: Registration = await self._stack.enter_async_context(
            self._ns.allocate(self.nbytes)
        )
        await self._each(self._fill)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _each(self, work: Callable[[str, int, int], None]) -> None:
        """Do work for each chunk, in threads."""
        chunks = iter(self._chunks.items())

        def some() -> None:
            for name, (start, nbytes) in chunks:
                work(name, start, nbytes)

        await to_thread.run_sync(some)

    def _fill(self, name: str, start: int, nbytes: int) -> None:
        view = self._reg.view[start : start + nbytes]
        view[:] = os.urandom(nbytes)
        self._digests[name] = digest(view)

    async def store(self, advance: Advance) -> Measured:
        """Write all chunks, some side by side, and flush."""
        watch = _Stopwatch()
        chunks = iter(self._chunks.values())

        async def writer() -> None:
            for start, nbytes in chunks:
                part = self._reg[start : start + nbytes]
                await watch.time(self._ns.write(part, offset=start))
                advance(nbytes)

        async with anyio.create_task_group() as tasks:
            for _ in range(WRITERS):
                tasks.start_soon(writer)
        await self._ns.flush()
        return watch.stop("store and flush", len(self._chunks), self.nbytes)

    async def forget(self) -> None:
        """Overwrite the memory, so that what is verified came from the namespace."""
        zeroes = bytes(LARGE_BYTES)

        def wipe(_name: str, start: int, nbytes: int) -> None:
            self._reg.view[start : start + nbytes] = zeroes[:nbytes]

        await self._each(wipe)

    async def restore(self, advance: Advance) -> list[Measured]:
        """Read the large chunks with a task each, the small ones with one call."""
        watch = _Stopwatch()

        async def reader(start: int, nbytes: int) -> None:
            part = self._reg[start : start + nbytes]
            await watch.time(self._ns.read(part, offset=start))
            advance(nbytes)

        chunks = list(self._chunks.values())
        async with anyio.create_task_group() as tasks:
            for start, nbytes in chunks[: self.layers]:
                tasks.start_soon(reader, start, nbytes)
        name = "restore, a task for each chunk"
        large = watch.stop(name, self.layers, self.layers * LARGE_BYTES)

        watch = _Stopwatch()
        requests = [(self._reg[at : at + n], at) for at, n in chunks[self.layers :]]
        await watch.time(self._ns.read_many(requests))
        advance(SMALL * SMALL_BYTES)
        name = f"restore {SMALL} x 4 KiB at once"
        return [large, watch.stop(name, 1, SMALL * SMALL_BYTES)]

    async def measure_small(self) -> list[Measured]:
        """Read small chunks again, one at a time, and in batches."""
        ns, chunks = self._ns, list(self._chunks.values())[self.layers :]
        requests = [(self._reg[at : at + n], at) for at, n in chunks]
        watch = _Stopwatch()
        for i in range(ROUNDS):
            part, at = requests[i % SMALL]
            await watch.time(ns.read(part, offset=at))
        lone = watch.stop("lone await of 4 KiB", ROUNDS, ROUNDS * SMALL_BYTES)
        batches = ROUNDS // 20
        watch = _Stopwatch()
        for _ in range(batches):
            await watch.time(ns.read_many(requests))
        name = f"read_many of {SMALL} x 4 KiB"
        return [lone, watch.stop(name, batches, batches * SMALL * SMALL_BYTES)]

    async def verify(self) -> list[str]:
        """Return the names of chunks that are not what was stored."""
        wrong: list[str] = []

        def check(name: str, start: int, nbytes: int) -> None:
            if digest(self._reg.view[start : start + nbytes]) != self._digests[name]:
                wrong.append(name)

        await self._each(check)
        return wrong
