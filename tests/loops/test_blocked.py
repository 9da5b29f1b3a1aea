"""A loop that Python code blocks, and what of ours could block one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import pytest
import trio
import uvloop
from life.live import BLOCK, MIB, address, check_clean, pattern

import aiougds
from aiougds import Namespace
from aiougds.testing import counters

MODES: tuple[aiougds.Mode, ...] = ("adaptive", "interrupt", "poll", "inline")
HANG_S: Final = 1.0
BLOCKED_S: Final = 2.6  # the limit, the wait for an Abort, and as much again


async def blocked_with_io_out(runs: list[str]) -> None:
    """More than the queue holds is out in every mode; then nothing runs for long."""
    opened: list[Namespace] = []
    for mode in MODES:
        ns = await aiougds.open(
            address("latency=20ms"),
            mode=mode,
            depth=16,
            hang_timeout_s=HANG_S,
            admin_timeout_s=HANG_S,
        )
        opened.append(ns)
        await ns.write(pattern(64 * BLOCK), offset=0)
    regs = [ns.allocate(128 * BLOCK) for ns in opened]
    results: list[int] = []

    async def read(ns: Namespace, part: aiougds.RegistrationSlice, at: int) -> None:
        results.append(await ns.read(part, offset=at))

    async def write(ns: Namespace, part: aiougds.RegistrationSlice, at: int) -> None:
        results.append(await ns.write(part, offset=at))

    async def many(ns: Namespace, reg: aiougds.Registration) -> None:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
        results.append(sum(await ns.read_many(pairs)))

    async with anyio.create_task_group() as group:
        for ns, reg in zip(opened, regs, strict=True):
            for i in range(64):
                part = reg[i * BLOCK : (i + 1) * BLOCK]
                group.start_soon(read, ns, part, i * BLOCK)
            for i in range(64, 80):
                part = reg[i * BLOCK : (i + 1) * BLOCK]
                group.start_soon(write, ns, part, i * BLOCK)
            group.start_soon(many, ns, reg)
        for _ in range(3):  # trio runs what is ready in any order
            await anyio.lowlevel.checkpoint()
        assert sum(reg.inflight for reg in regs) > 4 * 16
        time.sleep(BLOCKED_S)
    assert sorted(results) == sorted(([BLOCK] * 80 + [64 * BLOCK]) * len(MODES))
    for ns, reg in zip(opened, regs, strict=True):
        stats = ns.controller.statistics()
        assert ns.controller.state == "live", ns.controller.state_reason
        assert (stats.aborts, stats.timeouts, stats.dropped) == (0, 0, 0)
        assert counters(ns).aborts == 0
        assert reg.view[: 64 * BLOCK] == pattern(64 * BLOCK)
        check_clean(ns)
        await reg.aclose()
        await ns.aclose(timeout_s=5)
    runs.append("well")


def test_blocked_for_longer_than_the_hang_limit() -> None:
    """The completions are there: done, not collected. Nothing is aborted or wedged."""
    runs: list[str] = []
    threads = [
        threading.Thread(target=asyncio.run, args=(blocked_with_io_out(runs),)),
        threading.Thread(target=uvloop.run, args=(blocked_with_io_out(runs),)),
        threading.Thread(target=trio.run, args=(blocked_with_io_out, runs)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == ["well"] * 3


async def longest_callback(work: Callable[[], Awaitable[object]]) -> float:
    """Return for how long the loop was blocked at most while that was awaited."""
    run, worst = asyncio.Handle._run, 0.0  # type: ignore[attr-defined]
    thread = threading.get_ident()

    def timed(handle: asyncio.Handle) -> None:
        nonlocal worst
        began = time.perf_counter()
        run(handle)
        if threading.get_ident() == thread:
            worst = max(worst, time.perf_counter() - began)

    asyncio.Handle._run = timed  # type: ignore[attr-defined]
    try:
        await asyncio.create_task(_awaited(work))
    finally:
        asyncio.Handle._run = run  # type: ignore[attr-defined]
    return worst


async def _awaited(work: Callable[[], Awaitable[object]]) -> object:
    return await work()


@pytest.mark.alone
def test_nothing_of_ours_blocks_the_loop() -> None:
    """Of several tries the best, since the machine has other work to do too."""
    spent: dict[str, list[float]] = {}

    async def once() -> None:
        async def step(name: str, work: Callable[[], Awaitable[object]]) -> None:
            spent.setdefault(name, []).append(await longest_callback(work))

        ns: Namespace
        reg: aiougds.Registration

        async def open_it() -> None:
            nonlocal ns
            ns = await aiougds.open(address("size=1GiB"))

        async def register() -> None:
            nonlocal reg
            reg = ns.register(memory)

        async def allocate() -> None:
            async with ns.allocate(64 * MIB):
                pass

        async def pin() -> None:
            await ns.read(memoryview(memory)[: 16 * MIB], offset=0)

        memory = bytearray(64 * MIB)
        await step("open", open_it)
        await step("register", register)
        await step("allocate", allocate)
        await step("read", lambda: ns.read(reg, offset=0))
        await step("pin", pin)
        await step("reset", ns.controller.reset)
        await step("smart log", ns.controller.smart_log)
        await step("unregister", reg.aclose)
        await step("close", ns.aclose)

    async def main() -> None:
        await once()
        while too_long() and len(spent["open"]) < 15:
            await once()

    def too_long() -> dict[str, float]:
        return {name: min(times) for name, times in spent.items() if min(times) > 0.01}

    asyncio.run(main())
    assert too_long() == {}
