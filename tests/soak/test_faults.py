"""A long run under random faults, cancels, time limits, disconnects and resets.

``AIOUGDS_SOAK_FAULT_OPS`` says how many operations. Each is accounted for exactly
once, what is read is what may be there, and in the end nothing is left over.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Final

import anyio
import pytest
from helpers.facade import Facade
from helpers.matrix import Loop, Place
from helpers.world import Opened, World
from soak.battered import BLOCK, BLOCKS, Worker
from soak.test_soak import weigh
from soak.weather import Weather

import aiougds
from aiougds import OpenKeywords, blocking
from aiougds.testing import counters

OPERATIONS: Final = int(os.environ.get("AIOUGDS_SOAK_FAULT_OPS", "40000"))
LOOPS: Final[tuple[Loop, ...]] = ("asyncio", "uvloop", "trio")
CLIENTS: Final = 6  # on each loop
THREADS: Final = 4
FIRST: Final = 0.3  # of the run: from there on memory is to stay what it is
RSS_GROWTH: Final = 24 << 20
HEAP_GROWTH: Final = 512 << 10
EXPECTED: Final = {
    "ok",
    "cancelled",
    "NVMeError",
    "MediaError",
    "PathError",
    "OperationTimeoutError",
    "OperationAbortedError",
    "ControllerWedgedError",
}
OPTIONS: Final[OpenKeywords] = {
    "queues": 6,
    "hang_timeout_s": 0.5,
    "cancel_grace_s": 0.02,
}


def address() -> str:
    """Return a controller with fewer queue pairs than there are loops and threads."""
    workers = max(len(LOOPS) * CLIENTS + 1, THREADS)
    return f"emu:?size={workers * BLOCKS * BLOCK}&mdts=2&queues=6&to=1"


class Fleet:
    """The clients of one controller, and the weather that it has."""

    def __init__(
        self, opened: Opened, loops: dict[Loop, list[Worker]], reset: Callable[[], None]
    ) -> None:
        self.controller: Opened = opened.controller
        self.reset = reset
        self.loops = loops
        self.hits: Counter[str] = Counter()
        self.resets = 0
        self.extra = 0

    @property
    def workers(self) -> list[Worker]:
        """All of them."""
        return [worker for some in self.loops.values() for worker in some]

    def give_up(self) -> None:
        """Have all clients stop."""
        for worker in self.workers:
            worker.over = True

    def run(self, operations: int, seed: int) -> None:
        """Have them do so many operations, under faults."""
        weather = Weather(self.controller, self.reset, seed, self.give_up)
        share = operations // len(self.workers)
        work: list[Callable[[], None]] = []
        for loop, workers in self.loops.items():
            world = World(Place(loop, "adaptive", True))
            if loop == "blocking":
                work += [
                    lambda w=worker, world=world: world.run(w.run(share))  # type: ignore[misc]
                    for worker in workers
                ]
            else:
                work.append(
                    lambda ws=workers, world=world: world.run(together(ws, share))  # type: ignore[misc]
                )
        weather.start()
        try:
            in_threads(work)
        finally:
            weather.stop()
        self.hits += weather.hits
        self.resets += weather.resets
        self.extra += weather.extra


async def together(workers: list[Worker], operations: int) -> None:
    """Run the clients of one loop."""
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run, operations)


def visit(worker: Worker, over: threading.Event) -> None:
    """One loop after another: each ends with the client's operations in flight."""

    async def stay() -> None:
        task = asyncio.create_task(worker.run(1 << 40))
        await asyncio.wait({task}, timeout=worker.random.uniform(1e-3, 30e-3))
        if task.done():
            task.result()

    while not over.is_set():
        asyncio.run(stay())


