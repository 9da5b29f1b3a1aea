"""A long run of everything mixed: memory stays flat, each operation ends once.

``AIOUGDS_SOAK_OPS`` says how many operations; all loops together run that many.
"""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from array import array
from pathlib import Path
from typing import Final

import anyio
import pytest
from life.live import BLOCK, check_clean, until

import aiougds
from aiougds import Mode, Namespace, Registration
from aiougds.testing import counters

pytestmark = [pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(1800)]

OPERATIONS: Final = int(os.environ.get("AIOUGDS_SOAK_OPS", "100000"))
SHARES: Final = {"asyncio": 0.4, "uvloop": 0.4, "trio": 0.2}
WORKERS: Final = 32
BLOCKS: Final = 16  # of the namespace, for each worker
MODES: Final[tuple[Mode | None, ...]] = (
    *[None] * 13,
    "interrupt",
    "poll",
    "inline",
)
# kind: how often, in how many operations
MIX: Final = {
    "read": 60,
    "write": 15,
    "read_many": 8,
    "read_array": 4,
    "write_many": 3,
    "batch": 3,
    "as_completed": 2,
    "jit": 6,
    "edges": 3,
    "cancel_read": 3,
    "cancel_write": 2,
    "plain": 3,
}
MEASURED: Final = 0.3  # of the run: from there on memory is to stay what it is
RSS_GROWTH: Final = 24 << 20
HEAP_GROWTH: Final = 256 << 10


