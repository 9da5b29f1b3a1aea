"""Open namespaces whose end is checked: no fault, no leak, nothing left in flight."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Unpack

import anyio
import pytest

import aiougds
from aiougds import Namespace, OpenKeywords, OperationTimeoutError
from aiougds.testing import counters

BLOCK: Final = 4096
MIB: Final = 1 << 20


def address(query: str = "", *, step: int = 1) -> str:
    """Return the address of a 16 MiB controller in memory, unless told otherwise."""
    size = "" if "size=" in query or "namespaces=" in query else "size=16MiB&"
    return f"emu:?{size}step={step}{'&' if query else ''}{query}"


@asynccontextmanager
async def live(
    query: str = "", *, step: int = 1, **options: Unpack[OpenKeywords]
) -> AsyncIterator[Namespace]:
    """Open a namespace; at the end it must be idle, and close without a wait."""
    ns = await aiougds.open(address(query, step=step), **options)
    try:
        yield ns
        if not ns.closed:
            check_clean(ns)
        await ns.aclose(timeout_s=5)
    finally:
        # After a failure: it shall not be the next test's problem.
        with anyio.CancelScope(shield=True):
            await ns.controller.aclose(timeout_s=1, force=True)


def check_clean(ns: Namespace) -> None:
    """Assert that nothing is left: no operation, no mapping, no stray access."""
    seen = counters(ns)
    assert seen.iommu_faults == 0
    assert seen.protocol_errors == 0
    stats = ns.controller.statistics()
    assert stats.unknown_cids == 0
    assert stats.inflight == 0
    assert stats.quarantined == 0
    assert ns.controller.quarantine == ()


async def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    """Wait for a state that is told by nothing; fail when it does not come."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the awaited state did not come"
        await anyio.sleep(0.001)


# What has to be somewhere before its time is over has more of it, if need be.
PATIENT_S: Final = (0.2, 1.0, 4.0, 16.0)


async def given_up(
    ns: Namespace, call: Callable[[float], Awaitable[object]]
) -> OperationTimeoutError:
    """Have an operation time out that is at the device by then.

    One that a busy machine did not send in time was never there: once more.
    """
    before = len(ns.controller.quarantine)
    for timeout_s in PATIENT_S:
        with pytest.raises(OperationTimeoutError) as over:
            await call(timeout_s)
        if len(ns.controller.quarantine) > before:
            return over.value
    raise AssertionError("it was never sent in time")


async def cancelled_when(
    condition: Callable[[], bool], call: Callable[[], Awaitable[object]]
) -> bool:
    """Await a call, cancel it once the condition holds; whether it raised for that."""
    caught = False

    async def work() -> None:
        nonlocal caught
        with scope:
            await call()
        caught = scope.cancelled_caught

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await until(condition)
        scope.cancel()
    return caught


def waited_for_processor() -> dict[str, float]:
    """Seconds that each thread of this process was ready to run, and did not."""
    waits: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            waits[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except OSError:  # it has just ended, or the kernel does not count
            continue
    return waits


class Clock:
    """Seconds since it was made."""

    __slots__ = ("_start", "_waits")

    # What goes wrong is later than this; a busy machine seldom is.
    MOST_FORGIVEN_S = 2.0

    def __init__(self) -> None:
        self._waits = waited_for_processor()
        self._start = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def ours(self) -> float:
        """As :attr:`elapsed`, without what our threads waited for a processor."""
        elapsed = self.elapsed
        waits = waited_for_processor()
        waited = sum(wait - self._waits.get(name, 0) for name, wait in waits.items())
        return elapsed - min(waited, self.MOST_FORGIVEN_S)

    def within(self, least: float, most: float) -> bool:
        """Whether it took so long; not more is for what is ours."""
        elapsed, ours = self.elapsed, self.ours
        if least <= elapsed and ours < most:
            return True
        raise AssertionError(
            f"took {elapsed:.3f} s, not {least} s to {most} s;"
            f" without waiting for a processor {ours:.3f} s"
        )


def pattern(nbytes: int, seed: int = 1) -> bytes:
    """Return bytes that differ from block to block."""
    out = bytearray()
    for block in range(-(-nbytes // 512)):
        out += (block * 2654435761 + seed).to_bytes(8, "little", signed=False) * 64
    return bytes(out[:nbytes])
