"""A worker that does random things to its own blocks while faults strike.

Its model knows for each block what may be stored there: a write that succeeded leaves
one value, one that failed or was given up leaves the old or the new one, and one that
the device may still carry out leaves that open until nothing is in quarantine.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import anyio
from helpers.world import Opened

from aiougds import BatchError, BrokenError, Mode, NVMeError, UGDSError

BLOCK: Final = 4096
BLOCKS: Final = 16  # of the namespace, for each worker
SLOTS: Final = 64  # of memory; those that the device may still touch are left alone
PAUSE_S: Final = 0.002
BROKEN_PAUSE_S: Final = 0.03
MODES: Final[tuple[Mode | None, ...]] = (
    *[None] * 6,
    "interrupt",
    "poll",
    "inline",
    "adaptive",
)
# kind: how often, in how many calls
MIX: Final = {
    "read": 24,
    "write": 18,
    "read_many": 12,
    "write_many": 10,
    "batch": 14,
    "as_completed": 10,
    "jit": 5,
    "flush": 4,
}
CANCELLED: Final = 0.12  # of the calls
LIMITED: Final = 0.15


class Item(NamedTuple):
    """One operation: its number is its own in the whole run."""

    number: int
    write: bool
    block: int
    slot: int
    stamp: bytes

    @property
    def offset(self) -> int:
        """Where its block is."""
        return self.block * BLOCK


class Block:
    """What may be stored in a block."""

    __slots__ = ("late", "may")

    def __init__(self) -> None:
        self.may: set[bytes] = {bytes(8)}
        self.late: set[bytes] = set()  # writes that the device may still carry out

    def settle(self) -> None:
        """Nothing is on its way any more."""
        self.may |= self.late
        self.late.clear()

    def check(self, data: bytes) -> None:
        """Assert that a read gave one of the values, whole."""
        stamp = data[:8]
        assert data == stamp * (BLOCK // 8), "a block of two writes"
        assert stamp in self.may or stamp in self.late, "not what was written"
        if not self.late:
            self.may = {stamp}


class Worker:
    """One client of a controller."""

    def __init__(
        self, ns: Opened, slot: int, *, blocking: bool = False, cancels: bool = True
    ) -> None:
        self.random = random.Random(slot)
        self.blocking = blocking
        self.cancels = cancels and not blocking
        self.controller: Opened = ns.controller
        self.ns: Opened = ns.region(slot * BLOCKS * BLOCK, BLOCKS * BLOCK)
        self.reg: Opened = self.ns.allocate(SLOTS * BLOCK)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.free = list(range(SLOTS))
        self.touched: list[int] = []  # slots that the device may still touch
        self.over = False  # nobody resets the controller any more
        self.next = slot << 40
        self.ended: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.open: dict[int, Item] = {}

    @property
    def done(self) -> int:
        """Operations that have ended."""
        return self.ended.total()

    async def run(self, operations: int) -> None:
        """Do so many operations."""
        end = self.done + operations
        kinds, weights = list(MIX), list(MIX.values())
        while self.done < end and not self.over:
            (kind,) = self.random.choices(kinds, weights)
            await self._settle()
            work: Callable[[], Awaitable[None]] = getattr(self, f"_{kind}")
            await self._cancelled_or_not(work)

    # ---- accounting ----

    def _items(self, count: int, *, write: bool) -> list[Item]:
        items = []
        for block in self.random.sample(range(BLOCKS), count):
            self.next += 1
            item = Item(
                self.next,
                write,
                block,
                self.free.pop(),
                self.next.to_bytes(8, "little"),
            )
            if write:
                self._part(item).view[:] = item.stamp * (BLOCK // 8)
            items.append(item)
            self.open[item.number] = item
        return items

    def _part(self, item: Item) -> Opened:
        return self.reg[item.slot * BLOCK : (item.slot + 1) * BLOCK]

    def _end(self, item: Item, result: int | UGDSError, data: bytes = b"") -> None:
        """Account for the end of an operation, which must be its only one."""
        del self.open[item.number]
        final = isinstance(result, (int, NVMeError))  # the device has answered
        word = "ok" if isinstance(result, int) else type(result).__name__
        self.ended[word] += 1
        self.examples[word] = str(result)
        (self.free if final else self.touched).append(item.slot)
        if item.block < 0:
            return
        block = self.blocks[item.block]
        if not isinstance(result, int):
            if item.write:
                (block.may if final else block.late).add(item.stamp)
            return
        assert result == BLOCK
        if item.write:
            block.may = {item.stamp}
        else:
            block.check(data or bytes(self._part(item).view))

    def _end_all(self, items: Sequence[Item], results: Sequence[int | UGDSError]):
        assert len(results) == len(items)
        for item, result in zip(items, results, strict=True):
            self._end(item, result)

    def _cut(self) -> None:
        """The caller was cancelled, or left early: these have no result."""
        for item in self.open.values():
            self.ended["cancelled"] += 1
            self.touched.append(item.slot)
            if item.write:
                self.blocks[item.block].late.add(item.stamp)
        self.open.clear()

    async def _settle(self) -> None:
        """Find out whether anything is on its way; wait for it when room is short."""
        while self.touched and not self.over:
            if not self.controller.quarantine:
                self.free += self.touched
                self.touched.clear()
                for block in self.blocks:
                    block.settle()
            elif len(self.free) < BLOCKS:
                await self._pause()
                continue
            return

    async def _pause(self, seconds: float = PAUSE_S) -> None:
        if self.blocking:
            time.sleep(seconds)
        else:
            await anyio.sleep(seconds)

    async def _cancelled_or_not(self, work: Callable[[], Awaitable[None]]) -> None:
        if not self.cancels or self.random.random() > CANCELLED:
            await self._call(work)
            return
        delay_s = self.random.choice((0, 0, 1e-4, 1e-3, 5e-3))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def disconnect() -> None:
                    await anyio.sleep(delay_s)
                    scope.cancel()

                group.start_soon(disconnect)
                await self._call(work)
                group.cancel_scope.cancel()

    async def _call(self, work: Callable[[], Awaitable[None]]) -> None:
        broken = False
        try:
            await work()
        except BatchError as error:
            self._end_all(list(self.open.values()), error.results)
        except UGDSError as error:
            broken = isinstance(error, BrokenError)
            for item in list(self.open.values()):
                self._end(item, error)
        finally:
            self._cut()
        if broken:  # until somebody has reset it
            await self._pause(BROKEN_PAUSE_S)

    def _limit(self) -> float | None:
        if self.random.random() > LIMITED:
            return None
        return self.random.choice((5e-4, 2e-3, 1e-2))

    # ---- calls ----

    async def _read(self) -> None:
        (item,) = self._items(1, write=False)
        mode, limit = self.random.choice(MODES), self._limit()
        part = self._part(item)
        self._end(
            item,
            await self.ns.read(part, offset=item.offset, mode=mode, timeout_s=limit),
        )

    async def _write(self) -> None:
        (item,) = self._items(1, write=True)
        mode, limit = self.random.choice(MODES), self._limit()
        part = self._part(item)
        self._end(
            item,
            await self.ns.write(part, offset=item.offset, mode=mode, timeout_s=limit),
        )

    async def _jit(self) -> None:
        (item,) = self._items(1, write=False)
        memory = bytearray(BLOCK)
        done = await self.ns.read(memory, offset=item.offset, timeout_s=self._limit())
        self._end(item, done, bytes(memory))

    async def _flush(self) -> None:
        self.next += 1
        item = Item(self.next, False, -1, self.free.pop(), b"")
        self.open[item.number] = item
        await self.ns.flush(timeout_s=self._limit())
        self._end(item, 0)

    async def _read_many(self) -> None:
        items = self._items(self.random.randint(2, 12), write=False)
        pairs = [(self._part(item), item.offset) for item in items]
        self._end_all(items, await self.ns.read_many(pairs, timeout_s=self._limit()))

    async def _write_many(self) -> None:
        items = self._items(self.random.randint(2, 8), write=True)
        pairs = [(self._part(item), item.offset) for item in items]
        self._end_all(items, await self.ns.write_many(pairs, timeout_s=self._limit()))

    async def _batch(self) -> None:
        count = self.random.randint(2, 12)
        items = self._items(count, write=self.random.random() < 0.5)
        async with self.ns.batch(count) as batch:
            for item in items:
                prepare = batch.write if item.write else batch.read
                prepare(self._part(item), offset=item.offset, cookie=item)
            batch.submit(timeout_s=self._limit())
            async for ended in batch:
                self._end(ended.cookie, ended.result)

    async def _as_completed(self) -> None:
        items = self._items(self.random.randint(2, 12), write=False)
        pairs = [(self._part(item), item.offset) for item in items]
        leave = self.random.choice((len(items), len(items), 1))
        call = self.ns.as_completed(pairs, capacity=8, timeout_s=self._limit())
        async with call as done:
            async for index, result in done:
                self._end(items[index], result)
                leave -= 1
                if not leave:
                    break

    # ---- the end ----

    async def finish(self) -> None:
        """With a healthy controller: every block holds what it may hold."""
        assert not self.open
        await self._settle()
        assert len(self.free) == SLOTS
        assert await self.ns.read(self.reg[: BLOCKS * BLOCK], offset=0)
        view = bytes(self.reg.view[: BLOCKS * BLOCK])
        for number, block in enumerate(self.blocks):
            block.check(view[number * BLOCK : (number + 1) * BLOCK])

    async def close(self) -> None:
        """Give the memory back."""
        assert self.reg.inflight == 0
        await self.reg.aclose(timeout_s=5)
        await self.ns.aclose(timeout_s=5)