class Worker:
    """Does random things in its own part of the namespace, against a plain model."""

    def __init__(self, ns: Namespace, slot: int, seed: int) -> None:
        self.random = random.Random(seed * 1000 + slot)
        self.ns = ns.region(slot * BLOCKS * BLOCK, BLOCKS * BLOCK)
        self.reg: Registration = self.ns.allocate(BLOCKS * BLOCK)
        self.memory = bytearray(4 * BLOCK)
        self.model = bytearray(BLOCKS * BLOCK)
        self.done = 0
        self.cancelled = 0
        self.kinds = list(MIX)
        self.weights = list(MIX.values())

    async def run(self, operations: int) -> None:
        end = self.done + operations
        while self.done < end:
            (kind,) = self.random.choices(self.kinds, self.weights)
            await getattr(self, f"_{kind}")()

    def _range(self, most: int = 4) -> tuple[int, int]:
        nbytes = self.random.randint(1, most) * BLOCK
        return self.random.randrange(0, BLOCKS * BLOCK - nbytes + 1, BLOCK), nbytes

    def _some(self, most: int) -> list[int]:
        blocks = self.random.sample(range(BLOCKS), self.random.randint(1, most))
        return [block * BLOCK for block in blocks]

    def _fill(self, at: int, nbytes: int) -> None:
        self.reg.view[at : at + nbytes] = self.random.randbytes(16) * (nbytes // 16)

    def _pairs(self, offsets: list[int]) -> list[tuple[aiougds.RegistrationSlice, int]]:
        return [(self.reg[at : at + BLOCK], at) for at in offsets]

    def _check(self, at: int, nbytes: int) -> None:
        assert self.reg.view[at : at + nbytes] == self.model[at : at + nbytes]

    async def _read(self) -> None:
        at, nbytes = self._range()
        mode = self.random.choice(MODES)
        part = self.reg[at : at + nbytes]
        assert await self.ns.read(part, offset=at, mode=mode) == nbytes
        self._check(at, nbytes)
        self.done += 1

    async def _write(self) -> None:
        at, nbytes = self._range()
        self._fill(at, nbytes)
        mode = self.random.choice(MODES)
        part = self.reg[at : at + nbytes]
        assert await self.ns.write(part, offset=at, mode=mode) == nbytes
        self.model[at : at + nbytes] = part.view
        self.done += 1

    async def _read_many(self) -> None:
        offsets = self._some(BLOCKS)
        results = await self.ns.read_many(self._pairs(offsets))
        assert results == [BLOCK] * len(offsets)
        for at in offsets:
            self._check(at, BLOCK)
        self.done += len(offsets)

    async def _read_array(self) -> None:
        offsets = self._some(BLOCKS)
        where = array("q", offsets)
        results = await self.ns.read_many(
            self.reg, offsets=where, nbytes=BLOCK, buf_offsets=where
        )
        assert results == [BLOCK] * len(offsets)
        for at in offsets:
            self._check(at, BLOCK)
        self.done += len(offsets)

    async def _write_many(self) -> None:
        offsets = self._some(8)
        for at in offsets:
            self._fill(at, BLOCK)
        assert await self.ns.write_many(self._pairs(offsets)) == [BLOCK] * len(offsets)
        for at in offsets:
            self.model[at : at + BLOCK] = self.reg.view[at : at + BLOCK]
        self.done += len(offsets)

    async def _batch(self) -> None:
        offsets = self._some(8)
        async with self.ns.batch(8) as batch:
            for part, at in self._pairs(offsets):
                batch.read(part, offset=at, cookie=at)
            batch.submit()
            ended: list[object] = []
            while batch.pending:
                for item in await batch.harvest(self.random.randint(1, 8)):
                    assert item.result == BLOCK
                    ended.append(item.cookie)
        assert sorted(map(int, map(str, ended))) == sorted(offsets)  # each once
        for at in offsets:
            self._check(at, BLOCK)
        self.done += len(offsets)

    async def _as_completed(self) -> None:
        offsets = self._some(BLOCKS)
        leave_after = self.random.choice([1, BLOCKS])
        seen: set[int] = set()
        pairs = self._pairs(offsets)
        async with self.ns.as_completed(pairs, capacity=8) as completed:
            async for index, result in completed:
                assert result == BLOCK
                assert index not in seen
                seen.add(index)
                if len(seen) >= leave_after:
                    break
        for index in seen:
            self._check(offsets[index], BLOCK)
        self.done += len(offsets)

    async def _jit(self) -> None:
        at, nbytes = self._range()
        view = memoryview(self.memory)[:nbytes]
        assert await self.ns.read(view, offset=at) == nbytes
        assert view == self.model[at : at + nbytes]
        self.done += 1

    async def _edges(self) -> None:
        nbytes = self.random.randint(1, 3 * BLOCK)
        at = self.random.randint(0, BLOCKS * BLOCK - nbytes)
        view = memoryview(self.memory)[:nbytes]
        assert await self.ns.read(view, offset=at, edges="bounce") == nbytes
        assert view == self.model[at : at + nbytes]
        self.done += 1

    async def _cancelled(self, write: bool, at: int, nbytes: int) -> bool:
        part = self.reg[at : at + nbytes]
        call = self.ns.write if write else self.ns.read
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel(turns: int) -> None:
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(cancel, self.random.randint(0, 3))
                await call(part, offset=at, mode="interrupt")
                group.cancel_scope.cancel()
        self.cancelled += scope.cancel_called
        self.done += 1
        return scope.cancelled_caught

    async def _cancel_read(self) -> None:
        at, nbytes = self._range()
        if not await self._cancelled(False, at, nbytes):
            self._check(at, nbytes)

    async def _cancel_write(self) -> None:
        at, nbytes = self._range()
        self._fill(at, nbytes)
        data = bytes(self.reg.view[at : at + nbytes])
        await self._cancelled(True, at, nbytes)
        # Old or new bytes: settle it.
        self.reg.view[at : at + nbytes] = data
        await self.ns.write(self.reg[at : at + nbytes], offset=at)
        self.model[at : at + nbytes] = data
        self.done += 1

    async def _plain(self) -> None:
        at, nbytes = self._range()
        match self.random.randrange(3):
            case 0:
                await self.ns.write_zeroes(offset=at, nbytes=nbytes)
                self.model[at : at + nbytes] = bytes(nbytes)
            case 1:
                self.reg.view[at : at + nbytes] = self.model[at : at + nbytes]
                await self.ns.compare(self.reg[at : at + nbytes], offset=at)
            case _:
                await self.ns.flush()
        self.done += 1

    async def finish(self) -> None:
        assert await self.ns.read(self.reg, offset=0) == BLOCKS * BLOCK
        self._check(0, BLOCKS * BLOCK)
        assert self.reg.inflight == 0
        await self.reg.aclose()
        await self.ns.aclose()


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def weigh() -> tuple[int, int, int]:
    gc.collect()
    return (
        resident(),
        tracemalloc.get_traced_memory()[0],
        len(os.listdir("/proc/self/fd")),
    )


async def run_all(workers: list[Worker], operations: int) -> None:
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run, operations // len(workers))


async def test_mixed_operations(anyio_backend: tuple[str, dict[str, bool]]) -> None:
    name, options = anyio_backend
    loop = "uvloop" if options.get("use_uvloop") else name
    operations = int(OPERATIONS * SHARES[loop])
    size = WORKERS * BLOCKS * BLOCK
    tracemalloc.start()
    try:
        async with aiougds.open(f"emu:?size={size}") as ns:
            workers = [Worker(ns, slot, len(loop)) for slot in range(WORKERS)]
            await run_all(workers, int(operations * MEASURED))
            before = weigh()
            await run_all(workers, int(operations * (1 - MEASURED)))
            after = weigh()
            for worker in workers:
                await worker.finish()
            done = sum(worker.done for worker in workers)
            assert done >= operations * 0.99
            assert sum(worker.cancelled for worker in workers) > done // 1000
            await until(lambda: ns.controller.statistics().mappings <= WORKERS)
            check_clean(ns)
            stats = ns.controller.statistics()
            assert (stats.errors, stats.timeouts, stats.dropped) == (0, 0, 0)
            assert stats.commands == stats.reads + stats.writes + stats.others
            await until(lambda: counters(ns).commands == stats.commands)
        grown = [now - then for then, now in zip(before, after, strict=True)]
        assert grown[0] < RSS_GROWTH, f"{grown[0]} bytes more resident memory"
        assert grown[1] < HEAP_GROWTH, f"{grown[1]} bytes more of Python objects"
        assert grown[2] == 0, f"{grown[2]} more descriptors"
    finally:
        tracemalloc.stop()
