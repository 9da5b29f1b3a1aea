"""What is in use is refused to close, changes in nothing, and closes once it is not."""

from __future__ import annotations

import errno
import gc
import weakref

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, Clock, pattern, until

import aiougds
from aiougds import (
    ClosedError,
    ControllerBusyError,
    Namespace,
    OperationTimeoutError,
    RegistrationBusyError,
    RegistrationSlice,
    _device,
)
from aiougds._ffi import lib
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio
Results = list[int]


async def read_into(
    results: Results, ns: Namespace, buf: RegistrationSlice, offset: int
) -> None:
    results.append(await ns.read(buf, offset=offset))


@pytest.mark.parametrize("timeout_s", [0, 0.03])
async def test_busy_registration_is_refused_and_unchanged(
    live: Live, timeout_s: float
) -> None:
    data = pattern(2 * BLOCK)
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        reg.view[: 2 * BLOCK] = data
        await ns.write(reg[: 2 * BLOCK], offset=0)
        results: Results = []
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read", count=1)) as held:
                group.start_soon(read_into, results, ns, reg[2 * BLOCK :], 0)
                await until(lambda: held.hits == 1)
                assert reg.inflight == 1
                clock = Clock()
                with pytest.raises(RegistrationBusyError) as refusal:
                    await reg.aclose(timeout_s=timeout_s)
                assert clock.within(timeout_s, timeout_s + 0.5)
                assert refusal.value.errno == errno.EBUSY
                assert "1 operations are in flight" in str(refusal.value)
                # Nothing changed: it is mapped, open and works.
                assert not reg.closed
                assert reg.inflight == 1
                assert ns.controller.statistics().mappings == 1
                assert await ns.read(reg[:BLOCK], offset=BLOCK) == BLOCK
                assert reg.view[:BLOCK] == data[BLOCK:]
        assert results == [2 * BLOCK]
        assert reg.view[2 * BLOCK :] == data
        assert reg.inflight == 0


async def test_closing_a_registration_waits_for_the_device(live: Live) -> None:
    async with live() as ns:
        reg = ns.allocate(BLOCK)
        results: Results = []
        order: list[str] = []

        async def close() -> None:
            await reg.aclose()
            order.append("closed")

        async with anyio.create_task_group() as group:
            held = inject(ns, Fault.hold("read"))
            group.start_soon(read_into, results, ns, reg[:], 0)
            await until(lambda: held.hits == 1)
            group.start_soon(close)
            await anyio.sleep(0.01)
            assert order == []
            order.append("released")
            held.clear()
        assert order == ["released", "closed"]
        assert results == [BLOCK]
        assert reg.closed
        assert ns.controller.statistics().mappings == 0


