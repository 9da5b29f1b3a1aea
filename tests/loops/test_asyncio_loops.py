"""Loops that end, begin again, run side by side, or are the wrong one."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine

import pytest
import trio
import uvloop
from life.live import BLOCK, address, check_clean, pattern, until

import aiougds
from aiougds import Namespace, Registration, WrongLoopError
from aiougds.testing import Fault, inject

Run = Callable[[Coroutine[object, object, object]], object]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """``asyncio.run``, or that of uvloop."""
    return asyncio.run if request.param == "asyncio" else uvloop.run


@pytest.fixture(params=["adaptive", "interrupt", "poll"])
def mode(request: pytest.FixtureRequest) -> aiougds.Mode:
    chosen: aiougds.Mode = request.param
    return chosen


class Opened:
    """A namespace and a registration, open over several loops."""

    ns: Namespace
    reg: Registration

    async def open(self, mode: aiougds.Mode = "adaptive", **options: float) -> None:
        self.ns = await aiougds.open(address(), mode=mode, **options)  # type: ignore[arg-type]
        self.reg = self.ns.allocate(16 * BLOCK)
        await self.ns.write(pattern(16 * BLOCK), offset=0)

    async def read_all(self) -> None:
        self.reg.view[:] = bytes(16 * BLOCK)
        assert await self.ns.read(self.reg, offset=0) == 16 * BLOCK
        assert self.reg.view[:] == pattern(16 * BLOCK)
        pairs = [(self.reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(16)]
        assert await self.ns.read_many(pairs) == [BLOCK] * 16

    async def close(self) -> None:
        check_clean(self.ns)
        await self.reg.aclose()
        await self.ns.aclose(timeout_s=5)


def test_one_controller_over_several_runs(run: Run, mode: aiougds.Mode) -> None:
    it = Opened()
    run(it.open(mode))
    for _ in range(5):
        run(it.read_all())
    assert it.ns.controller.statistics().channels <= 1
    assert it.ns.controller.statistics().dropped == 0
    run(it.close())


def test_one_controller_over_several_trio_runs(mode: aiougds.Mode) -> None:
    it = Opened()
    trio.run(it.open, mode)
    for _ in range(3):
        trio.run(it.read_all)
        asyncio.run(it.read_all())
    assert it.ns.controller.statistics().channels == 0
    assert it.ns.controller.statistics().dropped == 0
    trio.run(it.close)


def test_run_ends_with_a_read_in_flight(run: Run, mode: aiougds.Mode) -> None:
    """The run cancels the task; the next run finds a controller that works."""
    it = Opened()
    faults = []

    async def leave() -> None:
        held = inject(it.ns, Fault.hold("read", count=1))
        faults.extend([held, inject(it.ns, Fault("abort_refused"))])
        task = asyncio.create_task(it.ns.read(it.reg[:BLOCK], offset=0))
        await until(lambda: held.hits == 1)
        assert not task.done()

    run(it.open(mode, cancel_grace_s=0.05))
    run(leave())
    assert len(it.ns.controller.quarantine) == 1

    async def go_on() -> None:
        part = it.reg[BLOCK : 2 * BLOCK]
        assert await it.ns.read(part, offset=0) == BLOCK
        for fault in faults:
            fault.clear()
        await until(lambda: not it.ns.controller.quarantine)
        await it.read_all()

    run(go_on())
    run(it.close())


def abandon_loop(
    it: Opened, new_loop: Callable[[], asyncio.AbstractEventLoop], *, count: int
) -> None:
    """Close a loop over reads in flight, without telling anybody."""
    loop = new_loop()

    async def start() -> list[asyncio.Task[int]]:
        part = it.reg[:BLOCK]
        tasks = [asyncio.create_task(it.ns.read(part, offset=0)) for _ in range(count)]
        await until(lambda: it.reg.inflight == count)
        return tasks

    tasks = loop.run_until_complete(start())
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_loop_closed_with_reads_in_flight(
    new_loop: Callable[[], asyncio.AbstractEventLoop], mode: aiougds.Mode
) -> None:
    it = Opened()
    asyncio.run(it.open(mode))
    held = inject(it.ns, Fault.hold("read"))
    abandon_loop(it, new_loop, count=3)
    gc.collect()

    async def go_on() -> None:
        await it.ns.flush()  # makes a channel, and so notices
        assert it.reg.inflight == 3
        held.clear()
        await until(lambda: it.reg.inflight == 0)
        await until(lambda: it.ns.controller.statistics().dropped == 3)
        await until(lambda: it.ns.controller.statistics().channels == 1)
        assert it.ns.controller.statistics().adopted >= 1
        await it.read_all()

    asyncio.run(go_on())
    asyncio.run(it.close())


def test_memory_of_an_abandoned_loop_is_kept(mode: aiougds.Mode) -> None:
    class Memory(bytearray):
        __slots__ = ("__weakref__",)

    it = Opened()
    asyncio.run(it.open(mode))
    held = inject(it.ns, Fault.hold("read"))
    memory = Memory(BLOCK)
    watched = weakref.ref(memory)
    loop = asyncio.new_event_loop()

    async def start(memory: Memory) -> None:
        task = asyncio.create_task(it.ns.read(memory, offset=0))
        await until(lambda: held.hits == 1)
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    loop.run_until_complete(start(memory))
    loop.close()
    del memory, loop
    gc.collect()
    assert watched() is not None

    async def go_on() -> None:
        await it.ns.flush()
        gc.collect()
        assert watched() is not None
        held.clear()
        await until(lambda: it.ns.controller.statistics().dropped == 1)
        async with it.ns.allocate(BLOCK):  # sweeps
            pass

        def gone() -> bool:
            gc.collect()
            return watched() is None

        await until(gone)

    asyncio.run(go_on())
    asyncio.run(it.close())


def in_threads(*works: Callable[[], object]) -> None:
    """Run each in a thread; raise what the first one raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


