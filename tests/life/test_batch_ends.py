"""Batches: each item ends once, with its own result, whatever became of the others."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from life.conftest import Live
from life.live import BLOCK, pattern, until

from aiougds import (
    BatchError,
    BatchItem,
    MediaError,
    Namespace,
    OperationAbortedError,
    Registration,
    RegistrationSlice,
    UGDSError,
)
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio
BAD = Fault.status("read", sct=2, sc=0x81)


def slices(reg: Registration, count: int) -> list[tuple[RegistrationSlice, int]]:
    return [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(count)]


def check(
    results: tuple[int | UGDSError, ...], bad: set[int], reg: Registration
) -> None:
    data = pattern(len(results) * BLOCK)
    for i, result in enumerate(results):
        part = slice(i * BLOCK, (i + 1) * BLOCK)
        if i in bad:
            assert isinstance(result, MediaError), i
            assert result.offset == i * BLOCK
            assert (result.sct, result.sc, result.bytes_done) == (2, 0x81, 0)
        else:
            assert result == BLOCK, i
            assert reg.view[part] == data[part], i


async def test_read_many_of_pairs(live: Live) -> None:
    async with live() as ns, ns.allocate(32 * BLOCK) as reg:
        await ns.write(pattern(32 * BLOCK), offset=0)
        with (
            inject(ns, BAD.on(slba=5, nlb=2)),
            inject(ns, BAD.on(slba=31, nlb=1)),
            pytest.raises(BatchError, match="3 of 32 items of read_many") as failed,
        ):
            await ns.read_many(slices(reg, 32))
        check(failed.value.results, {5, 6, 31}, reg)
        assert len(failed.value.exceptions) == 3
        media, rest = failed.value.split(MediaError)
        assert rest is None
        assert isinstance(media, BatchError)
        assert media.results == failed.value.results
        assert await ns.read_many(slices(reg, 32)) == [BLOCK] * 32


async def test_read_many_of_arrays(live: Live) -> None:
    count = 200
    async with live() as ns, ns.allocate(count * BLOCK) as reg:
        await ns.write(pattern(count * BLOCK), offset=0)
        where = array("q", range(0, count * BLOCK, BLOCK))
        with (
            inject(ns, BAD.on(slba=0, nlb=1)),
            inject(ns, BAD.on(slba=150, nlb=1)),
            pytest.raises(BatchError) as failed,
        ):
            await ns.read_many(reg, offsets=where, nbytes=BLOCK)
        check(failed.value.results, {0, 150}, reg)
        assert await ns.read_many(reg, offsets=where, nbytes=BLOCK) == [BLOCK] * count


@pytest.mark.few
async def test_failures_in_two_windows_of_a_long_call(live: Live) -> None:
    """More items than one C batch holds: results of all windows are in one place."""
    count = 5000
    async with live("lba=512") as ns, ns.allocate(512) as reg:
        where = array("q", range(0, count * 512, 512))
        inside = array("q", bytes(8 * count))
        with (
            inject(ns, BAD.on(slba=7, nlb=1)),
            inject(ns, BAD.on(slba=4900, nlb=1)),
            pytest.raises(BatchError) as failed,
        ):
            await ns.read_many(reg, offsets=where, nbytes=512, buf_offsets=inside)
        bad = [
            i for i, r in enumerate(failed.value.results) if isinstance(r, UGDSError)
        ]
        assert bad == [7, 4900]
        assert len(failed.value.results) == count


async def test_write_many_failures(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        bad = Fault.status("write", sct=2, sc=0x80).on(slba=2, nlb=1)
        with inject(ns, bad), pytest.raises(BatchError) as failed:
            await ns.write_many(slices(reg, 8))
        kinds = [type(result) for result in failed.value.results]
        assert kinds == [int, int, MediaError, *[int] * 5]


async def test_harvest_has_failures_as_items(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg, ns.batch(8) as batch:
        await ns.write(pattern(8 * BLOCK), offset=0)
        for _ in range(3):  # a batch that had failures is as good as new
            with inject(ns, BAD.on(slba=3, nlb=1)):
                for i, (part, offset) in enumerate(slices(reg, 8)):
                    batch.read(part, offset=offset, cookie=("item", i))
                batch.submit()
                items = await batch.harvest(8)
            results: dict[int, BatchItem] = {}
            for item in items:
                assert isinstance(item.cookie, tuple)
                assert item.cookie[1] not in results
                results[item.cookie[1]] = item
            assert set(results) == set(range(8))
            check(tuple(results[i].result for i in range(8)), {3}, reg)
            assert results[3].nbytes == 0
            assert batch.pending == 0


async def test_as_completed_yields_failures(live: Live) -> None:
    async with live() as ns, ns.allocate(40 * BLOCK) as reg:
        await ns.write(pattern(40 * BLOCK), offset=0)
        with inject(ns, BAD.on(slba=9, nlb=1)), inject(ns, BAD.on(slba=33, nlb=2)):
            async with ns.as_completed(slices(reg, 40), capacity=8) as done:
                results = [pair async for pair in done]
        assert sorted(index for index, _ in results) == list(range(40))
        check(
            tuple(r for _, r in sorted(results, key=lambda p: p[0])), {9, 33, 34}, reg
        )


async def test_slow_items_come_last(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        with inject(ns, Fault.delay(0.1, "read").on(slba=0, nlb=1)):
            async with ns.as_completed(slices(reg, 8)) as done:
                order = [index async for index, _ in done]
        assert order[-1] == 0
        assert sorted(order) == list(range(8))


def outcomes(items: list[BatchItem]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for item in items:
        if item.error is None:
            seen["done"] += 1
            continue
        assert isinstance(item.error, OperationAbortedError)
        words = str(item.error)
        if "never sent" in words:
            seen["never sent"] += 1
        elif "gave it up" in words:
            seen["aborted"] += 1
        else:
            assert "not known" in words
            seen["unknown"] += 1
    return seen


async def held_batch(ns: Namespace, reg: Registration) -> list[BatchItem]:
    """Submit 64 reads at depth 8: 4 get through, 8 are kept; cancel them all."""
    async with ns.batch(64) as batch:
        for i, (part, offset) in enumerate(slices(reg, 64)):
            batch.read(part, offset=offset, cookie=i)
        with inject(ns, Fault.hold("read").on(skip=4)) as held:
            batch.submit()
            items = await batch.harvest(4)
            await until(lambda: held.hits >= 7)
            batch.cancel()
            items += await batch.harvest(60)
        assert sorted(int(str(item.cookie)) for item in items) == list(range(64))
        assert batch.pending == 0
        return items


async def test_results_after_a_cancel(live: Live) -> None:
    async with (
        live(depth=8, batch_depth=8, queues=2, cancel_grace_s=0.05) as ns,
        ns.allocate(64 * BLOCK) as reg,
    ):
        refuse = inject(ns, Fault("abort_refused"))
        seen = outcomes(await held_batch(ns, reg))
        assert seen["done"] == 4
        assert 7 <= seen["unknown"] + seen["aborted"] <= 8
        assert seen["unknown"] >= 1
        assert seen["never sent"] == 64 - 4 - seen["unknown"] - seen["aborted"]
        refuse.clear()
        # The holds were cleared on the way: each of them came back, late.
        await until(lambda: not ns.controller.quarantine)
        assert reg.inflight == 0
        assert await ns.read_many(slices(reg, 64)) == [BLOCK] * 64


async def test_cancel_of_what_was_only_prepared(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg, ns.batch(4) as batch:
        before = ns.controller.statistics().commands
        for part, offset in slices(reg, 4):
            batch.read(part, offset=offset)
        batch.cancel()
        assert (batch.prepared, batch.pending) == (0, 0)
        assert batch.submit() == 0
        assert await batch.harvest(4) == []
        assert ns.controller.statistics().commands == before
        batch.read(reg[:BLOCK], offset=0, cookie="again")
        batch.submit()
        (item,) = await batch.harvest()
        assert (item.cookie, item.result) == ("again", BLOCK)


async def test_cancel_of_a_batch_that_has_ended(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg, ns.batch(4) as batch:
        for i, (part, offset) in enumerate(slices(reg, 4)):
            batch.read(part, offset=offset, cookie=i)
        batch.submit()
        await until(lambda: reg.inflight == 0)
        batch.cancel()
        items = await batch.harvest(4)
        assert {item.cookie: item.result for item in items} == dict.fromkeys(
            range(4), BLOCK
        )


async def test_closing_a_batch_waits_for_the_device(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        with inject(ns, Fault.delay(0.1, "read")) as slow:
            async with ns.batch(4) as batch:
                for part, offset in slices(reg, 4):
                    batch.read(part, offset=offset)
                batch.submit()
                await until(lambda: slow.hits == 4)
            assert reg.inflight == 0
        assert ns.controller.statistics().cancels == 0
        assert ns.controller.statistics().quarantined == 0
