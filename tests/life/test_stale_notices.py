"""A notice of a wait that was given up never ends the next one."""

from __future__ import annotations

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, until

from aiougds import BusyError
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio

SHALLOW = {"depth": 2, "batch_depth": 2, "queues": 2}


@pytest.mark.few
async def test_read_many_after_a_given_up_harvest(live: Live) -> None:
    async with live(**SHALLOW) as ns, ns.allocate(16 * BLOCK) as reg:  # type: ignore[arg-type]
        await ns.write(b"\x55" * BLOCK, offset=0)
        held = inject(ns, Fault.hold("read"))
        async with anyio.create_task_group() as group:
            group.start_soon(ns.read_many, [(reg[:BLOCK], 0)])
            await until(lambda: held.hits > 0)
            with anyio.move_on_after(0.05):
                pairs = [(reg[k * BLOCK : (k + 1) * BLOCK], 0) for k in range(1, 5)]
                async with ns.as_completed(pairs) as done:
                    async for _ in done:
                        pass
            group.start_soon(_clear_soon, held)
            last = [(reg[k * BLOCK : (k + 1) * BLOCK], 0) for k in range(8, 16)]
            assert await ns.read_many(last) == [BLOCK] * 8
            assert bytes(reg.view[8 * BLOCK :]) == b"\x55" * (8 * BLOCK)
        await until(lambda: not ns.controller.quarantine)


async def _clear_soon(held: object) -> None:
    await anyio.sleep(0.1)
    held.clear()  # type: ignore[attr-defined]


@pytest.mark.few
async def test_leaving_early_waits_for_the_device(live: Live) -> None:
    async with live(cancel_grace_s=5, **SHALLOW) as ns, ns.allocate(4 * BLOCK) as reg:  # type: ignore[arg-type]
        await ns.write(b"\x55" * BLOCK, offset=0)
        held = inject(ns, Fault.hold("read"))
        async with anyio.create_task_group() as group:
            group.start_soon(_clear_soon, held)
            with anyio.move_on_after(0.03):
                pairs = [(reg[k * BLOCK : (k + 1) * BLOCK], 0) for k in range(4)]
                async with ns.as_completed(pairs) as done:
                    async for _ in done:
                        pass
            assert reg.inflight == 0
            assert ns.controller.quarantine == ()


async def test_one_task_at_a_time_waits_for_a_batch(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        held = inject(ns, Fault.hold("read"))
        batch = ns.batch(4)
        batch.read(reg, offset=0, cookie="it")
        batch.submit()
        async with anyio.create_task_group() as group:
            group.start_soon(batch.harvest)
            await until(lambda: held.hits > 0)
            await anyio.sleep(0.01)
            with pytest.raises(BusyError, match="another task"):
                await batch.harvest()
            with pytest.raises(BusyError, match="another task"):
                await batch.aclose()
            held.clear()
        await batch.aclose()


async def test_no_bytes_are_not_lost_by_an_empty_harvest(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg, ns.batch(4) as batch:
        batch.read(reg[:0], offset=0, cookie="zero")
        batch.read(reg, offset=0, cookie="all")
        batch.submit()
        assert await batch.harvest(0, 0) == []
        assert {item.cookie for item in await batch.harvest(2)} == {"zero", "all"}


async def test_an_endless_time_limit_is_none(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.delay(0.02, "read")):
            assert await ns.read(reg, offset=0, timeout_s=float("inf")) == BLOCK
