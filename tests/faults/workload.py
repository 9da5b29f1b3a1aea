"""A bit of everything that the public interface can do, over blocks that are known.

Items are named after their block. Blocks below :data:`STRUCK` are those that a fault
acts on; calls of many items have some of them and some calm ones. The neighbours work
on blocks and memory of their own.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from faults.ledger import Ledger
from helpers.model import pattern
from helpers.world import Opened

from aiougds import BatchError, UGDSError

BLOCK: Final = 4096
STRUCK: Final = 32
CALM: Final = 64
BLOCKS: Final = 96  # from CALM on: the neighbours'
SPLIT: Final = range(8)  # one request of several commands
NEIGHBOUR_READS: Final = range(CALM, CALM + 8)
NEIGHBOUR_WRITES: Final = range(CALM + 8, CALM + 16)
WRITTEN: Final = (10, 12, 15, 16, 33, 36, 37)
BEFORE: Final = pattern(BLOCKS * BLOCK, 1)
AFTER: Final = pattern(BLOCKS * BLOCK, 2)

Call = Callable[[], Awaitable[None]]


def at(block: int) -> slice:
    """Return the bytes of a block."""
    return slice(block * BLOCK, (block + 1) * BLOCK)


class Done(NamedTuple):
    """An item's name and its block."""

    name: str
    block: int


def reading(*blocks: int) -> list[Done]:
    """Return the items of a call that reads."""
    return [Done(f"read {block}", block) for block in blocks]


def writing(*blocks: int) -> list[Done]:
    """Return the items of a call that writes."""
    return [Done(f"write {block}", block) for block in blocks]


class Workload:
    """The calls of one round, and what has to be so when they have ended."""

    __slots__ = ("_limit", "_ns", "_reg", "items", "jit", "ledger")

    def __init__(self, ns: Opened, reg: Opened, timeout_s: float | None = None) -> None:
        self._ns = ns
        self._reg = reg
        self._limit = timeout_s
        self.ledger = Ledger()
        self.items: list[Done] = []
        self.jit = bytearray(BLOCK)
        reg.view[:] = bytes(BLOCKS * BLOCK)
        for block in WRITTEN:
            reg.view[at(block)] = AFTER[at(block)]

    def calls(self) -> list[Call]:
        """Return what is to run at once; each accounts for its own items."""
        return [
            self._plan(reading(20), self._read),
            self._plan([Done("split read", 0)], self._read_split),
            self._plan(writing(10), self._write),
            self._plan([*reading(11, 32), *writing(12, 33)], self._batch),
            self._plan(reading(13, 14, 34, 35), self._read_many),
            self._plan(writing(15, 16, 36, 37), self._write_many),
            self._plan(reading(17, 18, 38, 39), self._as_completed),
            self._plan(reading(21, 22, 40, 41), self._read_array),
            self._plan([Done("jit read 19", 19)], self._read_jit),
            self._plan([Done("flush", STRUCK)], self._flush),
        ]

    def _plan(
        self, items: list[Done], work: Callable[[list[Done]], Awaitable[None]]
    ) -> Call:
        names = [item.name for item in items]
        self.items += items
        self.ledger.expect(names)

        async def call() -> None:
            try:
                await work(items)
            except BatchError as error:
                self._end_all(items, error.results)
            except UGDSError as error:  # the call as a whole: for all it has
                left = [item for item in items if item.name not in self.ledger.ends]
                self._end_all(left, [error] * len(left))
            finally:
                self.ledger.cut(names)  # nothing is left, or it was cancelled

        return call

    def _end(self, item: Done, result: int | UGDSError) -> None:
        """Note an end; what was read is there by now, not a little later."""
        self.ledger.end(item.name, result, BLOCK)
        if isinstance(result, int) and item.name.startswith("read"):
            read = self._reg.view[at(item.block)]
            assert read == BEFORE[at(item.block)], item.name

    def _end_all(
        self, items: Sequence[Done], results: Sequence[int | UGDSError]
    ) -> None:
        assert len(results) == len(items)
        for item, result in zip(items, results, strict=True):
            self._end(item, result)

    def _pairs(self, items: Sequence[Done]) -> list[tuple[object, int]]:
        return [(self._reg[at(item.block)], item.block * BLOCK) for item in items]

    async def _read(self, items: list[Done]) -> None:
        ((part, offset),) = self._pairs(items)
        done = await self._ns.read(part, offset=offset, timeout_s=self._limit)
        self._end(items[0], done)

    async def _read_split(self, items: list[Done]) -> None:
        part = self._reg[: len(SPLIT) * BLOCK]
        done = await self._ns.read(part, offset=0, timeout_s=self._limit)
        self.ledger.end(items[0].name, done, len(SPLIT) * BLOCK)
        assert part.view == BEFORE[: len(SPLIT) * BLOCK]

    async def _read_jit(self, items: list[Done]) -> None:
        offset = items[0].block * BLOCK
        done = await self._ns.read(self.jit, offset=offset, timeout_s=self._limit)
        self.ledger.end(items[0].name, done, BLOCK)
        assert self.jit == BEFORE[at(items[0].block)]

    async def _write(self, items: list[Done]) -> None:
        ((part, offset),) = self._pairs(items)
        done = await self._ns.write(part, offset=offset, timeout_s=self._limit)
        self._end(items[0], done)

    async def _flush(self, items: list[Done]) -> None:
        await self._ns.flush(timeout_s=self._limit)
        self.ledger.end(items[0].name, 0, 0)

    async def _read_many(self, items: list[Done]) -> None:
        done = await self._ns.read_many(self._pairs(items), timeout_s=self._limit)
        self._end_all(items, done)

    async def _write_many(self, items: list[Done]) -> None:
        done = await self._ns.write_many(self._pairs(items), timeout_s=self._limit)
        self._end_all(items, done)

    async def _read_array(self, items: list[Done]) -> None:
        where = array("q", [item.block * BLOCK for item in items])
        done = await self._ns.read_many(
            self._reg,
            offsets=where,
            nbytes=BLOCK,
            buf_offsets=where,
            timeout_s=self._limit,
        )
        self._end_all(items, done)

    async def _batch(self, items: list[Done]) -> None:
        async with self._ns.batch(len(items)) as batch:
            for item in items:
                prepare = batch.read if item.name.startswith("read") else batch.write
                ((part, offset),) = self._pairs([item])
                prepare(part, offset=offset, cookie=item.name)
            batch.submit(timeout_s=self._limit)
            by_name = {item.name: item for item in items}
            async for ended in batch:
                self._end(by_name[str(ended.cookie)], ended.result)

    async def _as_completed(self, items: list[Done]) -> None:
        call = self._ns.as_completed(self._pairs(items), timeout_s=self._limit)
        async with call as done:
            async for index, result in done:
                self._end(items[index], result)

    # ---- afterwards ----

    def struck(self) -> list[str]:
        """Return the items that the fault acts on."""
        return [item.name for item in self.items if item.block < STRUCK]

    def calm(self) -> list[str]:
        """Return the items of the same calls that it does not act on."""
        return [item.name for item in self.items if item.block >= STRUCK]

    def check_stored(self, stored: bytes, *, loses: bool = False) -> None:
        """Each block holds what was written, or what was there before; never a mix.

        ``stored`` is what the device has now. A write that succeeded is there, unless
        the device ``loses`` what was not flushed.
        """
        for block in range(CALM):
            old, new = BEFORE[at(block)], AFTER[at(block)]
            found = bytes(stored[at(block)])
            if block not in WRITTEN:
                assert found == old, f"block {block} was not written to, and changed"
            elif self.ledger.ends[f"write {block}"] == "ok" and not loses:
                assert found == new, f"block {block} was written, and is not there"
            else:
                assert found in (old, new), f"block {block} is neither old nor new"