async def test_cancelled_close_leaves_a_registration_open(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        results: Results = []
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                group.start_soon(read_into, results, ns, reg[:], 0)
                await until(lambda: held.hits == 1)
                with anyio.move_on_after(0.02) as scope:
                    await reg.aclose()
                assert scope.cancelled_caught
                assert not reg.closed
        assert await ns.read(reg, offset=0) == BLOCK


@pytest.mark.parametrize("timeout_s", [0, 0.03])
async def test_busy_controller_is_refused_and_stays_usable(
    live: Live, timeout_s: float
) -> None:
    async with live() as ns, ns.allocate(2 * BLOCK) as reg:
        results: Results = []
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read", count=1)) as held:
                group.start_soon(read_into, results, ns, reg[:BLOCK], 0)
                await until(lambda: held.hits == 1)
                clock = Clock()
                with pytest.raises(ControllerBusyError) as refusal:
                    await ns.aclose(timeout_s=timeout_s)
                assert clock.within(timeout_s, timeout_s + 0.5)
                assert refusal.value.errno == errno.EBUSY
                assert "stays usable" in str(refusal.value)
                assert ns.controller.state == "live"
                assert not ns.closed
                assert await ns.read(reg[BLOCK:], offset=0) == BLOCK
        assert results == [BLOCK]


@pytest.mark.few
async def test_cancelled_close_leaves_a_controller_open(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is left to wait for but C's own end of it."""

    class Busy:
        calls = 0

        def __getattr__(self, name: str) -> object:
            return getattr(lib, name)

        def ugds_ctrl_close(self, *_args: object) -> int:
            self.calls += 1
            return -errno.EBUSY

    async with live() as ns, ns.allocate(BLOCK) as reg:
        busy = Busy()
        with monkeypatch.context() as patch:
            patch.setattr(_device, "lib", busy)
            async with anyio.create_task_group() as group:
                group.start_soon(ns.controller.aclose)
                await until(lambda: busy.calls >= 2)
                with pytest.raises(ClosedError, match="is being closed"):
                    await ns.read(reg, offset=0)
                group.cancel_scope.cancel()
        assert not ns.controller.closed
        assert await ns.read(reg, offset=0) == BLOCK


async def test_work_is_refused_while_the_controller_drains(live: Live) -> None:
    async with live() as ns, ns.allocate(2 * BLOCK) as reg:
        results: Results = []
        busy: list[ControllerBusyError] = []

        async def close() -> None:
            try:
                await ns.aclose(timeout_s=0.1)
            except ControllerBusyError as error:
                busy.append(error)

        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read", count=1)) as held:
                group.start_soon(read_into, results, ns, reg[:BLOCK], 0)
                await until(lambda: held.hits == 1)
                async with anyio.create_task_group() as closing:
                    closing.start_soon(close)
                    await anyio.sleep(0.01)
                    with pytest.raises(ClosedError, match="being closed"):
                        await ns.read(reg[BLOCK:], offset=0)
                    with pytest.raises(ControllerBusyError):
                        await ns.aclose()
                assert len(busy) == 1
                assert await ns.read(reg[BLOCK:], offset=0) == BLOCK
        assert results == [BLOCK]


async def test_closing_a_controller_waits_for_all_of_it(live: Live) -> None:
    async with live() as ns:
        reg = ns.allocate(4 * BLOCK)
        results: Results = []
        async with anyio.create_task_group() as group:
            held = inject(ns, Fault.hold("read"))
            for i in range(4):
                part = reg[i * BLOCK : (i + 1) * BLOCK]
                group.start_soon(read_into, results, ns, part, i * BLOCK)
            await until(lambda: held.hits == 4)
            group.start_soon(ns.aclose)
            await anyio.sleep(0.01)
            assert not ns.closed
            held.clear()
        assert results == [BLOCK] * 4
        assert ns.closed
        assert ns.controller.state == "closed"
        await reg.aclose()
        with pytest.raises(ClosedError):
            await ns.read(reg, offset=0)


async def test_busy_second_namespace_of_a_controller(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        part = ns.region(BLOCK, BLOCK)
        results: Results = []
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read", count=1)) as held:
                group.start_soon(read_into, results, part, reg[:], 0)
                await until(lambda: held.hits == 1)
                with pytest.raises(ControllerBusyError) as refusal:
                    await part.aclose(timeout_s=0)
                assert refusal.value.errno == errno.EBUSY
                assert not part.closed
        assert results == [BLOCK]
        await part.aclose(timeout_s=0)
        assert part.closed
        with pytest.raises(ClosedError):
            await part.read(reg, offset=0)
        assert await ns.read(reg, offset=0) == BLOCK


async def test_leaving_with_a_quarantine_raises_and_ends_by_itself(live: Live) -> None:
    async with live(cancel_grace_s=0.02) as ns:
        refuse = inject(ns, Fault("abort_refused"))
        held = inject(ns, Fault.hold("read", count=1))
        with pytest.raises(RegistrationBusyError) as refusal:  # noqa: PT012
            async with ns.allocate(BLOCK) as reg:
                with anyio.move_on_after(0.2):
                    await ns.read(reg, offset=0)
                raise LookupError("the body's own")
        assert isinstance(refusal.value.__context__, LookupError)
        assert "reset" in str(refusal.value)
        assert [(q.nbytes, q.buf_offset) for q in ns.controller.quarantine] == [
            (BLOCK, 0)
        ]
        assert ns.controller.statistics().mappings == 1
        held.clear()
        refuse.clear()
        await until(lambda: not ns.controller.quarantine)
        async with ns.allocate(BLOCK) as other:  # the next operation sweeps
            await ns.read(other, offset=0)
        await until(lambda: ns.controller.statistics().mappings == 0)


async def test_a_quarantine_keeps_the_controller_until_a_reset(live: Live) -> None:
    async with live(cancel_grace_s=0.02) as ns:
        reg = ns.allocate(BLOCK)
        refuse = inject(ns, Fault("abort_refused"))
        inject(ns, Fault.hold("read"))
        with anyio.move_on_after(0.2):
            await ns.read(reg, offset=0)
        clock = Clock()
        with pytest.raises(ControllerBusyError, match="reset"):
            await ns.aclose()
        assert clock.within(0, 1)  # never waits for a quarantine
        with pytest.raises(RegistrationBusyError, match="reset"):
            await reg.aclose()
        refuse.clear()
        await ns.controller.reset()
        assert ns.controller.quarantine == ()
        await reg.aclose(timeout_s=0)


async def test_force_closes_with_a_quarantine(
    live: Live, address: object, mode: aiougds.Mode
) -> None:
    assert callable(address)
    ns = await aiougds.open(address(), mode=mode, cancel_grace_s=0.02)
    reg = ns.allocate(BLOCK)
    inject(ns, Fault("abort_refused"))
    inject(ns, Fault.hold("read"))
    with anyio.move_on_after(0.2):
        await ns.read(reg, offset=0)
    with pytest.raises(ControllerBusyError):
        await ns.controller.aclose(timeout_s=0)
    await ns.controller.aclose(force=True)
    assert ns.controller.closed
    await reg.aclose()


@pytest.mark.few
async def test_a_collected_region_keeps_its_controller_no_longer_than_a_reset(
    live: Live,
) -> None:
    async with live() as ns:
        region = ns.region(0, 4 * BLOCK)
        dropped = inject(ns, Fault.drop("read", count=1))
        with dropped, pytest.raises(OperationTimeoutError):
            await region.read(bytearray(BLOCK), offset=0, timeout_s=0.2)
        watched = weakref.ref(region)
        del region
        gc.collect()
        assert watched() is None
        with pytest.raises(ControllerBusyError):
            await ns.controller.aclose(timeout_s=0)
        await ns.controller.reset()
        await ns.aclose(timeout_s=5)
