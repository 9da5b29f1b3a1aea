"""Cancelled or late while memory is pinned just in time: nothing is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, until

from aiougds import MemoryLayoutError, OperationTimeoutError, _device, _transfer
from aiougds._ffi import lib

pytestmark = [pytest.mark.anyio, pytest.mark.few]


class SlowPins:
    """Pinning goes through a thread, as where it needs a system call, and waits."""

    def __init__(self) -> None:
        self.begun = self.made = 0
        self.fails = False
        self.go = threading.Event()


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowPins]:
    slow = SlowPins()
    info, mapping = _device.Device.info, _transfer.Mapping

    def without(self: _device.Device) -> object:
        found = info(self)
        found.caps &= ~lib.UGDS_CAP_MAP_INLINE
        return found

    class Slow(mapping):
        def __init__(self, *args: object) -> None:
            slow.begun += 1
            assert slow.go.wait(20)
            if slow.fails:
                slow.made += 1
                raise MemoryLayoutError("no pin")
            super().__init__(*args)
            slow.made += 1

    monkeypatch.setattr(_device.Device, "info", without)
    monkeypatch.setattr(_transfer, "Mapping", Slow)
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
        assert await ns.read(bytearray(BLOCK), offset=0, timeout_s=5) == BLOCK


async def test_a_pin_without_end_is_left(live: Live, pins: SlowPins) -> None:
    async with live(cancel_grace_s=0.1) as ns:
        before = ns.controller.statistics().commands
        start = time.monotonic()
        with anyio.move_on_after(0.02) as scope:
            await ns.read(bytearray(BLOCK), offset=0)
        assert scope.cancelled_caught
        assert 0.1 < time.monotonic() - start < 5
        start = time.monotonic()
        with pytest.raises(OperationTimeoutError, match="never sent"):
            await ns.read(bytearray(BLOCK), offset=0, timeout_s=0.02)
        assert 0.1 < time.monotonic() - start < 5
        assert pins.begun == 2
        pins.go.set()  # both end now, and undo themselves
        await until(lambda: pins.made == 2 and not ns.controller.statistics().mappings)
        assert ns.controller.statistics().commands == before
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK


async def test_a_pin_that_fails_after_it_was_left(live: Live, pins: SlowPins) -> None:
    async with live(cancel_grace_s=0.02) as ns:
        pins.fails = True
        with anyio.move_on_after(0.02):
            await ns.read(bytearray(BLOCK), offset=0)
        pins.go.set()
        await until(lambda: pins.made == 1)
        with pytest.raises(MemoryLayoutError, match="no pin"):
            await ns.read(bytearray(BLOCK), offset=0)
        assert ns.controller.statistics().mappings == 0
