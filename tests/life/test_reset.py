"""``controller.reset()``: what was in flight ends, and everything works again."""

from __future__ import annotations

import errno

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, pattern, until

from aiougds import (
    BatchError,
    ControllerWedgedError,
    OperationAbortedError,
    RegistrationBusyError,
)
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio


async def test_reset_of_an_idle_controller(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.write(data, offset=0)
        for number in range(1, 4):
            await ns.controller.reset()
            assert ns.controller.statistics().resets == number
            assert ns.controller.state == "live"
            reg.view[:] = bytes(BLOCK)
            assert await ns.read(reg, offset=0) == BLOCK
            assert reg.view[:] == data
        assert ns.controller.namespaces() == [1]


async def test_reset_with_operations_in_flight(live: Live) -> None:
    data = pattern(8 * BLOCK)
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        await ns.write(data, offset=0)
        ended: list[OperationAbortedError] = []

        async def read(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            with pytest.raises(OperationAbortedError) as over:
                await ns.read(part, offset=i * BLOCK)
            ended.append(over.value)

        with inject(ns, Fault.hold("read")) as held:
            async with anyio.create_task_group() as group:
                for i in range(8):
                    group.start_soon(read, i)
                await until(lambda: held.hits == 8)
                await ns.controller.reset()
        assert len(ended) == 8
        assert {error.errno for error in ended} == {errno.ECANCELED}
        assert all("not known" in str(error) for error in ended)
        assert reg.inflight == 0
        assert ns.controller.statistics().quarantined == 0
        assert await ns.read(reg, offset=0) == 8 * BLOCK
        assert reg.view[:] == data


async def test_reset_with_a_batch_in_flight(live: Live) -> None:
    async with live() as ns, ns.allocate(16 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(16)]
        failures: list[BatchError] = []

        async def read_all() -> None:
            with pytest.raises(BatchError) as failed:
                await ns.read_many(pairs)
            failures.append(failed.value)

        with inject(ns, Fault.hold("read").on(skip=6)) as held:
            async with anyio.create_task_group() as group:
                group.start_soon(read_all)
                await until(lambda: held.hits == 10)
                await ns.controller.reset()
        (failed,) = failures
        ended = [r for r in failed.results if isinstance(r, OperationAbortedError)]
        # Six had been answered; whether they were collected before is a race.
        assert 10 <= len(ended) <= 16
        assert len(failed.results) == 16
        assert await ns.read_many(pairs) == [BLOCK] * 16


async def test_reset_of_a_split_request_ends_it_once(live: Live) -> None:
    size = 64 * BLOCK
    async with live("mdts=1", depth=4) as ns, ns.allocate(size) as reg:
        ended: list[str] = []

        async def read() -> None:
            with pytest.raises(OperationAbortedError):
                await ns.read(reg, offset=0)
            ended.append("read")

        with inject(ns, Fault.hold("read").on(skip=2)) as held:
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await until(lambda: held.hits >= 1)
                await ns.controller.reset()
        assert ended == ["read"]
        assert await ns.read(reg, offset=0) == size


async def test_reset_ends_a_quarantine(live: Live) -> None:
    async with live(cancel_grace_s=0.02) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault("abort_refused")), inject(ns, Fault.hold("read")):
            with anyio.move_on_after(0.2):
                await ns.read(reg, offset=0)
            await until(lambda: len(ns.controller.quarantine) == 1)
            with pytest.raises(RegistrationBusyError):
                await reg.aclose(timeout_s=0)
            await ns.controller.reset()
            assert ns.controller.quarantine == ()
            assert reg.inflight == 0
        assert await ns.read(reg, offset=0) == BLOCK


async def test_reset_repairs_a_wedged_controller(live: Live) -> None:
    data = pattern(BLOCK)
    async with live(hang_timeout_s=0.1) as ns, ns.allocate(BLOCK) as reg:
        await ns.write(data, offset=0)
        with (
            inject(ns, Fault("cfs", "flush", count=1)),
            pytest.raises(ControllerWedgedError, match="fatal"),
        ):
            await ns.flush()
        assert ns.controller.state == "wedged"
        assert "fatal" in ns.controller.state_reason
        with pytest.raises(ControllerWedgedError, match="reset"):
            await ns.read(reg, offset=0)
        await ns.controller.reset()
        assert ns.controller.state == "live"
        assert ns.controller.state_reason == ""
        assert await ns.read(reg, offset=0) == BLOCK
        assert reg.view[:] == data


async def test_shadow_doorbells_are_set_up_again(live: Live) -> None:
    async with live("shadow=1") as ns, ns.allocate(4 * BLOCK) as reg:
        assert ns.controller.capabilities.shadow_doorbells
        assert await ns.read(reg, offset=0) == 4 * BLOCK
        await ns.controller.reset()
        assert ns.controller.capabilities.shadow_doorbells
        for i in range(200):
            assert await ns.read(reg[:BLOCK], offset=i * BLOCK) == BLOCK


async def test_queues_are_as_deep_after_a_reset(live: Live) -> None:
    async with live(depth=16) as ns, ns.allocate(64 * BLOCK) as reg:
        before = ns.controller.capabilities
        await ns.read(reg, offset=0)
        await ns.controller.reset()
        after = ns.controller.capabilities
        assert (after.queue_pairs, after.depth) == (before.queue_pairs, before.depth)
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
        for _ in range(5):
            assert await ns.read_many(pairs) == [BLOCK] * 64


@pytest.mark.few
async def test_reset_under_load(live: Live) -> None:
    """Every read ends once: with its bytes, or with what the reset did to it."""
    data = pattern(16 * BLOCK)
    async with live() as ns, ns.allocate(16 * BLOCK) as reg:
        await ns.write(data, offset=0)
        ends = {"ok": 0, "aborted": 0, "refused": 0}
        stop = False

        async def load(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            while not stop:
                try:
                    assert await ns.read(part, offset=i * BLOCK) == BLOCK
                    assert part.view == data[i * BLOCK : (i + 1) * BLOCK]
                    ends["ok"] += 1
                except OperationAbortedError:
                    ends["aborted"] += 1
                except ControllerWedgedError:
                    ends["refused"] += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for i in range(16):
                group.start_soon(load, i)
            for _ in range(5):
                ok = ends["ok"]
                await until(lambda ok=ok: ends["ok"] > ok + 16)  # type: ignore[misc]
                await ns.controller.reset()
            ok = ends["ok"]
            await until(lambda: ends["ok"] > ok + 16)
            stop = True
        assert ns.controller.statistics().resets == 5
        assert await ns.read(reg, offset=0) == 16 * BLOCK
        assert reg.view[:] == data
