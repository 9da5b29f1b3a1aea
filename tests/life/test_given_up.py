"""What a client that goes away leaves behind: no Abort storm, every outcome told."""

from __future__ import annotations

import asyncio
from collections import Counter

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, Clock, cancelled_when, live, pattern, until

from aiougds import (
    Batch,
    BatchItem,
    OperationAbortedError,
    RangeBusyError,
    Registration,
)
from aiougds.testing import Fault, counters, inject

ABORT = 0x08
COUNT = 1000


def how(item: BatchItem) -> str:
    """Return the outcome of an item, as its words tell it."""
    if item.error is None:
        return "done"
    assert isinstance(item.error, OperationAbortedError)
    words = str(item.error)
    (found,) = (
        word
        for sign, word in (
            ("never sent", "never sent"),
            ("gave it up", "aborted"),
            ("not known", "unknown"),
        )
        if sign in words
    )
    return found


def prepare(batch: Batch, reg: Registration, count: int = COUNT) -> None:
    for i in range(count):
        batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK, cookie=i)


async def serve_a_client(
    batch: Batch, items: list[BatchItem], gone: anyio.Event
) -> None:
    """Read for a client, until it is gone; then see how each item ended."""
    try:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await gone.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            batch.submit()
            items += await batch.harvest(COUNT)
    finally:
        with anyio.CancelScope(shield=True):
            batch.cancel()
            while batch.pending:
                items += await batch.harvest()


@pytest.mark.anyio
@pytest.mark.few
async def test_a_client_disconnects(live: Live) -> None:
    """The device answers in time: not one Abort, whatever was at it is done."""
    async with (
        live(cancel_grace_s=5, batch_depth=256) as ns,
        ns.allocate(COUNT * BLOCK) as reg,
        ns.batch(COUNT) as batch,
    ):
        prepare(batch, reg)
        items: list[BatchItem] = []
        gone = anyio.Event()
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read").on(skip=10)) as held:
                group.start_soon(serve_a_client, batch, items, gone)
                await until(lambda: held.hits >= 100)
                gone.set()
                await anyio.sleep(0.1)
                assert counters(ns).aborts == 0
        seen = Counter(map(how, items))
        assert sorted(int(str(item.cookie)) for item in items) == list(range(COUNT))
        assert set(seen) == {"done", "never sent"}
        assert seen["done"] >= 110
        assert counters(ns).aborts == ns.controller.statistics().aborts == 0
        assert ns.controller.statistics().cancels == 0
        assert reg.inflight == 0


@pytest.mark.anyio
@pytest.mark.few
@pytest.mark.parametrize("acl", [0, 3])
async def test_a_device_that_keeps_it_all(live: Live, acl: int) -> None:
    """Aborts after the grace, at most ACL + 1 outstanding; outcomes stay readable."""
    async with (
        live(f"acl={acl}", cancel_grace_s=0.2, batch_depth=16) as ns,
        ns.allocate(COUNT * BLOCK) as reg,
        ns.batch(COUNT) as batch,
    ):
        assert ns.controller.info.abort_limit == acl + 1
        prepare(batch, reg)
        items: list[BatchItem] = []
        gone = anyio.Event()
        slow = inject(ns, Fault.hold(ABORT).on(queue=0))
        held = inject(ns, Fault.hold("read").on(skip=10))
        async with anyio.create_task_group() as group:
            group.start_soon(serve_a_client, batch, items, gone)
            await until(lambda: held.hits >= 12)
            gone.set()
            clock = Clock()
            while clock.elapsed < 0.1:
                assert ns.controller.statistics().aborts == 0
                await anyio.sleep(0.01)
        assert clock.elapsed >= 0.2
        seen = Counter(map(how, items))
        assert sorted(int(str(item.cookie)) for item in items) == list(range(COUNT))
        assert set(seen) == {"done", "never sent", "unknown"}
        assert seen["unknown"] == held.hits == len(ns.controller.quarantine)
        # None of the Aborts is answered: not one more than the controller takes.
        await until(lambda: slow.hits == acl + 1)
        await anyio.sleep(0.2)
        assert slow.hits == acl + 1 == ns.controller.statistics().aborts
        with pytest.raises(RangeBusyError):
            await ns.write(reg, offset=0)
        slow.clear()
        clock = Clock()
        await until(lambda: not ns.controller.quarantine, 30)
        # One round in 40 ms: this many cannot have been faster than that.
        rounds = seen["unknown"] / (acl + 1) - 2
        assert clock.elapsed >= rounds * 0.04
        assert ns.controller.statistics().aborts == seen["unknown"]
        held.clear()
        assert reg.inflight == 0


