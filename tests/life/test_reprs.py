"""What objects say of themselves: their state."""

from __future__ import annotations

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, address, until

import aiougds
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.anyio, pytest.mark.few]


async def test_they_show_their_state(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        controller = ns.controller
        where = controller.address
        assert repr(controller) == f"<Controller {where}, live, 0 commands in flight>"
        assert repr(controller.events()) == f"<Events of {where}, 0 ready>"
        assert repr(ns).endswith("open>")
        assert "0 in flight" in repr(reg)
        done = ns.as_completed([(reg, 0)])
        assert repr(done) == "<AsCompleted of 1: 1 to send, 0 in flight, not entered>"
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                group.start_soon(lambda: ns.read(reg, offset=0))
                await until(lambda: held.hits == 1)
                assert "1 commands in flight" in repr(controller)
                assert "1 in flight" in repr(reg)
    assert repr(controller) == f"<Controller {where}, closed>"


async def test_of_an_opening() -> None:
    opening = aiougds.open(address())
    assert repr(opening) == "<Opening, not entered>"
    async with opening:
        assert repr(opening) == "<Opening, entered>"


async def test_of_what_has_ended(live: Live) -> None:
    async with live() as ns:
        events = ns.controller.events()
    assert repr(events).endswith(", closed>")
