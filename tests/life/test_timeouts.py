"""``timeout_s``: the operation fails in time, and the controller stays healthy."""

from __future__ import annotations

import errno

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, PATIENT_S, Clock, given_up, pattern, until

from aiougds import (
    BatchError,
    NVMeError,
    OperationTimeoutError,
    OptionError,
    RangeBusyError,
    RegistrationBusyError,
)
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio


async def test_fires_in_time_on_an_idle_controller(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        took: list[float] = []
        ours: list[float] = []
        for _ in range(3):
            with inject(ns, Fault.hold("read", count=1)):
                clock = Clock()
                with pytest.raises(TimeoutError) as over:
                    await ns.read(reg, offset=0, timeout_s=0.05)
                took.append(clock.elapsed)
                ours.append(clock.ours)
            await until(lambda: not ns.controller.quarantine)
        assert min(took) >= 0.05
        assert min(ours) < 0.1  # the best: others use this machine too
        assert max(ours) < 0.5
        assert isinstance(over.value, OperationTimeoutError)
        assert over.value.errno == errno.ETIMEDOUT
        assert "timeout_s=0.05" in str(over.value)
        assert "read of 4096 bytes at offset 0" in str(over.value)
        assert ns.controller.statistics().timeouts == 3
        assert ns.controller.statistics().resets == 0
        assert ns.controller.state == "live"


async def test_fires_in_time_under_load(live: Live) -> None:
    async with live() as ns, ns.allocate(17 * BLOCK) as reg:
        stop = False

        async def load(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            while not stop:
                assert await ns.read(part, offset=i * BLOCK) == BLOCK
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for i in range(16):
                group.start_soon(load, i)
            took: list[float] = []
            ours: list[float] = []
            for _ in range(3):
                with inject(ns, Fault.hold("read").on(slba=100, nlb=1)):
                    clock = Clock()
                    with pytest.raises(OperationTimeoutError):
                        await ns.read(
                            reg[16 * BLOCK :], offset=100 * BLOCK, timeout_s=0.05
                        )
                    took.append(clock.elapsed)
                    ours.append(clock.ours)
                await until(lambda: not ns.controller.quarantine)
            stop = True
        assert min(took) >= 0.05
        assert min(ours) < 0.2  # the best: others use this machine too
        assert max(ours) < 1
        await until(lambda: not ns.controller.quarantine)


async def test_the_range_is_busy_until_the_completion(live: Live) -> None:
    data = pattern(4 * BLOCK)
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        await ns.write(data, offset=0)
        with inject(ns, Fault.hold("read", count=1)) as held:
            part = reg[BLOCK : 2 * BLOCK]
            await given_up(ns, lambda t: ns.read(part, offset=0, timeout_s=t))
            await until(lambda: held.hits == 1)
            (stuck,) = ns.controller.quarantine
            assert (stuck.nbytes, stuck.buf_offset) == (BLOCK, BLOCK)
            assert stuck.age_s >= 0
            assert stuck.queue_id > 0
            for busy in (
                reg[:],
                reg[BLOCK : 2 * BLOCK],
                reg[BLOCK + 512 : BLOCK + 4608],
            ):
                with pytest.raises(RangeBusyError, match="quarantine") as refusal:
                    await ns.write(busy, offset=8 * BLOCK)
                assert refusal.value.errno == errno.EBUSY
            with pytest.raises(RangeBusyError):
                await ns.read_many([(reg[:BLOCK], 0), (reg[BLOCK : 2 * BLOCK], 0)])
            with pytest.raises(RegistrationBusyError):
                await reg.aclose(timeout_s=0)
            # Right beside it, before and after, all is well.
            assert await ns.read(reg[:BLOCK], offset=0) == BLOCK
            assert await ns.read(reg[2 * BLOCK :], offset=2 * BLOCK) == 2 * BLOCK
            assert ns.controller.state == "live"
            held.clear()
            await until(lambda: not ns.controller.quarantine)
        assert await ns.read(reg, offset=0) == 4 * BLOCK
        assert reg.view[:] == data


async def test_late_bytes_land_in_memory_that_is_still_there(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as ns:
        await ns.write(data, offset=0)
        memory = bytearray(BLOCK)
        with inject(ns, Fault.hold("read", count=1)) as held:
            await given_up(ns, lambda t: ns.read(memory, offset=0, timeout_s=t))
            await until(lambda: held.hits == 1)
            assert memory == bytes(BLOCK)
            held.clear()
            await until(lambda: not ns.controller.quarantine)
        assert memory == data


async def test_batches_after_a_timeout(live: Live) -> None:
    """A batch may get the slot of the operation that was given up."""
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        with inject(ns, Fault.hold("read", count=4)):
            for i in range(4):
                part = reg[i * BLOCK : (i + 1) * BLOCK]
                with pytest.raises(OperationTimeoutError):
                    await ns.read(part, offset=0, timeout_s=0.2)
        await until(lambda: not ns.controller.quarantine)
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(4)]
        with inject(ns, Fault.delay(0.01, "read")):  # so that all of them wait
            assert await ns.read_many(pairs) == [BLOCK] * 4
            async with ns.batch(7) as batch:
                batch.read(reg[:BLOCK], offset=0)
                batch.submit()
                assert len(await batch.harvest()) == 1
            async with ns.as_completed(pairs, capacity=3) as done:
                assert len([pair async for pair in done]) == 4


async def test_in_time_is_no_timeout(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        for _ in range(50):
            assert await ns.read(reg, offset=0, timeout_s=30) == BLOCK
        with inject(ns, Fault.delay(0.02, "read", count=1)):
            assert await ns.read(reg, offset=0, timeout_s=30) == BLOCK
        assert ns.controller.statistics().timeouts == 0


async def test_many_deadlines_at_once(live: Live) -> None:
    async with live() as ns, ns.allocate(32 * BLOCK) as reg:
        took: dict[int, float] = {}
        ours: dict[int, float] = {}

        async def read(i: int, timeout_s: float) -> None:
            clock = Clock()
            with pytest.raises(OperationTimeoutError):  # noqa: PT012
                part = reg[i * BLOCK : (i + 1) * BLOCK]
                await ns.read(part, offset=0, timeout_s=timeout_s)
            took[i] = clock.elapsed - timeout_s
            ours[i] = clock.ours - timeout_s

        with inject(ns, Fault.hold("read")):
            async with anyio.create_task_group() as group:
                for i in range(32):
                    group.start_soon(read, i, 0.02 + i * 0.004)
        assert len(took) == 32
        assert min(took.values()) >= 0
        assert max(ours.values()) < 0.15, took
        assert ns.controller.statistics().timeouts == 32
        await until(lambda: not ns.controller.quarantine)


@pytest.mark.few
@pytest.mark.parametrize("name", ["write", "flush", "compare", "write_zeroes"])
async def test_every_command_can_time_out(live: Live, name: str) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        call = {
            "write": lambda t: ns.write(reg, offset=0, timeout_s=t),
            "flush": lambda t: ns.flush(timeout_s=t),
            "compare": lambda t: ns.compare(reg, offset=0, timeout_s=t),
            "write_zeroes": lambda t: ns.write_zeroes(
                offset=0, nbytes=BLOCK, timeout_s=t
            ),
        }[name]
        with (
            inject(ns, Fault.hold(name, count=1)),
            pytest.raises(OperationTimeoutError, match=name),
        ):
            await call(0.02)
        await until(lambda: not ns.controller.quarantine)
        await ns.read(reg, offset=0)
        await call(30)


async def test_read_many_times_out_item_by_item(live: Live) -> None:
    data = pattern(16 * BLOCK)
    async with live() as ns, ns.allocate(16 * BLOCK) as reg:
        await ns.write(data, offset=0)
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(16)]
        for timeout_s in PATIENT_S:  # until the others come back in it
            with inject(ns, Fault.hold("read").on(slba=3, nlb=2)):
                clock = Clock()
                with pytest.raises(BatchError) as failed:
                    await ns.read_many(pairs, timeout_s=timeout_s)
                assert clock.within(timeout_s, timeout_s + 0.5)
                stuck = ns.controller.statistics().quarantined
            await until(lambda: not ns.controller.quarantine)
            results = failed.value.results
            if len(failed.value.exceptions) > 2:
                continue
            for i, result in enumerate(results):
                if i in (3, 4):
                    assert isinstance(result, OperationTimeoutError)
                else:
                    assert result == BLOCK
                    part = slice(i * BLOCK, (i + 1) * BLOCK)
                    assert reg.view[part] == data[part]
            assert len(failed.value.exceptions) == 2
            assert stuck == 2
            break
        else:
            raise AssertionError("the others never came back in time")
        assert await ns.read_many(pairs, timeout_s=30) == [BLOCK] * 16


async def test_harvest_returns_at_its_time_and_loses_nothing(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg, ns.batch(4) as batch:
        with inject(ns, Fault.hold("read").on(skip=1)):
            for i in range(4):
                batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=0, cookie=i)
            batch.submit()
            assert [item.cookie for item in await batch.harvest(1)] == [0]
            clock = Clock()
            assert await batch.harvest(3, timeout_s=0.05) == []
            assert clock.within(0.05, 0.3)
            assert batch.pending == 3
        assert {item.cookie for item in await batch.harvest(3)} == {1, 2, 3}
        assert ns.controller.statistics().timeouts == 0


async def test_deadline_of_a_split_request(live: Live) -> None:
    size = 64 * BLOCK
    async with (
        live("mdts=1", depth=4, batch_depth=4, queues=2) as ns,
        ns.allocate(size) as reg,
    ):
        for timeout_s in (0.05, *PATIENT_S):
            before = ns.controller.statistics().commands
            with inject(ns, Fault.hold("read").on(skip=3)) as held:
                with pytest.raises(OperationTimeoutError):
                    await ns.read(reg, offset=0, timeout_s=timeout_s)
                hits = held.hits
                assert hits <= 4
                assert ns.controller.statistics().commands - before <= 3 + 4
                stuck = ns.controller.statistics().quarantined
            await until(lambda: not ns.controller.quarantine)
            if hits:  # it came so far in its time
                break
        assert hits
        assert stuck == 1
        assert await ns.read(reg, offset=0) == size


@pytest.mark.few
async def test_hang_clock_aborts_what_nobody_gave_up(live: Live) -> None:
    async with live(hang_timeout_s=0.1) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read", count=1)):
            clock = Clock()
            with pytest.raises(NVMeError) as gone:
                await ns.read(reg, offset=0)
            assert clock.within(0.1, 3)  # an idle controller looks once a second
            assert (gone.value.sct, gone.value.sc) == (0, 7)  # Abort Requested
            assert gone.value.errno == errno.ECANCELED
        assert ns.controller.state == "live"
        assert ns.controller.statistics().aborts == 1
        assert await ns.read(reg, offset=0) == BLOCK


@pytest.mark.few
@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
async def test_nonsense_is_refused(live: Live, timeout_s: float) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        before = ns.controller.statistics().commands
        for call in (
            lambda: ns.read(bytearray(BLOCK), offset=0, timeout_s=timeout_s),
            lambda: ns.read_many([(reg[:], 0)], timeout_s=timeout_s),
            lambda: ns.flush(timeout_s=timeout_s),
        ):
            with pytest.raises(OptionError, match="timeout_s"):
                await call()
        assert ns.controller.statistics().commands == before