def in_threads(work: list[Callable[[], None]]) -> None:
    """Run all at once; raise the first error."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def settled(controller: Opened) -> None:
    """Wait until housekeeping has drained what ended loops and threads left."""
    end = time.monotonic() + 20
    while controller.quarantine or controller.statistics().inflight:
        assert time.monotonic() < end, controller.statistics()
        time.sleep(1e-3)


def check(fleet: Fleet) -> Counter[str]:
    """Nothing is left of all that; returns how operations ended."""
    controller = fleet.controller
    seen, left = counters(controller), controller.statistics()
    assert seen.iommu_faults == 0
    assert seen.protocol_errors == 0
    assert controller.state == "live"
    assert controller.quarantine == ()
    assert (left.inflight, left.quarantined) == (0, 0)
    assert left.resets == fleet.resets
    assert left.unknown_cids <= fleet.extra
    ended: Counter[str] = Counter()
    for worker in fleet.workers:
        assert not worker.open
        ended += worker.ended
        odd = set(worker.ended) - EXPECTED
        assert not odd, [worker.examples[word] for word in odd]
    return ended


def total(ended: Counter[str], hits: Counter[str], resets: int, took_s: float) -> str:
    """Return the numbers of a run in a few lines."""
    return (
        f"{ended.total()} operations in {took_s:.1f} s, {resets} resets\n"
        f"  ended: {dict(ended.most_common())}\n"
        f"  faults: {dict(hits.most_common())}"
    )


async def finish(workers: list[Worker]) -> None:
    for worker in workers:
        await worker.finish()


async def close(workers: list[Worker]) -> None:
    for worker in workers:
        await worker.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_faults_on_loops(capsys: pytest.CaptureFixture[str]) -> None:
    operations = OPERATIONS * 3 // 4
    start = time.monotonic()

    async def opened() -> aiougds.Namespace:
        return await aiougds.open(address(), **OPTIONS)

    ns = asyncio.run(opened())
    workers = {
        loop: [Worker(ns, number * CLIENTS + client) for client in range(CLIENTS)]
        for number, loop in enumerate(LOOPS)
    }
    visitor = Worker(ns, len(LOOPS) * CLIENTS, cancels=False)  # its loops do
    fleet = Fleet(ns, workers, lambda: asyncio.run(ns.controller.reset()))

    def leg(count: int, seed: int) -> tuple[int, int, int]:
        over = threading.Event()

        def others() -> None:
            try:
                fleet.run(count, seed)
            finally:
                over.set()

        in_threads([others, lambda: visit(visitor, over)])
        settled(ns.controller)
        asyncio.run(finish([*fleet.workers, visitor]))
        return weigh()

    tracemalloc.start()
    try:
        before = leg(int(operations * FIRST), 1)
        after = leg(int(operations * (1 - FIRST)), 2)
    finally:
        tracemalloc.stop()
    ended = check(fleet) + visitor.ended
    asyncio.run(close([*fleet.workers, visitor]))
    assert ns.controller.statistics().mappings == len(ns._device.pool)
    asyncio.run(ns.aclose(timeout_s=5))
    with capsys.disabled():
        print("\n" + total(ended, fleet.hits, fleet.resets, time.monotonic() - start))
    assert ended.total() >= operations * 0.99
    check_growth(before, after)


def check_growth(before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    """Memory and descriptors are what they were."""
    grown = [now - then for then, now in zip(before, after, strict=True)]
    assert grown[0] < RSS_GROWTH, f"{grown[0]} bytes more resident memory"
    assert grown[1] < HEAP_GROWTH, f"{grown[1]} bytes more of Python objects"
    assert grown[2] <= 0, f"{grown[2]} more descriptors"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_faults_in_threads(capsys: pytest.CaptureFixture[str]) -> None:
    operations = OPERATIONS // 4
    start = time.monotonic()
    ns = blocking.open(address(), **OPTIONS)
    workers = [Worker(Facade(ns), slot, blocking=True) for slot in range(THREADS)]
    fleet = Fleet(Facade(ns), {"blocking": workers}, ns.controller.reset)
    world = World(Place("blocking", "adaptive", True))

    def leg(count: int, seed: int) -> tuple[int, int, int]:
        fleet.run(count, seed)
        gc.collect()
        settled(fleet.controller)
        world.run(finish(workers))
        return weigh()

    tracemalloc.start()
    try:
        before = leg(int(operations * FIRST), 3)
        after = leg(int(operations * (1 - FIRST)), 4)
    finally:
        tracemalloc.stop()
    ended = check(fleet)
    world.run(close(workers))
    assert ns.controller.statistics().mappings == len(ns._device.pool)
    ns.close(timeout_s=5)
    with capsys.disabled():
        print("\n" + total(ended, fleet.hits, fleet.resets, time.monotonic() - start))
    assert ended.total() >= operations * 0.99
    check_growth(before, after)
