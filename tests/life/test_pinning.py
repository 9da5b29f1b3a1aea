"""Pinning and unmapping that take a system call: off the loop, undone to the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, PATIENT_S, cancelled_when, until

from aiougds import (
    ClosedError,
    MemoryLayoutError,
    OperationTimeoutError,
    RegistrationBusyError,
    _device,
    _mapping,
    _pinned,
    _transfer,
)
from aiougds._ffi import lib
from aiougds._home import Errand
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.anyio, pytest.mark.few]


class SlowPins:
    """Pinning goes through a thread, as where it needs a system call, and waits."""

    def __init__(self) -> None:
        self.begun = self.made = 0
        self.fails = False
        self.go = threading.Event()


def not_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have devices say that mapping memory takes a system call."""
    info = _device.Device.info

    def without(self: _device.Device) -> object:
        found = info(self)
        found.caps &= ~lib.UGDS_CAP_MAP_INLINE
        return found

    monkeypatch.setattr(_device.Device, "info", without)


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowPins]:
    slow = SlowPins()
    mapping = _mapping.Mapping
    not_inline(monkeypatch)

    class Slow(mapping):
        def __init__(self, *args: object) -> None:
            slow.begun += 1
            assert slow.go.wait(20)
            if slow.fails:
                slow.made += 1
                raise MemoryLayoutError("no pin")
            super().__init__(*args)
            slow.made += 1

    monkeypatch.setattr(_transfer, "Mapping", Slow)
    monkeypatch.setattr(_pinned, "Mapping", Slow)
    yield slow
    slow.go.set()


