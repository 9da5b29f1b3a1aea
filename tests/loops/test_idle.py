"""An idle or closed controller costs nothing: no reader, no spinning, no leak."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

import pytest
import uvloop
from life.live import BLOCK, address, live

import aiougds

IDLE_S = 0.6


def readers(loop: asyncio.AbstractEventLoop) -> int:
    """Return how many descriptors a selector loop watches."""
    return len(loop._selector.get_map())  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll", "inline"])
def test_no_reader_is_left(mode: aiougds.Mode) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = readers(loop)
        async with live(mode=mode) as ns:
            await ns.read(bytearray(BLOCK), offset=0)
            assert readers(loop) == before + 1
        assert readers(loop) == before

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "inline", "poll"])
@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_idling_burns_no_cpu(
    runner: object, mode: aiougds.Mode, *, closed: bool
) -> None:
    async def busy_then_idle() -> float:
        async with live(mode=mode) as ns, ns.allocate(64 * BLOCK) as reg:
            pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
            for _ in range(20):
                await asyncio.gather(*(ns.read(p, offset=o) for p, o in pairs))
                await ns.read_many(pairs)
            if not closed:
                return await idle()
        return await idle()

    async def idle() -> float:
        gc.collect()
        await asyncio.sleep(0.05)  # what was woken goes to sleep
        before = time.process_time()
        await asyncio.sleep(IDLE_S)
        return time.process_time() - before

    assert callable(runner)
    used = runner(busy_then_idle())
    assert used < 0.02 * IDLE_S, f"{used / IDLE_S:.1%} of a core while idle"


def test_a_device_that_is_to_stay_awake_does() -> None:
    """What keeps the times of a model to a microsecond, and is asked for only."""
    with aiougds.blocking.open("emu:?size=1MiB&threads=2&awake=1&step=0") as ns:
        before, end = time.process_time(), time.monotonic() + 20
        # whatever runs here has its share; one that slept would never take so much
        while time.process_time() - before < 0.05:
            assert time.monotonic() < end
            time.sleep(0.1)
        ns.read(bytearray(BLOCK), offset=0)
    before = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - before < 0.02


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def open_and_close(count: int) -> None:
    where = address("size=1MiB&threads=1&queues=3")
    memory = bytearray(BLOCK)
    for _ in range(count):
        async with aiougds.open(where, queues=3) as ns:
            await ns.read(memory, offset=0)


@pytest.mark.timeout(120)
def test_500_controllers_leave_nothing() -> None:
    async def main() -> None:
        await open_and_close(50)  # caches fill
        gc.collect()
        before, threads, native = descriptors(), *thread_counts()
        memory = resident()
        await open_and_close(500)
        gc.collect()
        assert descriptors() == before
        # The loop's own pool, in which controllers are opened, may still have grown.
        pool = (os.cpu_count() or 1) + 4
        now, native_now = thread_counts()
        assert now <= threads + pool
        assert native_now - now == native - threads
        assert resident() - memory < 8 << 20

    asyncio.run(main())


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def thread_counts() -> tuple[int, int]:
    return threading.active_count(), native_threads()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_50_runs_leave_nothing(runner: object) -> None:
    """A loop each, over one controller: channels come and go with them."""
    assert callable(runner)
    ns = asyncio.run(_opened())
    memory = bytearray(BLOCK)

    async def one() -> None:
        assert await ns.read(memory, offset=0) == BLOCK

    for _ in range(5):
        runner(one())
    gc.collect()
    before = descriptors()
    for _ in range(50):
        runner(one())
    gc.collect()
    assert descriptors() <= before
    assert ns.controller.statistics().channels <= 1
    asyncio.run(ns.aclose())


async def _opened() -> aiougds.Namespace:
    return await aiougds.open(address())
