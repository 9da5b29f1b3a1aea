"""Fifty resets under loops, threads and batches at work: each operation ends once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, address, until

import aiougds
from aiougds import (
    BatchError,
    ClosedError,
    ControllerBusyError,
    ControllerWedgedError,
    Mode,
    Namespace,
    OperationAbortedError,
    Registration,
    blocking,
)
from aiougds.testing import Fault, counters, inject

RESETS: Final = 50
BLOCKS: Final = 64
CELLS = [
    # (mode, stepping, shadow doorbells): every pair of two of them
    ("adaptive", 1, 1),
    ("adaptive", 0, 0),
    ("interrupt", 1, 0),
    ("interrupt", 0, 1),
    ("poll", 1, 1),
    ("poll", 0, 0),
    ("inline", 1, 0),
    ("inline", 0, 1),
]


def block(number: int) -> bytes:
    return (number + 1).to_bytes(8, "little") * (BLOCK // 8)


class Work:
    """What loops and threads do to one controller until they are told to stop."""

    def __init__(self, ns: Namespace) -> None:
        self.ns = ns
        self.stop = False
        self.ends: Counter[str] = Counter()
        self.errors: list[BaseException] = []

    def note(self, error: BaseException) -> None:
        kind = "aborted" if isinstance(error, OperationAbortedError) else "refused"
        assert isinstance(error, (OperationAbortedError, ControllerWedgedError)), error
        self.ends[kind] += 1

    def check(self, view: memoryview, number: int) -> None:
        """An operation of another may not have ended this one: its bytes are here."""
        assert view == block(number), number
        view[:] = bytes(BLOCK)
        self.ends["done"] += 1

    async def single(self, reg: Registration, first: int) -> None:
        turn = first
        while not self.stop:
            turn += 1
            number = turn % BLOCKS
            part = reg[first * BLOCK : (first + 1) * BLOCK]
            try:
                assert await self.ns.read(part, offset=number * BLOCK) == BLOCK
                self.check(part.view, number)
            except (OperationAbortedError, ControllerWedgedError) as error:
                self.note(error)
                part.view[:] = bytes(BLOCK)
            await asyncio.sleep(0)

    async def many(self, reg: Registration) -> None:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(BLOCKS)]
        while not self.stop:
            results: list[object] = []
            try:
                results += await self.ns.read_many(pairs)
            except BatchError as error:
                results += error.results
            except (OperationAbortedError, ControllerWedgedError) as error:
                self.note(error)
            for (part, at), result in zip(pairs, results, strict=False):
                if isinstance(result, BaseException):
                    self.note(result)
                else:
                    self.check(part.view, at // BLOCK)
            reg.view[:] = bytes(len(reg))
            await asyncio.sleep(0)

    async def on_a_loop(self) -> None:
        async with (
            self.ns.allocate(4 * BLOCK) as own,
            self.ns.allocate(BLOCKS * BLOCK) as other,
            asyncio.TaskGroup() as group,
        ):
            for i in range(4):
                group.create_task(self.single(own, i))
            group.create_task(self.many(other))

    def in_a_thread(self) -> None:
        ns = blocking.Namespace(self.ns)
        turn = 0
        with ns.allocate(BLOCK) as reg:
            while not self.stop:
                turn += 1
                number = turn % BLOCKS
                try:
                    assert ns.read(reg, offset=number * BLOCK) == BLOCK
                    self.check(reg.view, number)
                except (OperationAbortedError, ControllerWedgedError) as error:
                    self.note(error)
                    reg.view[:] = bytes(BLOCK)

    def guarded(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "step", "shadow"), CELLS)
def test_fifty_resets_under_load(mode: Mode, step: int, shadow: int) -> None:
    async def main() -> None:
        where = address(f"shadow={shadow}&queues=6", step=step)
        async with aiougds.open(where, mode=mode, queues=6) as ns:
            assert ns.controller.capabilities.shadow_doorbells == bool(shadow)
            for i in range(BLOCKS):
                await ns.write(block(i), offset=i * BLOCK)
            work = Work(ns)
            threads = [
                work.guarded(lambda: asyncio.run(work.on_a_loop())),
                work.guarded(work.in_a_thread),
                work.guarded(work.in_a_thread),
            ]
            here = asyncio.create_task(work.on_a_loop())
            for number in range(RESETS):
                done = work.ends["done"]
                end = time.monotonic() + 10
                while work.ends["done"] < done + 20 and not work.errors:
                    assert time.monotonic() < end
                    await asyncio.sleep(0)
                await ns.controller.reset()
                assert ns.controller.statistics().resets == number + 1
            work.stop = True
            await here
            for thread in threads:
                await asyncio.to_thread(thread.join, 20)
                assert not thread.is_alive()
            assert work.errors == []
            stats, seen = ns.controller.statistics(), counters(ns)
            assert (stats.inflight, stats.quarantined, stats.unknown_cids) == (0, 0, 0)
            assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
            assert ns.controller.capabilities.shadow_doorbells == bool(shadow)
            assert work.ends["aborted"] + work.ends["refused"] > 0
            for i in range(BLOCKS):
                memory = bytearray(BLOCK)
                assert await ns.read(memory, offset=i * BLOCK) == BLOCK
                assert memory == block(i)
            assert ns.controller.statistics().dropped == 0

    asyncio.run(main())


@pytest.mark.anyio
@pytest.mark.few
async def test_resets_that_meet(live: Live) -> None:
    """Each comes to its end; the controller lives after the last."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ns.controller.reset)
        assert ns.controller.statistics().resets == 5
        assert ns.controller.state == "live"
        assert await ns.read(reg, offset=0) == BLOCK


