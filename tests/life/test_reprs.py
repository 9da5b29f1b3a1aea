"""What objects say of themselves: their state."""

from __future__ import annotations

import importlib
import inspect

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, address, until
from test_exports import PUBLIC

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


def of_its_own(cls: type) -> bool:
    return cls.__repr__ is not object.__repr__


def test_every_public_class_shows_something() -> None:
    """Protocols have no objects."""
    bare = [
        f"{name}.{member}"
        for name in PUBLIC
        for member, value in vars(importlib.import_module(name)).items()
        if inspect.isclass(value)
        and not member.startswith("_")
        and value.__module__.startswith("aiougds")
        and not getattr(value, "_is_protocol", False)
        and not of_its_own(value)
    ]
    assert not bare


class AsItIs:
    def plan(self, intent: aiougds.Intent, /) -> aiougds.Plan:
        return aiougds.Plan()


async def test_of_handles(live: Live) -> None:
    async with live() as ns:
        plain = repr(ns)

        def differs(other: aiougds.Namespace) -> str:
            return repr(other).replace(plain.removesuffix("open>"), "")

        assert differs(ns.using(mode="poll")) == "mode poll, open>"
        careful = ns.using(io_class="background", mode="interrupt")
        assert differs(careful) == "mode interrupt, class background, open>"
        assert differs(ns.using(policy=AsItIs())) == "policy AsItIs, open>"
        plan = aiougds.Plan(io_class="latency", spin_us=7, chunk=65536)
        told = "class latency, spin_us 7, chunk 65536, open>"
        assert differs(ns.using(policy=plan)) == told
        part = ns.region(2 * BLOCK, BLOCK).using(mode="poll")
        assert f": {BLOCK} bytes from {2 * BLOCK} on in blocks" in repr(part)
        assert repr(part).endswith(", mode poll, open>")


async def test_of_a_batch_and_what_closes(live: Live) -> None:
    async with live() as ns, ns.allocate(2 * BLOCK) as reg:
        part = reg[:BLOCK]
        assert "0 in flight" in repr(part)
        async with ns.batch(4) as batch:
            assert repr(batch) == "<Batch of 4: 0 prepared, 0 pending>"
            batch.read(part, offset=0)
            assert repr(batch) == "<Batch of 4: 1 prepared, 0 pending>"
            batch.submit()
            assert repr(batch) == "<Batch of 4: 0 prepared, 1 pending>"
        assert repr(batch) == "<Batch of 4: 0 prepared, closed>"
        other = ns.region(0, BLOCK)
        await other.aclose()
        assert repr(other).endswith("closed>")
        readonly = ns.region(0, BLOCK, readonly=True)
        assert repr(readonly).endswith("read-only>")
        with inject(ns, Fault.hold("read")) as held:
            assert repr(held) == "<FaultHandle hold, in force, 0 hits>"
        assert repr(held) == "<FaultHandle hold, cleared, 0 hits>"
    assert repr(reg) == f"<Registration of {2 * BLOCK} bytes, closed>"


def test_of_the_blocking_ones() -> None:
    with (
        aiougds.blocking.open(address()) as ns,
        ns.allocate(BLOCK) as reg,
        ns.batch(2) as batch,
    ):
        assert repr(ns) == f"<blocking {ns._ns!r}>"
        assert repr(ns.controller).startswith("<blocking <Controller ")
        assert repr(batch) == "<blocking <Batch of 2: 0 prepared, 0 pending>>"
        done = ns.as_completed([(reg, 0)])
        assert repr(done).startswith("<blocking <AsCompleted of 1")
