"""Loops in loops, loops that move, and threads beside them: each waits in its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine

import anyio
import pytest
import trio
import uvloop
from life.live import BLOCK, address, check_clean, live

import aiougds
from aiougds import Namespace, Registration, WrongLoopError, blocking
from aiougds.testing import Fault, inject

Run = Callable[[Coroutine[object, object, object]], object]
NewLoop = Callable[[], asyncio.AbstractEventLoop]
MODES: tuple[aiougds.Mode, ...] = ("adaptive", "interrupt", "poll", "inline")
RUNS = pytest.mark.parametrize(
    "run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"]
)
LOOPS = pytest.mark.parametrize(
    "new_loop",
    [asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
)


async def read_each(ns: Namespace, part: aiougds.RegistrationSlice) -> None:
    """Read in every mode, one by one and as a set, and with a sleep at the device."""
    for mode in MODES:
        for _ in range(10):
            assert await ns.read(part, offset=0, mode=mode) == BLOCK
    for _ in range(10):
        assert await ns.read(part, offset=0) == BLOCK
        assert await ns.read_many([(part, 0)]) == [BLOCK]
    with inject(ns, Fault.delay(0.002, "read", count=1).on(slba=1, nlb=1)):
        assert await ns.read(part, offset=BLOCK) == BLOCK


@RUNS
def test_trio_as_a_guest_of_the_loop(run: Run) -> None:
    """Each side waits in its own manner, on its own device and on the other's."""

    async def guest(host_ns: Namespace, host_reg: Registration) -> str:
        async with live() as ns, ns.allocate(BLOCK) as reg:
            for _ in range(3):
                await read_each(ns, reg[:])
                await read_each(host_ns, host_reg[:BLOCK])
            with trio.move_on_after(0.01) as scope, inject(ns, Fault.hold("read")):
                await ns.read(reg, offset=0)
            assert scope.cancelled_caught
            while ns.controller.quarantine:
                await trio.sleep(0.001)
        return "guest is over"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with live() as ns, ns.allocate(2 * BLOCK) as reg:
            await read_each(ns, reg[BLOCK:])
            done = loop.create_future()
            trio.lowlevel.start_guest_run(
                guest,
                ns,
                reg,
                run_sync_soon_threadsafe=loop.call_soon_threadsafe,
                run_sync_soon_not_threadsafe=loop.call_soon,
                done_callback=done.set_result,
                host_uses_signal_set_wakeup_fd=True,
            )
            rounds = 0
            while not done.done():
                await read_each(ns, reg[BLOCK:])
                rounds += 1
            assert (await done).unwrap() == "guest is over"
            assert rounds
            await read_each(ns, reg[BLOCK:])

    run(main())


@RUNS
def test_a_loop_inside_a_trio_task(run: Run) -> None:
    """The task stands still meanwhile, but who waits inside waits in the inner loop."""

    async def main() -> None:
        async with live() as ns, ns.allocate(2 * BLOCK) as reg:
            for _ in range(3):
                await read_each(ns, reg[:BLOCK])
                run(read_each(ns, reg[BLOCK:]))
            with pytest.raises(WrongLoopError):
                blocking.open(address())

    trio.run(main)


@LOOPS
def test_a_loop_moves_from_thread_to_thread(new_loop: NewLoop) -> None:
    loop = new_loop()
    errors: list[BaseException] = []

    def work(coroutine: Coroutine[object, object, object]) -> None:
        try:
            loop.run_until_complete(coroutine)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    def elsewhere(coroutine: Coroutine[object, object, object]) -> None:
        thread = threading.Thread(target=work, args=(coroutine,))
        thread.start()
        thread.join()
        assert errors == []

    ns = loop.run_until_complete(_open())
    reg = ns.allocate(BLOCK)
    task = None
    for _ in range(5):
        elsewhere(read_each(ns, reg[:]))
        loop.run_until_complete(read_each(ns, reg[:]))
    # In flight while it moves: begun in one thread, and ended in another.
    with inject(ns, Fault.hold("read", count=1)) as held:

        async def start() -> asyncio.Task[int]:
            begun = asyncio.ensure_future(ns.read(reg, offset=0))
            while not held.hits:
                await asyncio.sleep(0.001)
            return begun

        task = loop.run_until_complete(start())
        held.clear()

        async def finish() -> None:
            assert await task == BLOCK

        elsewhere(finish())
    # Here, while no loop runs in this thread, other threads may use it too.
    asyncio.run(read_each(ns, reg[:]))

    async def end() -> None:
        check_clean(ns)
        await reg.aclose()
        await ns.aclose(timeout_s=5)

    elsewhere(end())
    loop.close()


async def _open() -> Namespace:
    return await aiougds.open(address())


@pytest.mark.anyio
async def test_blocking_calls_in_the_threads_of_a_loop() -> None:
    def work(slot: int) -> None:
        with ns.allocate(BLOCK) as reg:
            for _ in range(20):
                assert ns.read(reg, offset=slot * BLOCK) == BLOCK

    ns = await anyio.to_thread.run_sync(lambda: blocking.open(address()))
    async with anyio.create_task_group() as group:
        for slot in range(8):
            group.start_soon(anyio.to_thread.run_sync, work, slot)
    assert ns.controller.statistics().reads == 160
    await anyio.to_thread.run_sync(ns.close)


def test_many_threads_each_for_one_read() -> None:
    """Each makes a channel for a single call, and takes it along when it ends."""
    with blocking.open(address(), queues=3, batch_queues=0) as ns:
        results: list[int] = []

        def read(mode: aiougds.Mode) -> None:
            results.append(ns.read(bytearray(BLOCK), offset=0, mode=mode))

        for mode in MODES:
            for _ in range(10):
                threads = [
                    threading.Thread(target=read, args=(mode,)) for _ in range(5)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        assert results == [BLOCK] * 200
        stats = ns.controller.statistics()
        assert (stats.channels, stats.inflight, stats.mappings) == (0, 0, 0)
        assert stats.dropped == 0


def test_a_thread_ends_with_work_in_flight() -> None:
    """What it began is drained by the device's own thread, and its pair comes back."""
    with blocking.open(address(), queues=2, batch_queues=0) as ns:
        reg = ns.allocate(8 * BLOCK)
        with inject(ns, Fault.hold("read")) as held:

            def begin() -> None:
                batch = ns.batch(8)
                for i in range(8):
                    batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK)
                batch.submit()

            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()
            assert reg.inflight == 8
            with pytest.raises(aiougds.RegistrationBusyError):
                reg.close(timeout_s=0)
            while held.hits < 8:
                time.sleep(0.001)
        reg.close(timeout_s=5)
        stats = ns.controller.statistics()
        assert (stats.inflight, stats.quarantined) == (0, 0)
        assert stats.adopted == 1
        assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
        assert ns.controller.capabilities.queue == "own"
