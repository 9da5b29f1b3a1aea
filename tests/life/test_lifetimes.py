"""Objects that are collected, closed twice, or used after their end."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, pattern, until

import aiougds
from aiougds import BusyError, ClosedError, Controller, Namespace, Registration
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio


class Memory(bytearray):
    """Memory that can be watched being collected."""

    __slots__ = ("__weakref__",)


def collected(*watched: weakref.ref[Memory] | weakref.ref[Registration]) -> bool:
    gc.collect()
    return all(ref() is None for ref in watched)


@pytest.mark.few
async def test_memory_of_a_read_in_flight_outlives_its_owner(live: Live) -> None:
    data = pattern(BLOCK)
    async with live() as ns:
        await ns.write(data, offset=0)
        results: list[bytes] = []

        def start() -> tuple[Callable[[], object], weakref.ref[Memory]]:
            memory = Memory(BLOCK)
            reg = ns.register(memory)

            async def read() -> None:
                nonlocal reg
                view = reg.view
                waiting, reg = ns.read(reg, offset=0), None  # type: ignore[assignment]
                await waiting
                results.append(bytes(view))

            return read, weakref.ref(memory)

        async with anyio.create_task_group() as group:
            with (  # noqa: PT031
                pytest.warns(ResourceWarning, match="unclosed <Registration"),
                inject(ns, Fault.hold("read")) as held,
            ):
                read, memory = start()
                group.start_soon(read)
                del read
                await until(lambda: held.hits == 1)
                assert not collected(memory)
                assert ns.controller.statistics().mappings == 1
                held.clear()
                await until(lambda: len(results) == 1)
                gc.collect()
        assert results == [data]
        async with ns.allocate(BLOCK):  # sweeps what was left behind
            pass
        await until(lambda: ns.controller.statistics().mappings == 0)
        await until(lambda: collected(memory))


@pytest.mark.few
async def test_unregistered_memory_is_held_and_let_go(live: Live) -> None:
    async with live() as ns:
        memory = Memory(BLOCK)
        watched = weakref.ref(memory)
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                group.start_soon(lambda m: ns.read(m, offset=0), memory)
                del memory
                await until(lambda: held.hits == 1)
                assert not collected(watched)
        await until(lambda: collected(watched))
        assert ns.controller.statistics().jit_pins == 1
        assert ns.controller.statistics().mappings == 0


@pytest.mark.few
async def test_collected_batch_with_operations_in_flight(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:

        def start() -> None:
            batch = ns.batch(capacity=8)
            for i in range(8):
                batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK)
            assert batch.submit() == 8

        with inject(ns, Fault.hold("read")) as held:
            start()
            gc.collect()
            await until(lambda: held.hits == 8)
            assert reg.inflight == 8
            with pytest.raises(BusyError):
                await reg.aclose(timeout_s=0)
        await reg.aclose(timeout_s=2)
        assert reg.inflight == 0
        async with ns.allocate(BLOCK) as other:
            assert await ns.read_many([(other[:], 0)]) == [BLOCK]


@pytest.mark.few
async def test_collected_namespace_and_controller_with_a_read_in_flight(
    address: Callable[..., str], mode: aiougds.Mode
) -> None:
    async with aiougds.open_controller(address(), mode=mode) as controller:
        memory = bytearray(BLOCK)
        results: list[int] = []

        async def read(ns: Namespace) -> None:
            waiting = ns.read(memory, offset=0)
            del ns
            results.append(await waiting)

        async with anyio.create_task_group() as group:
            with inject(controller, Fault.hold("read")) as held:
                group.start_soon(read, controller.namespace())
                await until(lambda: held.hits == 1)
                gc.collect()
        assert results == [BLOCK]
    assert controller.closed


@pytest.mark.few
async def test_unclosed_objects_are_warned_about(
    address: Callable[..., str], mode: aiougds.Mode
) -> None:
    ns = await aiougds.open(address(), mode=mode)
    reg = ns.allocate(BLOCK)
    await ns.read(reg, offset=0)
    with pytest.warns(ResourceWarning) as seen:  # noqa: PT031
        del reg
        gc.collect()
        del ns
        gc.collect()
    words = [str(warning.message) for warning in seen]
    assert any("unclosed <Registration" in word for word in words), words
    assert any("unclosed <Controller" in word for word in words), words
    # The next one to be opened sees it off.
    async with aiougds.open(address()) as after:
        await after.flush()


async def test_closing_twice_is_no_error(live: Live) -> None:
    async with live() as ns:
        reg = ns.allocate(BLOCK)
        part = ns.region(0, BLOCK)
        batch = ns.batch()
        for _ in range(2):
            await reg.aclose()
            await batch.aclose()
            await part.aclose()
            assert reg.closed
            assert part.closed
        for _ in range(2):
            await ns.aclose()
            await ns.controller.aclose()
            assert ns.closed
            assert ns.controller.closed
        assert ns.controller.state == "closed"


def use_closed_registration(ns: Namespace, reg: Registration) -> list[object]:
    part = reg[:BLOCK]
    return [
        lambda: ns.read(reg, offset=0),
        lambda: ns.write(reg, offset=0),
        lambda: ns.read(part, offset=0),
        lambda: ns.compare(reg, offset=0),
        lambda: ns.read_many([(part, 0)]),
        lambda: reg.map(ns),
    ]


async def test_stale_registration(live: Live) -> None:
    async with live() as ns:
        reg = ns.allocate(2 * BLOCK)
        used = use_closed_registration(ns, reg)
        await reg.aclose()
        before = ns.controller.statistics().commands
        # Its mapping's slot is taken by another: the old one must not reach it.
        async with ns.allocate(2 * BLOCK) as other:
            other.view[:] = bytes(2 * BLOCK)
            for call in used:
                assert callable(call)
                with pytest.raises(ClosedError) as refusal:
                    await call()
                assert refusal.value.errno == errno.ESHUTDOWN
            with pytest.raises(ClosedError):
                ns.batch().read(reg[:BLOCK], offset=0)
        with pytest.raises(ClosedError):
            _ = reg.view
        assert ns.controller.statistics().commands == before


async def test_stale_namespace_and_controller(
    address: Callable[..., str], mode: aiougds.Mode
) -> None:
    ns = await aiougds.open(address(), mode=mode)
    controller: Controller = ns.controller
    reg = ns.allocate(BLOCK)
    await ns.read(reg, offset=0)
    batch = ns.batch()
    await ns.aclose()
    memory = bytearray(BLOCK)
    calls = [
        lambda: ns.read(reg, offset=0),
        lambda: ns.read(memory, offset=0),
        lambda: ns.write(memory, offset=0),
        lambda: ns.flush(),
        lambda: ns.write_zeroes(offset=0, nbytes=BLOCK),
        lambda: ns.read_many([(reg[:], 0)]),
        lambda: controller.admin(6, cdw10=1, nbytes=4096),
        lambda: controller.reset(),
        lambda: controller.smart_log(),
        lambda: batch.harvest(),
    ]
    for call in calls:
        with pytest.raises(ClosedError) as refusal:
            await call()
        assert "closed" in str(refusal.value)
    for plain in (
        lambda: ns.register(memory),
        lambda: ns.allocate(BLOCK),
        lambda: ns.region(0, BLOCK),
        lambda: ns.batch(),
        lambda: ns.as_completed([]),
        lambda: controller.statistics(),
        lambda: controller.namespaces(),
        lambda: controller.namespace(),
        lambda: controller.events(),
        lambda: controller.capabilities,
        lambda: controller.info,
        lambda: inject(ns, Fault.hold()),
        lambda: batch.submit(),
    ):
        with pytest.raises(ClosedError):
            plain()
    assert controller.quarantine == ()
    assert "closed" in repr(ns)
    assert "closed" in repr(controller)
    await reg.aclose()


async def test_namespace_of_a_closed_region_leaves_its_parent(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        async with ns.region(0, 4 * BLOCK) as part, part.region(0, BLOCK) as inner:
            assert await inner.read(reg, offset=0) == BLOCK
        with pytest.raises(ClosedError):
            await inner.read(reg, offset=0)
        assert await ns.read(reg, offset=0) == BLOCK


async def test_closed_batch(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        async with ns.batch(4) as batch:
            batch.read(reg[:], offset=0)
            batch.submit()
        with pytest.raises(ClosedError):
            batch.read(reg[:], offset=0)
        with pytest.raises(ClosedError):
            batch.submit()
        with pytest.raises(ClosedError):
            await batch.harvest()
        done = ns.as_completed([(reg[:], 0)])
        async with done:
            assert [item async for item in done] == [(0, BLOCK)]
        with pytest.raises(ClosedError):
            await done.__aenter__()


@pytest.mark.parametrize("again", [1, 2])
async def test_open_is_undone_when_cancelled(
    address: Callable[..., str], tmp_path: object, again: int
) -> None:
    """Half-open controllers would keep their file locked."""
    where = f"emu:{tmp_path}/{again}?size=1MiB"
    for _ in range(3):
        with anyio.move_on_after(0) as scope:
            await anyio.lowlevel.checkpoint()
            await aiougds.open(where)
        assert scope.cancelled_caught
    task_opened: list[Namespace] = []

    async def opening() -> None:
        task_opened.append(await aiougds.open(where))

    async with anyio.create_task_group() as group:
        group.start_soon(opening)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    for ns in task_opened:
        await ns.aclose()
    async with aiougds.open(where) as ns:
        await ns.flush()


async def test_a_coroutine_that_never_ran_sent_nothing(live: Live) -> None:
    async with live() as ns:
        before = ns.controller.statistics().commands
        waiting = ns.read(bytearray(BLOCK), offset=0)
        waiting.close()
        assert ns.controller.statistics().commands == before