class Neighbours:
    """Somebody else on the same controller: other blocks, other memory."""

    __slots__ = ("_ns", "_reg", "ends", "over")

    def __init__(self, ns: Opened, reg: Opened) -> None:
        self._ns = ns
        self._reg = reg
        self.over = False
        self.ends: list[str] = []
        reg.view[8 * BLOCK :] = AFTER[
            NEIGHBOUR_WRITES.start * BLOCK : NEIGHBOUR_WRITES.stop * BLOCK
        ]

    def calls(self, pause: Call) -> list[Call]:
        """Return what runs until ``over`` is set, or an operation fails."""
        return [
            lambda: self._repeat(self._read, pause),
            lambda: self._repeat(self._write, pause),
        ]

    async def _repeat(self, work: Call, pause: Call) -> None:
        while True:
            try:
                await work()
            except BatchError as error:
                self.ends += [type(each).__name__ for each in error.exceptions]
                return
            except UGDSError as error:
                self.ends.append(type(error).__name__)
                return
            self.ends.append("ok")
            if self.over:
                return
            await pause()

    async def _read(self) -> None:
        part = self._reg[: 8 * BLOCK]
        part.view[:] = bytes(8 * BLOCK)
        start = NEIGHBOUR_READS.start * BLOCK
        assert await self._ns.read(part, offset=start) == 8 * BLOCK
        assert part.view == BEFORE[start : start + 8 * BLOCK]

    async def _write(self) -> None:
        pairs = [
            (self._reg[at(8 + i)], block * BLOCK)
            for i, block in enumerate(NEIGHBOUR_WRITES)
        ]
        assert await self._ns.write_many(pairs) == [BLOCK] * 8

    def check_stored(self, stored: bytes, *, loses: bool = False) -> None:
        """Their blocks hold what they wrote, whatever went on beside them."""
        for block in range(CALM, BLOCKS):
            old, new = BEFORE[at(block)], AFTER[at(block)]
            found = bytes(stored[at(block)])
            if block not in NEIGHBOUR_WRITES:
                assert found == old, f"block {block} is a neighbour's, and changed"
            elif set(self.ends) == {"ok"} and not loses:
                assert found == new, f"block {block} is a neighbour's, and is lost"
            else:
                assert found in (old, new), f"block {block} is neither old nor new"