class SlowUnmaps:
    """Unmapping waits, and says in which threads it was asked for."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.go = threading.Event()


@pytest.fixture
def unmaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowUnmaps]:
    slow = SlowUnmaps()
    unmap = _mapping.Mapping.unmap
    not_inline(monkeypatch)

    def slowly(self: _mapping.Mapping) -> bool:
        slow.threads.append(threading.get_ident())
        assert slow.go.wait(20)
        return unmap(self)

    monkeypatch.setattr(_mapping.Mapping, "unmap", slowly)
    yield slow
    slow.go.set()


async def test_cancelled_while_pinning(live: Live, pins: SlowPins) -> None:
    async with live() as ns:
        before = ns.controller.statistics().commands
        ended: list[str] = []

        async def read() -> None:
            try:
                await ns.read(bytearray(BLOCK), offset=0)
                ended.append("read")
            finally:
                ended.append("left")

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await until(lambda: pins.begun == 1)
            group.cancel_scope.cancel()
            pins.go.set()
        assert ended == ["left"]
        assert ns.controller.statistics().commands == before
        assert ns.controller.statistics().mappings == 0
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK
        assert ns.controller.statistics().mappings == 0


async def test_late_while_pinning(live: Live, pins: SlowPins) -> None:
    async with live() as ns:
        before = ns.controller.statistics().commands

        async def release() -> None:
            await until(lambda: pins.begun == 1)
            await anyio.sleep(0.06)
            pins.go.set()

        async with anyio.create_task_group() as group:
            group.start_soon(release)
            with pytest.raises(OperationTimeoutError, match="never sent"):
                await ns.read(bytearray(BLOCK), offset=0, timeout_s=0.05)
        assert ns.controller.statistics().commands == before
        assert ns.controller.statistics().mappings == 0
        assert ns.controller.statistics().timeouts == 0
        assert ns.controller.state == "live"
        assert await ns.read(bytearray(BLOCK), offset=0, timeout_s=30) == BLOCK


async def test_a_pin_without_end_is_left(live: Live, pins: SlowPins) -> None:
    async with live(cancel_grace_s=0.1) as ns:
        before = ns.controller.statistics().commands
        start = time.monotonic()
        assert await cancelled_when(
            lambda: pins.begun == 1, lambda: ns.read(bytearray(BLOCK), offset=0)
        )
        assert time.monotonic() - start > 0.1
        for timeout_s in (0.02, *PATIENT_S):
            start = time.monotonic()
            with pytest.raises(OperationTimeoutError, match="never sent"):
                await ns.read(bytearray(BLOCK), offset=0, timeout_s=timeout_s)
            if pins.begun == 2:  # its thread came to it in time
                break
        assert time.monotonic() - start > 0.1
        assert pins.begun == 2
        assert not pins.made
        pins.go.set()  # both end now, and undo themselves
        await until(lambda: pins.made == 2 and not ns.controller.statistics().mappings)
        assert ns.controller.statistics().commands == before
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK


async def test_a_pin_that_fails_after_it_was_left(live: Live, pins: SlowPins) -> None:
    async with live(cancel_grace_s=0.02) as ns:
        pins.fails = True
        assert await cancelled_when(
            lambda: pins.begun == 1, lambda: ns.read(bytearray(BLOCK), offset=0)
        )
        pins.go.set()
        await until(lambda: pins.made == 1)
        with pytest.raises(MemoryLayoutError, match="no pin"):
            await ns.read(bytearray(BLOCK), offset=0)
        assert ns.controller.statistics().mappings == 0


async def test_a_registration_is_unmapped_off_the_loop(
    live: Live, unmaps: SlowUnmaps
) -> None:
    async with live() as ns, ns.allocate(BLOCK) as other:
        reg = await ns.allocate(BLOCK)
        async with anyio.create_task_group() as group:
            group.start_soon(reg.aclose)
            await until(lambda: len(unmaps.threads) == 1)
            assert await ns.read(other, offset=0) == BLOCK  # the loop goes on
            assert not reg.closed
            unmaps.go.set()
        assert reg.closed
        assert threading.get_ident() not in unmaps.threads
        with pytest.raises(ClosedError):
            await ns.read(reg, offset=0)
        assert ns.controller.statistics().mappings == 1


async def test_cancelled_while_unmapping(live: Live, unmaps: SlowUnmaps) -> None:
    async with live() as ns:
        reg = await ns.allocate(BLOCK)
        async with anyio.create_task_group() as group:
            group.start_soon(reg.aclose)
            await until(lambda: len(unmaps.threads) == 1)
            group.cancel_scope.cancel()
            unmaps.go.set()
        assert reg.closed
        assert ns.controller.statistics().mappings == 0
        await reg.aclose()


async def test_what_is_busy_is_not_unmapped(live: Live, unmaps: SlowUnmaps) -> None:
    async with live() as ns:
        reg = await ns.allocate(BLOCK)
        with inject(ns, Fault.hold("read", count=1)) as held:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(ns.read, reg, offset=0))
                await until(lambda: reg.inflight == 1)
                for limit in (0, 0.02):
                    with pytest.raises(RegistrationBusyError):
                        await reg.aclose(timeout_s=limit)
                assert not unmaps.threads
                unmaps.go.set()
                group.start_soon(reg.aclose)  # waits for the read
                held.clear()
        assert reg.closed
        assert threading.get_ident() not in unmaps.threads


async def test_jit_pins_of_a_cancelled_read_are_undone(
    live: Live, unmaps: SlowUnmaps
) -> None:
    async with live() as ns:
        unmaps.go.set()
        with inject(ns, Fault.hold("read", count=1)) as held:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(ns.read, bytearray(BLOCK), offset=0))
                await until(lambda: ns.controller.statistics().inflight == 1)
                group.cancel_scope.cancel()
                held.clear()
        assert ns.controller.statistics().mappings == 0


async def test_cancelled_while_registering(live: Live, pins: SlowPins) -> None:
    async with live() as ns:
        reg = ns.allocate(BLOCK)
        async with anyio.create_task_group() as group:
            group.start_soon(reg.ready)
            await until(lambda: pins.begun == 1)
            group.cancel_scope.cancel()
            pins.go.set()
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK
        await reg.aclose()  # whether its taker heard of it or not
        assert ns.controller.statistics().mappings == 0


async def test_a_registration_that_is_refused_is_closed(
    live: Live, pins: SlowPins
) -> None:
    async with live() as ns:
        pins.fails = True
        pins.go.set()
        reg = ns.allocate(BLOCK)
        with pytest.raises(MemoryLayoutError, match="no pin"):
            await reg
        assert reg.closed
        with pytest.raises(ClosedError, match="register the memory again"):
            await reg.map(ns)


async def test_closed_while_it_is_mapped_for_another(
    live: Live, pins: SlowPins
) -> None:
    async with live() as ns, live() as other:
        pins.go.set()
        reg = await ns.allocate(BLOCK)
        pins.go.clear()
        async with anyio.create_task_group() as group:

            async def map_it() -> None:
                with pytest.raises(ClosedError, match="closed meanwhile"):
                    await reg.map(other)

            group.start_soon(map_it)
            await until(lambda: pins.begun == 2)
            await reg.aclose()
            pins.go.set()
        assert other.controller.statistics().mappings == 0


def test_an_error_before_it_was_left_has_a_taker() -> None:
    def fails() -> int:
        raise MemoryLayoutError("no pin")

    errand = Errand(fails, lambda _result: None)
    with pytest.raises(MemoryLayoutError):
        errand.run()
    assert not errand.leave()