@pytest.mark.anyio
async def test_a_failing_group_cancels_100_reads(live: Live) -> None:
    data = pattern(100 * BLOCK)
    async with live(cancel_grace_s=5, depth=128) as ns, ns.allocate(100 * BLOCK) as reg:
        await ns.write(data, offset=0)
        held = inject(ns, Fault.hold("read"))
        results: list[int] = []

        async def read(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            results.append(await ns.read(part, offset=i * BLOCK))

        async def fail() -> None:
            await until(lambda: held.hits == 100)
            raise LookupError("one of the tasks")

        async def release() -> None:
            await until(lambda: held.hits == 100)
            await anyio.sleep(0.05)
            held.clear()

        async with anyio.create_task_group() as outer:
            outer.start_soon(release)
            with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012
                async with anyio.create_task_group() as group:
                    for i in range(100):
                        group.start_soon(read, i)
                    group.start_soon(fail)
            # No read outlives the group, and the device had its time.
            assert reg.inflight == 0
            assert ns.controller.quarantine == ()
        assert [type(error) for error in failed.value.exceptions] == [LookupError]
        assert counters(ns).aborts == 0
        assert ns.controller.statistics().inflight == 0
        reg.view[:] = bytes(100 * BLOCK)
        assert await ns.read(reg, offset=0) == 100 * BLOCK
        assert reg.view[:] == data


@pytest.mark.anyio
async def test_a_second_wait_in_a_shield(live: Live) -> None:
    """Cancelled, and what cleans up reads into the same memory at once."""
    data = pattern(BLOCK)
    async with live(cancel_grace_s=5) as ns, ns.allocate(BLOCK) as reg:
        await ns.write(data, offset=0)
        second: list[int] = []

        async def work() -> None:
            try:
                await ns.read(reg, offset=0)
            finally:
                with anyio.CancelScope(shield=True):
                    reg.view[:] = bytes(BLOCK)
                    second.append(await ns.read(reg, offset=0))

        with inject(ns, Fault.delay(0.05, "read")) as slow:
            await cancelled_when(lambda: slow.hits == 1, work)
        assert second == [BLOCK]
        assert reg.view[:] == data


@pytest.mark.anyio
@pytest.mark.few
async def test_leaving_early_takes_one_grace(live: Live) -> None:
    """Cancelled again and again while as_completed drains: it is given no more time."""
    async with live(cancel_grace_s=0.2) as ns, ns.allocate(8 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(8)]
        refuse = inject(ns, Fault("abort_refused"))
        held = inject(ns, Fault.hold("read").on(skip=1))

        async def work() -> None:
            async with ns.as_completed(pairs) as done:
                async for _ in done:
                    break
                await until(lambda: held.hits == 7)
                started.append(Clock())

        started: list[Clock] = []
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await until(lambda: bool(started))
            for _ in range(15):
                await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        assert started[0].within(0.2, 0.35)
        assert len(ns.controller.quarantine) == 7
        held.clear()
        refuse.clear()
        await until(lambda: not ns.controller.quarantine)


@pytest.mark.asyncio
async def test_cancels_of_a_task_do_not_add_up() -> None:
    async with live(cancel_grace_s=0.2) as ns, ns.allocate(4 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(4)]
        refuse = inject(ns, Fault("abort_refused"))
        held = inject(ns, Fault.hold("read"))
        for call in (
            lambda: ns.read(reg, offset=0),
            lambda: ns.read_many(pairs),
        ):
            before = held.hits
            task = asyncio.ensure_future(call())
            await until(lambda: held.hits > before)  # noqa: B023
            clock = Clock()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0.01)
            assert task.cancelled()
            assert clock.within(0.2, 0.35)
            held.clear()
            await until(lambda: not ns.controller.quarantine)
            held = inject(ns, Fault.hold("read"))
        held.clear()
        refuse.clear()
