"""Waiting until the device has let go of what was given up."""

from __future__ import annotations

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, PATIENT_S, address, cancelled_when, until

from aiougds import (
    ClosedError,
    ControllerWedgedError,
    MemoryTypeError,
    Namespace,
    OperationTimeoutError,
    OptionError,
    RangeBusyError,
    Registration,
    RegistrationSlice,
    blocking,
)
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio


async def give_up(ns: Namespace, part: Registration | RegistrationSlice) -> None:
    with pytest.raises(OperationTimeoutError):
        await ns.read(part, offset=0, timeout_s=0.2)


async def test_a_range_that_was_given_up(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        ctrl = ns.controller
        held = inject(ns, Fault.hold("read", count=1))
        await give_up(ns, reg[BLOCK : 2 * BLOCK])
        for free in (reg[:BLOCK], reg[2 * BLOCK :], reg.view[:BLOCK]):
            await ctrl.settled(free)
        for busy in (None, reg, reg[BLOCK + 512 : BLOCK + 1024]):
            with pytest.raises(OperationTimeoutError, match="did not let go") as late:
                await ctrl.settled(busy, timeout_s=0)
            assert "has not come back" in str(late.value)
        with pytest.raises(RangeBusyError, match="wait with controller"):
            await ns.read(reg[BLOCK : 2 * BLOCK], offset=0)

        waiting = 0

        async def wait(part: Registration | RegistrationSlice | None) -> None:
            nonlocal waiting
            waiting += 1
            await ctrl.settled(part, timeout_s=30)
            assert not ctrl.quarantine
            waiting -= 1

        async with anyio.create_task_group() as group:
            for part in (None, reg, reg[BLOCK : 2 * BLOCK]):
                group.start_soon(wait, part)
            await until(lambda: waiting == 3)
            assert ctrl.quarantine
            held.clear()
        assert not waiting
        await ns.read(reg[BLOCK : 2 * BLOCK], offset=0)


@pytest.mark.few
async def test_what_runs_is_not_waited_for(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        held = inject(ns, Fault.hold("read", count=1))
        async with anyio.create_task_group() as group:

            async def read() -> None:
                await ns.read(reg, offset=0)

            group.start_soon(read)
            await until(lambda: reg.inflight == 1)
            await ns.controller.settled(reg)
            await ns.controller.settled()
            held.clear()


@pytest.mark.few
async def test_cancelled_it_has_changed_nothing(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        held = inject(ns, Fault.hold("read", count=1))
        await give_up(ns, reg)
        assert await cancelled_when(lambda: True, lambda: ns.controller.settled(reg))
        assert len(ns.controller.quarantine) == 1
        held.clear()
        await ns.controller.settled(reg, timeout_s=30)


@pytest.mark.few
async def test_where_no_answer_will_come(live: Live) -> None:
    """A reset ends it: for those who wait already, too."""
    async with live(hang_timeout_s=0.1) as ns, ns.allocate(BLOCK) as reg:
        ctrl = ns.controller
        lost = inject(ns, Fault.drop("read"))
        await give_up(ns, reg)
        await until(lambda: ctrl.state == "wedged")
        with pytest.raises(ControllerWedgedError):
            await ctrl.settled(reg)
        lost.clear()
        await ctrl.reset()
        await ctrl.settled(reg, timeout_s=0)
        await ns.read(reg, offset=0)


@pytest.mark.few
async def test_a_reset_by_somebody_else(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        lost = inject(ns, Fault.drop("read"))
        await give_up(ns, reg)
        lost.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(ns.controller.settled, reg)
            await anyio.sleep(0)
            await ns.controller.reset()
        assert not ns.controller.quarantine


@pytest.mark.few
async def test_what_cannot_be_waited_for(live: Live) -> None:
    async with live() as ns:
        with pytest.raises(MemoryTypeError, match="bytearray that is not registered"):
            await ns.controller.settled(bytearray(BLOCK))
        with pytest.raises(OptionError, match="timeout_s=-1"):
            await ns.controller.settled(timeout_s=-1)
        async with ns.allocate(BLOCK) as reg:
            pass
        with pytest.raises(ClosedError):
            await ns.controller.settled(reg)
        ctrl = ns.controller
        await ns.aclose()
    with pytest.raises(ClosedError):
        await ctrl.settled()


@pytest.mark.few
def test_without_a_loop() -> None:
    with blocking.open(address()) as ns, ns.allocate(BLOCK) as reg:
        held = inject(ns, Fault.hold("read", count=1))
        for timeout_s in PATIENT_S:
            with pytest.raises(OperationTimeoutError):
                ns.read(reg, offset=0, timeout_s=timeout_s)
            if ns.controller.quarantine:  # it was sent in time
                break
        with pytest.raises(OperationTimeoutError, match="did not let go"):
            ns.controller.settled(reg, timeout_s=0.02)
        held.clear()
        ns.controller.settled(reg, timeout_s=30)
        ns.read(reg, offset=0)


async def test_a_device_that_is_well_again_is_waited_for(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stuck when it was looked at, and is reset by the time of the answer."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        said = [False, False, True]

        async def once(*_: object) -> bool:
            return said.pop(0)

        monkeypatch.setattr("aiougds._device.Device.until", once)
        await ns.controller.settled(reg)
        monkeypatch.undo()
        assert said == []
