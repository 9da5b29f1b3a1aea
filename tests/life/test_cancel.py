"""Cancelled: what the device has ends first, and nothing else is touched."""

from __future__ import annotations

import errno
import time

import anyio
import pytest
from life.conftest import Case, Live
from life.live import BLOCK, Clock, cancelled_when, pattern, until

from aiougds import RangeBusyError, RegistrationBusyError
from aiougds.testing import Fault, counters, inject

pytestmark = pytest.mark.anyio


async def test_cancelled_read_ends_with_its_completion(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.write(data, offset=0)
        with inject(ns, Fault.delay(0.1, "read", count=1)) as slow:
            clock = Clock()
            await cancelled_when(lambda: slow.hits == 1, lambda: ns.read(reg, offset=0))
            assert clock.within(0.1, 0.9)  # the completion, not the grace
        # It ended: the device moved its bytes, and will not touch them again.
        assert reg.view[:] == data
        assert reg.inflight == 0
        assert ns.controller.statistics().quarantined == 0
        assert ns.controller.state == "live"


async def test_cancelled_read_that_the_device_keeps(live: Live) -> None:
    async with live(cancel_grace_s=0.1) as ns, ns.allocate(2 * BLOCK) as reg:
        with (
            inject(ns, Fault("abort_refused")),
            inject(ns, Fault.hold("read", count=1)) as held,
        ):
            clock = Clock()
            assert await cancelled_when(
                lambda: held.hits == 1, lambda: ns.read(reg[:BLOCK], offset=0)
            )
            assert clock.within(0.1, 0.6)
            (stuck,) = ns.controller.quarantine
            assert (stuck.nbytes, stuck.buf_offset) == (BLOCK, 0)
            assert ns.controller.statistics().quarantined == 1
            assert ns.controller.statistics().cancels == 1
            with pytest.raises(RangeBusyError) as refusal:
                await ns.read(reg, offset=0)
            assert refusal.value.errno == errno.EBUSY
            with pytest.raises(RegistrationBusyError):
                await reg.aclose(timeout_s=0)
            # Nothing else is touched by it.
            assert ns.controller.state == "live"
            assert await ns.read(reg[BLOCK:], offset=0) == BLOCK
            held.clear()
            await until(lambda: not ns.controller.quarantine)
        assert await ns.read(reg, offset=0) == 2 * BLOCK


async def test_cancelled_read_is_aborted_after_its_grace(live: Live) -> None:
    async with live(cancel_grace_s=0.05) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read", count=1)) as held:
            assert await cancelled_when(
                lambda: held.hits == 1, lambda: ns.read(reg, offset=0)
            )
            await until(lambda: not ns.controller.quarantine)
            assert counters(ns).aborts >= 1
            assert await ns.read(reg, offset=0) == BLOCK


async def test_no_grace_at_all(live: Live) -> None:
    async with live(cancel_grace_s=0) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read", count=1)) as held:
            clock = Clock()
            assert await cancelled_when(
                lambda: held.hits == 1, lambda: ns.read(reg, offset=0)
            )
            assert clock.within(0, 0.3)
            await until(lambda: not ns.controller.quarantine)


async def test_the_rest_of_the_queue_pair_is_untouched(live: Live) -> None:
    data = pattern(32 * BLOCK)
    async with live(cancel_grace_s=0.02) as ns, ns.allocate(32 * BLOCK) as reg:
        await ns.write(data, offset=0)
        results: dict[int, int] = {}

        async def read(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            results[i] = await ns.read(part, offset=i * BLOCK)

        with inject(ns, Fault.hold("read").on(slba=7, nlb=1)) as held:
            async with anyio.create_task_group() as group:
                for i in range(32):
                    if i != 7:
                        group.start_soon(read, i)
                assert await cancelled_when(lambda: held.hits == 1, lambda: read(7))
        assert results == {i: BLOCK for i in range(32) if i != 7}
        for i in results:
            part = slice(i * BLOCK, (i + 1) * BLOCK)
            assert reg.view[part] == data[part]
        await until(lambda: not ns.controller.quarantine)


async def test_cancelled_in_the_middle_of_a_split(live: Live) -> None:
    """What was not sent is not sent any more."""
    size = 64 * BLOCK
    async with (
        live("mdts=1", depth=4, batch_depth=4, queues=2) as ns,
        ns.allocate(size) as reg,
    ):
        await ns.write(reg, offset=0)
        before = ns.controller.statistics().commands
        with inject(ns, Fault.delay(0.1, "read").on(skip=3)) as slow:
            await cancelled_when(lambda: slow.hits > 0, lambda: ns.read(reg, offset=0))
            # At most the depth were at the device; each of those came back.
            assert 1 <= slow.hits <= 4
        assert 4 <= ns.controller.statistics().commands - before <= 3 + 4
        assert ns.controller.statistics().cancels == 0
        assert reg.inflight == 0


@pytest.mark.parametrize(
    "name", ["write", "flush", "write_zeroes", "compare", "verify", "deallocate"]
)
@pytest.mark.few
async def test_every_command_can_be_cancelled(live: Live, name: str) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        call = {
            "write": lambda: ns.write(reg, offset=0),
            "flush": ns.flush,
            "write_zeroes": lambda: ns.write_zeroes(offset=0, nbytes=BLOCK),
            "compare": lambda: ns.compare(reg, offset=0),
            "verify": lambda: ns.verify(offset=0, nbytes=BLOCK),
            "deallocate": lambda: ns.deallocate(offset=0, nbytes=BLOCK),
        }[name]
        with inject(ns, Fault.delay(0.05, name, count=1)) as slow:
            clock = Clock()
            await cancelled_when(lambda: slow.hits == 1, call)
            assert clock.elapsed >= 0.05
            stats = ns.controller.statistics()
            assert (stats.inflight, stats.cancels) == (0, 0)
        await call()


async def test_cancelled_jit_read_lets_go_of_its_memory_late(live: Live) -> None:
    async with live(cancel_grace_s=0.02) as ns:
        memory = bytearray(BLOCK)
        with (
            inject(ns, Fault("abort_refused")),
            inject(ns, Fault.hold("read", count=1)) as held,
        ):
            assert await cancelled_when(
                lambda: held.hits == 1, lambda: ns.read(memory, offset=0)
            )
            assert ns.controller.statistics().mappings >= 1
            held.clear()
            await until(lambda: not ns.controller.quarantine)
        await ns.read(memory, offset=0)
        async with ns.allocate(BLOCK):
            pass
        await until(lambda: ns.controller.statistics().mappings == 0)


async def test_read_many_cancelled_waits_for_all(live: Live) -> None:
    data = pattern(16 * BLOCK)
    async with live() as ns, ns.allocate(16 * BLOCK) as reg:
        await ns.write(data, offset=0)
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(16)]
        with inject(ns, Fault.delay(0.1, "read")) as slow:
            clock = Clock()
            assert await cancelled_when(
                lambda: slow.hits == 16, lambda: ns.read_many(pairs)
            )
            assert clock.within(0.1, 0.9)
        assert reg.inflight == 0
        assert reg.view[:] == data
        assert await ns.read_many(pairs) == [BLOCK] * 16


async def test_harvest_cancelled_loses_nothing(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg, ns.batch(8) as batch:
        for i in range(8):
            batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=0, cookie=i)
        with inject(ns, Fault.hold("read")) as held:
            batch.submit()
            await until(lambda: held.hits == 8)
            for _ in range(3):
                with anyio.move_on_after(0.01) as scope:
                    await batch.harvest(8)
                assert scope.cancelled_caught
            assert batch.pending == 8
        items = await batch.harvest(8)
        assert sorted(str(item.cookie) for item in items) == list("01234567")
        assert all(item.result == BLOCK for item in items)


async def test_as_completed_left_early_drains(live: Live) -> None:
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
        with inject(ns, Fault.delay(0.02, "read").on(skip=4)):
            async with ns.as_completed(pairs, capacity=16) as done:
                async for _index, result in done:
                    assert result == BLOCK
                    break
            assert reg.inflight == 0
        async with ns.as_completed(pairs) as done:
            assert sorted([index async for index, _ in done]) == list(range(64))


async def test_cancelled_admin_command(live: Live) -> None:
    async with live() as ns:
        with inject(ns, Fault.delay(0.05, 0x06, count=1).on(queue=0)) as slow:
            clock = Clock()
            await cancelled_when(lambda: slow.hits == 1, ns.controller.identify)
            assert clock.elapsed >= 0.05
        assert len(await ns.controller.identify()) == 4096


async def test_a_shield_holds(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        results: list[int] = []
        with (
            inject(ns, Fault.delay(0.05, "read", count=1)),
            anyio.move_on_after(0.01),
            anyio.CancelScope(shield=True),
        ):
            results.append(await ns.read(reg, offset=0))
        assert results == [BLOCK]


async def test_failure_in_a_task_group_cancels_its_reads(live: Live) -> None:
    async with live(cancel_grace_s=0.05) as ns, ns.allocate(8 * BLOCK) as reg:
        with inject(ns, Fault.hold("read")) as held:

            async def fail() -> None:
                await until(lambda: held.hits == 8)
                raise LookupError("one of the tasks")

            async def run() -> None:
                async with anyio.create_task_group() as group:
                    for i in range(8):
                        part = reg[i * BLOCK : (i + 1) * BLOCK]
                        group.start_soon(lambda p=part: ns.read(p, offset=0))
                    group.start_soon(fail)

            with pytest.raises(ExceptionGroup) as failed:
                await run()
            assert [type(e) for e in failed.value.exceptions] == [LookupError]
            assert ns.controller.state == "live"
        await until(lambda: not ns.controller.quarantine)
        assert await ns.read(reg, offset=0) == 8 * BLOCK


@pytest.mark.few
async def test_waiting_out_the_grace_burns_no_cpu(live: Live) -> None:
    """Anyio delivers a cancellation again and again; the wait must not spin on it."""
    async with live(cancel_grace_s=0.5) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read", count=1)) as held:
            clock = Clock()
            before = time.thread_time()
            assert await cancelled_when(
                lambda: held.hits == 1, lambda: ns.read(reg, offset=0)
            )
            assert clock.elapsed >= 0.5
            assert time.thread_time() - before < 0.1
        await until(lambda: not ns.controller.quarantine)


async def test_cancelled_before_it_began(live: Live, case: Case) -> None:
    """Trio: nothing is sent. Asyncio tells at the first wait, which may be none."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        for call in (
            ns.flush,
            lambda: ns.read(reg, offset=0),
            lambda: ns.read(bytearray(BLOCK), offset=0),
            lambda: ns.read_many([(reg[:], 0)]),
        ):
            before = ns.controller.statistics().commands
            with anyio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert ns.controller.statistics().inflight == 0
            if case.loop == "trio":
                assert scope.cancelled_caught
                assert ns.controller.statistics().commands == before
            await call()
