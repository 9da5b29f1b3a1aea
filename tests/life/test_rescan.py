"""A look at the namespaces that fails says nothing about them."""

from __future__ import annotations

import pytest
from life.conftest import Live
from life.live import BLOCK, until

from aiougds.testing import Fault, counters, inject, raise_event

pytestmark = [pytest.mark.anyio, pytest.mark.few]

IDENTIFY = 0x06


async def test_a_rescan_that_fails_takes_no_namespace_away(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        failing = Fault.status(IDENTIFY, sct=0, sc=0x06).on(queue=0)
        with inject(ns, failing) as fault:
            raise_event(ns, type=2, info=0, log_page=0x04)
            await until(lambda: fault.hits >= 2)  # the list, and the namespace
            done = counters(ns).admin_commands
            await ns.controller.log_page(2)
            await until(lambda: counters(ns).admin_commands > done)
            assert await ns.read(reg, offset=0) == BLOCK
        assert await ns.read(reg, offset=0) == BLOCK


async def test_a_reset_whose_look_fails_takes_no_namespace_away(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        # Identify Controller passes.
        failing = Fault.status(IDENTIFY, sct=0, sc=0x06, count=1).on(queue=0, skip=1)
        with inject(ns, failing) as fault:
            await ns.controller.reset()
            assert fault.hits == 1
        assert await ns.read(reg, offset=0) == BLOCK
        assert ns.size == 16 << 20