async def churn(ns: Namespace, slot: int, rounds: int) -> None:
    """Write, read and compare in a part of the namespace of its own."""
    part = ns.region(slot * 64 * BLOCK, 64 * BLOCK)
    async with part.allocate(64 * BLOCK) as reg:
        for number in range(rounds):
            data = pattern(64 * BLOCK, slot * 1000 + number)
            reg.view[:] = data
            await part.write(reg, offset=0)
            reg.view[:] = bytes(64 * BLOCK)
            pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
            assert await part.read_many(pairs) == [BLOCK] * 64
            assert reg.view[:] == data
            for i in range(0, 64, 7):
                assert await part.read(reg[:BLOCK], offset=i * BLOCK) == BLOCK
                assert reg.view[:BLOCK] == data[i * BLOCK : (i + 1) * BLOCK]
    await part.aclose()


@pytest.mark.parametrize("queues", [1, 2, 16])
def test_three_loops_at_once(mode: aiougds.Mode, queues: int) -> None:
    it = Opened()
    asyncio.run(it.open(mode, queues=queues))
    in_threads(
        lambda: asyncio.run(churn(it.ns, 0, 10)),
        lambda: uvloop.run(churn(it.ns, 1, 10)),
        lambda: trio.run(churn, it.ns, 2, 10),
    )
    asyncio.run(it.close())


def test_two_loops_share_a_registration(run: Run, mode: aiougds.Mode) -> None:
    it = Opened()
    run(it.open(mode))

    async def read(half: int) -> None:
        part = it.reg[half * 8 * BLOCK : (half + 1) * 8 * BLOCK]
        for _ in range(300):
            assert await it.ns.read(part, offset=half * 8 * BLOCK) == 8 * BLOCK

    in_threads(lambda: run(read(0)), lambda: run(read(1)))
    assert it.reg.view[:] == pattern(16 * BLOCK)
    run(it.close())


def test_closed_by_another_loop_that_waits(run: Run, mode: aiougds.Mode) -> None:
    """aclose() on one loop waits for a read on another, and closes its channel."""
    it = Opened()
    run(it.open(mode))
    held = inject(it.ns, Fault.hold("read", count=1))
    begun, over = threading.Event(), threading.Event()
    results: list[int] = []

    async def read() -> None:
        task = asyncio.ensure_future(it.ns.read(it.reg, offset=0))
        await until(lambda: held.hits == 1)
        begun.set()
        results.append(await task)
        await asyncio.to_thread(over.wait)

    async def close() -> None:
        await asyncio.to_thread(begun.wait)
        closing = asyncio.ensure_future(it.ns.aclose())
        await asyncio.sleep(0.01)
        assert not closing.done()
        held.clear()
        await closing
        over.set()

    in_threads(lambda: run(read()), lambda: run(close()))
    assert results == [16 * BLOCK]
    assert it.ns.closed
    asyncio.run(it.reg.aclose())


def test_a_batch_belongs_to_its_loop(run: Run) -> None:
    it = Opened()
    run(it.open())

    async def elsewhere(batch: aiougds.Batch) -> None:
        for call in (batch.submit, lambda: batch.harvest()):
            with pytest.raises(WrongLoopError, match="one for each") as wrong:
                await call()  # type: ignore[misc]
            assert isinstance(wrong.value, RuntimeError)

    async def here() -> None:
        async with it.ns.batch(4) as batch:
            batch.read(it.reg[:BLOCK], offset=0)
            batch.submit()
            batch.read(it.reg[BLOCK : 2 * BLOCK], offset=0)
            await asyncio.to_thread(lambda: run(elsewhere(batch)))
            batch.submit()
            assert len(await batch.harvest(2)) == 2

    run(here())
    run(it.close())


def test_without_any_loop(run: Run) -> None:
    it = Opened()
    run(it.open())
    before = it.ns.controller.statistics().commands
    for work in (it.ns.read(it.reg, offset=0), it.ns.flush(), it.ns.read_many([])):
        with pytest.raises(WrongLoopError, match="no event loop runs"):
            work.send(None)
    assert it.ns.controller.statistics().commands == before
    run(it.close())


def test_debug_mode_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    it = Opened()

    async def main() -> None:
        # How long a callback may take is a matter of the machine's load.
        asyncio.get_running_loop().slow_callback_duration = 2.0
        await it.open("interrupt", cancel_grace_s=0.02)
        await it.read_all()
        await churn(it.ns, 1, 2)
        with (
            inject(it.ns, Fault.hold("read", count=1)),
            pytest.raises(TimeoutError),
        ):
            async with asyncio.timeout(0.01):
                await it.ns.read(it.reg, offset=0)
        await until(lambda: not it.ns.controller.quarantine)
        await it.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main(), debug=True)
        gc.collect()
    assert caplog.records == []


if sys.version_info >= (3, 12):

    def test_eager_tasks(mode: aiougds.Mode) -> None:
        it = Opened()

        async def main() -> None:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            await it.open(mode)
            async with asyncio.TaskGroup() as group:
                for i in range(16):
                    part = it.reg[i * BLOCK : (i + 1) * BLOCK]
                    group.create_task(it.ns.read(part, offset=i * BLOCK))
            assert it.reg.view[:] == pattern(16 * BLOCK)
            await it.close()

        asyncio.run(main())
