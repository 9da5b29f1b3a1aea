"""A refused release changes nothing: all that can be seen is as it was before."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, Clock, address, until

import aiougds
from aiougds import (
    BusyError,
    Controller,
    ControllerBusyError,
    Event,
    Mode,
    Namespace,
    OperationTimeoutError,
    Registration,
    RegistrationBusyError,
)
from aiougds.testing import Fault, inject, raise_event

Seen = tuple[object, ...]


def seen(ns: Namespace, *others: object) -> Seen:
    """Return what there is to be seen of a controller and of what belongs to it."""
    controller = ns.controller
    stats = controller.statistics()
    caps = controller.capabilities
    return (
        (controller.state, controller.state_reason, controller.quarantine),
        (stats.mappings, stats.channels, stats.inflight, stats.resets, stats.commands),
        (caps.free_queue_pairs, caps.queue, controller.namespaces()),
        (ns.closed, ns.size, ns.readonly),
        tuple(repr(other) for other in others),
    )


async def refused(kind: type[BusyError], call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(kind) as refusal:
        await call()
    assert refusal.value.errno == errno.EBUSY


@pytest.mark.anyio
@pytest.mark.parametrize("timeout_s", [0, 0.02])
async def test_the_tree_of_owners(live: Live, timeout_s: float) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        part = ns.region(0, 4 * BLOCK)
        inner = part.region(0, BLOCK)
        idle = ns.allocate(BLOCK)
        batch, other = ns.batch(4), ns.batch(4)
        other.read(idle, offset=0, cookie="prepared")
        for owner in (ns, part, inner):  # what each of them needs once is there
            await owner.read(reg[:BLOCK], offset=0)
        results: list[int] = []

        async def read() -> None:
            results.append(await inner.read(reg[:BLOCK], offset=0))

        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                group.start_soon(read)
                batch.read(reg[BLOCK : 2 * BLOCK], offset=0, cookie="in flight")
                batch.submit()
                await until(lambda: held.hits == 2)
                everything = (ns, part, inner, reg, idle, batch, other)
                before = seen(ns, *everything)
                for kind, call in (
                    (ControllerBusyError, ns.aclose),
                    (ControllerBusyError, ns.controller.aclose),
                    (ControllerBusyError, inner.aclose),
                    (RegistrationBusyError, reg.aclose),
                ):
                    clock = Clock()
                    await refused(kind, lambda c=call: c(timeout_s))  # type: ignore[misc]
                    assert clock.within(timeout_s, timeout_s + 0.5)
                    assert seen(ns, *everything) == before
        assert results == [BLOCK]
        # All of them work as if nothing had been asked.
        (item,) = await batch.harvest()
        assert (item.cookie, item.result) == ("in flight", BLOCK)
        other.submit()
        (item,) = await other.harvest()
        assert (item.cookie, item.result) == ("prepared", BLOCK)
        assert await inner.read(reg[:BLOCK], offset=0) == BLOCK
        for thing in (inner, part, idle, reg):
            await thing.aclose(timeout_s=0)
        await batch.aclose()
        await other.aclose()


@pytest.mark.anyio
async def test_a_registration_on_two_controllers(live: Live) -> None:
    """One mapping is busy: both stay."""
    async with live() as one, live() as two, one.allocate(BLOCK) as reg:
        await reg.map(two)
        results: list[int] = []

        async def read() -> None:
            results.append(await two.read(reg, offset=0))

        async with anyio.create_task_group() as group:
            with inject(two, Fault.hold("read")) as held:
                group.start_soon(read)
                await until(lambda: held.hits == 1)
                await refused(RegistrationBusyError, lambda: reg.aclose(timeout_s=0))
                assert [ns.controller.statistics().mappings for ns in (one, two)] == [
                    1,
                    1,
                ]
                assert await one.read(reg, offset=0) == BLOCK
        assert results == [BLOCK]


@pytest.mark.anyio
async def test_leaving_right_after_a_time_out(live: Live) -> None:
    """The Busy error has the time-out as context; the release comes by itself."""
    async with live() as ns:
        held = inject(ns, Fault.hold("read"))
        with pytest.raises(RegistrationBusyError) as busy:
            async with ns.allocate(BLOCK) as reg:
                await ns.read(reg, offset=0, timeout_s=0.2)
        assert isinstance(busy.value.__context__, OperationTimeoutError)
        assert ns.controller.statistics().mappings == 1
        with pytest.raises(ControllerBusyError):
            await ns.aclose()
        held.clear()
        await until(lambda: not ns.controller.quarantine)
        await ns.flush()
        await until(lambda: ns.controller.statistics().mappings == 0)


@pytest.mark.anyio
async def test_events_go_on_after_a_refused_close(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        events: list[Event] = []
        ended: list[str] = []

        async def listen(controller: Controller) -> None:
            async for event in controller.events():
                events.append(event)  # noqa: PERF401 (they are looked at meanwhile)
            ended.append("events")

        async with anyio.create_task_group() as group:
            group.start_soon(listen, ns.controller)
            async with anyio.create_task_group() as reading:
                with inject(ns, Fault.hold("read")) as held:
                    reading.start_soon(lambda: ns.read(reg, offset=0))
                    await until(lambda: held.hits == 1)
                    for timeout_s in (0, 0.03):
                        await refused(
                            ControllerBusyError,
                            lambda t=timeout_s: ns.aclose(t),  # type: ignore[misc]
                        )
                    raise_event(ns, type=1, info=1, log_page=2)
                    await until(lambda: len(events) == 1)
                    assert ended == []
            await reg.aclose()
            await ns.aclose()
            await until(lambda: ended == ["events"])


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll", "inline"])
def test_what_a_dead_loop_left_is_busy_too(mode: Mode) -> None:
    """And a refusal for it does not end the batches of loops that live."""

    async def main() -> None:
        ns = await aiougds.open(address(), mode=mode)
        reg = ns.allocate(2 * BLOCK)
        batch = ns.batch(2)
        batch.read(reg[:BLOCK], offset=0, cookie=1)
        batch.submit()
        assert len(await batch.harvest()) == 1
        held = inject(ns, Fault.hold("read"))
        await asyncio.to_thread(lose_a_loop, ns, reg, lambda: held.hits == 1)
        for timeout_s in (0, 0.03):
            with pytest.raises(ControllerBusyError, match="1 operations"):
                await ns.aclose(timeout_s)
        batch.flush(cookie=2)
        batch.submit()
        (item,) = await batch.harvest()
        assert (item.cookie, item.error) == (2, None)
        closing = asyncio.create_task(ns.aclose())
        await asyncio.sleep(0.02)
        assert not closing.done()
        assert not ns.closed
        held.clear()
        await closing
        await reg.aclose(timeout_s=0)

    asyncio.run(main())


def lose_a_loop(ns: Namespace, reg: Registration, sent: Callable[[], bool]) -> None:
    """Start a read on a loop that is closed before the device has answered."""
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Task[int]:
        task = loop.create_task(ns.read(reg[BLOCK:], offset=0))
        while not sent():
            await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(start())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