@pytest.mark.anyio
@pytest.mark.few
async def test_a_cancelled_reset_goes_on_to_its_end(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        async with anyio.create_task_group() as group:
            group.start_soon(ns.controller.reset)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert ns.controller.state == "live"
        assert ns.controller.statistics().resets <= 1
        assert await ns.read(reg, offset=0) == BLOCK


@pytest.mark.anyio
@pytest.mark.few
async def test_closed_during_a_reset(live: Live) -> None:
    """Refused and nothing changed, or closed before or after it: never within."""

    async def reset(ns: Namespace) -> None:
        with contextlib.suppress(ClosedError):  # closing was quicker
            await ns.controller.reset()

    for turn in range(20):
        timeout_s = None if turn % 2 else 0
        async with live() as ns:
            await ns.flush()
            async with anyio.create_task_group() as group:
                group.start_soon(reset, ns)
                for _ in range(turn % 5):
                    await anyio.lowlevel.checkpoint()
                try:
                    await ns.aclose(timeout_s)
                except ControllerBusyError:
                    assert timeout_s == 0
            if not ns.closed:
                await ns.flush()


@pytest.mark.anyio
@pytest.mark.few
async def test_identifiers_that_are_used_again(live: Live) -> None:
    """What completes twice, late, or for another queue never ends another's read."""
    async with (
        live(depth=2, batch_depth=2, queues=2, cancel_grace_s=0.01) as ns,
        ns.allocate(4 * BLOCK) as reg,
    ):
        for i in range(BLOCKS):
            await ns.write(block(i), offset=i * BLOCK)
        for fault in ("dup_cqe", "bad_cid", "bad_sqid"):
            with inject(ns, Fault(fault, "read").on(skip=3)):  # type: ignore[arg-type]
                for i in range(2 * BLOCKS):
                    reg.view[:BLOCK] = bytes(BLOCK)
                    await ns.read(reg[:BLOCK], offset=i % BLOCKS * BLOCK)
                    assert reg.view[:BLOCK] == block(i % BLOCKS)
        unknown = ns.controller.statistics().unknown_cids
        assert unknown > BLOCKS
        # Given up, aborted late, and the identifiers used on: by reads of others.
        for i in range(8):
            with inject(ns, Fault.hold("read", count=1)) as held:
                with anyio.move_on_after(0.01):
                    await ns.read(reg[BLOCK : 2 * BLOCK], offset=0)
                held.clear()
            await until(lambda: not ns.controller.quarantine)
            await ns.read(reg[:BLOCK], offset=i * BLOCK)
            assert reg.view[:BLOCK] == block(i)
        # Counted, never delivered; and a reset does not bring them back.
        await ns.controller.reset()
        await ns.read(reg[:BLOCK], offset=9 * BLOCK)
        assert reg.view[:BLOCK] == block(9)
        assert ns.controller.statistics().unknown_cids >= unknown
        seen = counters(ns)
        assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
        await reg.aclose()
        await ns.aclose()
