"""A registration has a mapping for each controller, and only those it was given."""

from __future__ import annotations

import errno

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, pattern, until

from aiougds import ClosedError, NotMappedError, RegistrationBusyError
from aiougds.testing import Fault, counters, inject

pytestmark = pytest.mark.anyio


async def test_one_registration_two_controllers(live: Live) -> None:
    one, two = pattern(BLOCK, 1), pattern(BLOCK, 2)
    async with live() as first, live() as second, first.allocate(2 * BLOCK) as reg:
        await first.write(one, offset=0)
        await second.write(two, offset=0)
        with pytest.raises(NotMappedError, match="map") as refusal:
            await second.read(reg[:BLOCK], offset=0)
        assert refusal.value.errno == errno.ENXIO
        assert second.controller.address in str(refusal.value)

        await reg.map(second)
        await reg.map(second.controller)  # twice is no error
        assert first.controller.statistics().mappings == 1
        assert second.controller.statistics().mappings == 1

        assert await first.read(reg[:BLOCK], offset=0) == BLOCK
        assert await second.read(reg[BLOCK:], offset=0) == BLOCK
        assert reg.view[:] == one + two
        # A bus address of the first would be a stray access at the second.
        assert counters(first).iommu_faults == counters(second).iommu_faults == 0


async def test_never_a_hidden_pin_on_another_controller(live: Live) -> None:
    memory = bytearray(4 * BLOCK)
    async with live() as first, live() as second, first.register(memory):
        view = memoryview(memory)[BLOCK : 2 * BLOCK]
        for call in (
            lambda: second.read(view, offset=0),
            lambda: second.write(view, offset=0),
            lambda: second.compare(view, offset=0),
        ):
            with pytest.raises(NotMappedError):
                await call()
        assert second.controller.statistics().jit_pins == 0
        assert second.controller.statistics().commands == 0
        assert await first.read(view, offset=0) == BLOCK
        assert first.controller.statistics().jit_pins == 0


async def test_batches_ask_for_a_mapping_too(live: Live) -> None:
    async with live() as first, live() as second, first.allocate(2 * BLOCK) as reg:
        with pytest.raises(NotMappedError) as refusal:
            await second.read_many([(reg[:BLOCK], 0), (reg[BLOCK:], 0)])
        assert "item 0" in refusal.value.__notes__
        with pytest.raises(NotMappedError):
            second.batch().read(reg[:BLOCK], offset=0)
        with pytest.raises(NotMappedError):
            second.as_completed([(reg[:BLOCK], 0)])
        await reg.map(second)
        assert await second.read_many([(reg[:BLOCK], 0), (reg[BLOCK:], 0)]) == [
            BLOCK,
            BLOCK,
        ]


async def test_the_end_of_one_controller_leaves_the_other(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as second:
        await second.write(data, offset=0)
        async with live() as first:
            reg = first.allocate(BLOCK)
            await reg.map(second)
            await first.read(reg, offset=0)
        with pytest.raises(ClosedError):
            await first.read(reg, offset=0)
        assert await second.read(reg, offset=0) == BLOCK
        assert reg.view[:] == data
        await reg.aclose()
        assert reg.closed


async def test_busy_on_one_controller_is_busy_at_all(live: Live) -> None:
    async with live() as first, live() as second, first.allocate(2 * BLOCK) as reg:
        await reg.map(second)
        async with anyio.create_task_group() as group:
            with inject(second, Fault.hold("read")) as held:
                group.start_soon(lambda: second.read(reg[:BLOCK], offset=0))
                await until(lambda: held.hits == 1)
                with pytest.raises(RegistrationBusyError):
                    await reg.aclose(timeout_s=0)
                # Unmapped nowhere: the first works on.
                assert await first.read(reg[BLOCK:], offset=0) == BLOCK


async def test_map_after_the_end(live: Live) -> None:
    async with live() as first:
        async with live() as second:
            reg = first.allocate(BLOCK)
            other = first.allocate(BLOCK)
            await reg.aclose()
            with pytest.raises(ClosedError, match="closed"):
                await reg.map(second)
        with pytest.raises(ClosedError, match="closed"):
            await other.map(second)
        await other.aclose()


async def test_mappings_come_and_go(live: Live) -> None:
    async with live() as ns:
        before = ns.controller.statistics().mappings
        regs = [ns.allocate(BLOCK) for _ in range(100)]
        assert ns.controller.statistics().mappings == before + 100
        for reg in regs[::2] + regs[1::2]:
            await ns.read(reg, offset=0)
            await reg.aclose()
        assert ns.controller.statistics().mappings == before
