"""One scenario in one place: run it, and look at everything afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from faults.scenario import Scenario
from faults.workload import BEFORE, BLOCK, BLOCKS, STRUCK, Call, Neighbours, Workload
from helpers.matrix import Place
from helpers.world import Opened, World

from aiougds import BrokenError, ControllerBusyError, DeviceRemovedError
from aiougds.testing import FaultHandle, counters, inject

WAIT_S: Final = 20.0
PAUSE_S: Final = 0.002
# A machine that is busy with other tests must not wedge what is healthy.
PATIENT: Final = {"hang_timeout_s": 15.0, "cancel_grace_s": 15.0}


class Ends(NamedTuple):
    """What a case has shown."""

    struck: frozenset[str]
    calm: frozenset[str]
    neighbours: frozenset[str]


class Case:
    """A scenario in a place."""

    def __init__(self, scenario: Scenario, place: Place, folder: Path) -> None:
        self.scenario = scenario
        self.place = place
        self.world = World(place)
        self.blocking = place.loop == "blocking"
        self.path = folder / f"{scenario.name}-{place}".replace(" ", "-")
        self.handles: list[FaultHandle] = []
        self.workload_over = False
        self._scope: anyio.CancelScope | None = None
        self.ns: Opened = None
        self.controller: Opened = None

    def __str__(self) -> str:
        return f"{self.scenario}, {self.place}"

    def run(self) -> Ends:
        """Run it in this thread."""
        return self.world.run(self._main())

    # ---- for strikes ----

    async def until(
        self, condition: Callable[[], bool], within_s: float = WAIT_S
    ) -> None:
        """Wait for a state that is told by nothing."""
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, "the awaited state did not come"
            await self.pause()

    async def pause(self) -> None:
        """Let the others run for a little."""
        if self.blocking:
            time.sleep(PAUSE_S)
        else:
            await anyio.sleep(PAUSE_S)

    def hits(self) -> int:
        """Return how often the faults acted."""
        return sum(handle.hits for handle in self.handles)

    def clear(self) -> None:
        """End all faults."""
        for handle in self.handles:
            handle.clear()

    def cancel(self) -> None:
        """Cancel all that waits, but the neighbours."""
        assert self._scope is not None
        self._scope.cancel()

    # ---- at once ----

    async def _together(
        self, calls: Sequence[Call], neighbours: Neighbours | None
    ) -> None:
        if self.blocking:
            await self._in_threads(calls, neighbours)
            return
        async with anyio.create_task_group() as beside:
            if neighbours is not None:
                for call in neighbours.calls(self.pause):
                    beside.start_soon(call)
            beside.start_soon(self.scenario.strike, self)
            try:
                with anyio.CancelScope() as self._scope:
                    async with anyio.create_task_group() as group:
                        for call in calls:
                            group.start_soon(call)
            finally:
                self._over(neighbours)

    def _over(self, neighbours: Neighbours | None) -> None:
        self.workload_over = True
        if neighbours is not None:
            neighbours.over = True

    async def _in_threads(
        self, calls: Sequence[Call], neighbours: Neighbours | None
    ) -> None:
        errors: list[BaseException] = []

        def work(call: Call) -> None:
            try:
                self.world.run(call())  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        def start(call: Call) -> threading.Thread:
            thread = threading.Thread(target=work, args=(call,), daemon=True)
            thread.start()
            return thread

        beside = []
        if neighbours is not None:
            beside = [start(call) for call in neighbours.calls(self.pause)]
        threads = [start(call) for call in calls]
        beside.append(start(lambda: self.scenario.strike(self)))
        for thread in threads:
            thread.join()
        self._over(neighbours)
        for thread in beside:
            thread.join()
        if errors:
            raise errors[0]

    # ---- the course of it ----

    def _options(self) -> dict[str, object]:
        return {"mode": self.place.mode, **PATIENT, **self.scenario.options}

    def _address(self) -> str:
        path = self.path if self.scenario.after == "removed" else ""
        emu = {"size": BLOCKS * BLOCK, "mdts": 1, **self.scenario.emu}
        return self.world.address(path, **emu)

    async def _main(self) -> Ends:
        async with self.world.opening(self._address(), **self._options()) as ns:
            self.ns, self.controller = ns, ns.controller
            try:
                return await self._struck()
            finally:
                # After a failure too: it shall not be the next case's problem.
                if not ns.closed:
                    self.clear()
                    with self._shield():
                        await self.controller.aclose(timeout_s=1, force=True)

    def _shield(self) -> AbstractContextManager[object]:
        return nullcontext() if self.blocking else anyio.CancelScope(shield=True)

    async def _struck(self) -> Ends:
        ns, scenario = self.ns, self.scenario
        reg = ns.allocate(BLOCKS * BLOCK)
        beside = ns.allocate(16 * BLOCK)
        await ns.write(BEFORE, offset=0, fua=True)
        if scenario.first is not None:
            await scenario.first(self)
        for fault in scenario.faults:
            self.handles.append(inject(ns, fault.on(slba=0, nlb=STRUCK)))
        for fault in scenario.elsewhere:
            self.handles.append(inject(ns, fault))
        workload = Workload(ns, reg, scenario.timeout_s)
        neighbours = Neighbours(ns, beside)
        await self._together(workload.calls(), neighbours)
        workload.ledger.check()
        ends = Ends(
            frozenset(workload.ledger.words(workload.struck())),
            frozenset(workload.ledger.words(workload.calm())),
            frozenset(neighbours.ends),
        )
        self._check_words(ends)
        assert not self.handles or self.hits(), "the fault did not strike"
        await self._check_state()
        if scenario.after == "removed":
            stored = await self._read_anew(reg, beside)
        else:
            await self._repair()
            stored = await self._read_here()
        workload.check_stored(stored, loses=scenario.loses)
        neighbours.check_stored(stored, loses=scenario.loses)
        if scenario.after != "removed":
            await self._healthy_round(reg)
            await reg.aclose(timeout_s=WAIT_S)
            await beside.aclose(timeout_s=WAIT_S)
            await self._check_nothing_left()
            await ns.aclose(timeout_s=WAIT_S)
        device = ns._device
        assert device.ended
        assert not device.channels
        assert not device.limbo
        return ends

    def _check_words(self, ends: Ends) -> None:
        scenario = self.scenario
        assert ends.struck <= {*scenario.sees, *scenario.may}, ends.struck
        assert ends.calm <= set(scenario.calm), f"calm items: {ends.calm}"
        assert ends.neighbours <= set(scenario.neighbours), (
            f"neighbours: {ends.neighbours}"
        )

    async def _check_state(self) -> None:
        scenario, controller = self.scenario, self.controller
        await self.until(lambda: controller.state == scenario.after)
        assert scenario.reason in controller.state_reason
        assert counters(controller).iommu_faults == 0
        if scenario.fatal:  # nothing is sent to it any more
            wanted = DeviceRemovedError if scenario.after == "removed" else BrokenError
            try:
                await self.ns.read(bytearray(BLOCK), offset=0)
            except wanted:
                return
            raise AssertionError("a read on a controller that is down went through")

    async def _repair(self) -> None:
        """Bring it back to life; afterwards nothing is in quarantine."""
        self.clear()
        if self.scenario.mend is not None:
            await self.scenario.mend(self)
        elif self.scenario.fatal:
            await self.until(self._quarantine_is_listed)
            await self.controller.reset()
        await self.until(lambda: not self.controller.quarantine)
        assert self.controller.state == "live"
        assert self.controller.state_reason == ""

    def _quarantine_is_listed(self) -> bool:
        """Each queue gives up what it has when it hears of the failure."""
        stuck = self.controller.quarantine
        assert all(entry.queue_id > 0 for entry in stuck)
        return len(stuck) == self.controller.statistics().quarantined

    async def _read_here(self) -> bytes:
        memory = bytearray(BLOCKS * BLOCK)
        assert await self.ns.read(memory, offset=0) == len(memory)
        return bytes(memory)

    async def _read_anew(self, reg: Opened, beside: Opened) -> bytes:
        """It is gone, and what it held is explained; another one has the data."""
        try:
            await self.controller.reset()
        except BrokenError:
            pass
        else:
            raise AssertionError("a controller that is gone was reset")
        try:
            await self.ns.aclose(timeout_s=1)
        except ControllerBusyError as error:
            if "removed" not in str(error) or not self.controller.quarantine:
                raise
            await self.controller.aclose(force=True)
        await reg.aclose(timeout_s=0)
        await beside.aclose(timeout_s=0)
        memory = bytearray(BLOCKS * BLOCK)
        async with self.world.opening(self.world.address(self.path)) as ns:
            assert await ns.read(memory, offset=0) == len(memory)
            assert counters(ns).iommu_faults == 0
        return bytes(memory)

    async def _healthy_round(self, reg: Opened) -> None:
        """All of it once more: nothing of before reaches anybody."""
        again = Workload(self.ns, reg)
        calls = again.calls()
        if self.blocking:
            for call in calls:
                await call()
        else:
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(call)
        again.ledger.check()
        assert set(again.ledger.ends.values()) == {"ok"}, again.ledger.ends
        again.check_stored(await self._read_here())

    async def _check_nothing_left(self) -> None:
        """No command, no mapping, no quarantine; channels of the living only."""
        controller = self.controller
        seen, left = counters(controller), controller.statistics()
        assert (seen.iommu_faults, seen.protocol_errors) == (0, 0), seen
        assert (left.inflight, left.quarantined) == (0, 0)
        assert controller.quarantine == ()
        assert bool(left.unknown_cids) == self.scenario.unknown_cids
        assert left.mappings == len(self.ns._device.pool)
        # Those of threads that ended are drained and freed by housekeeping.
        await self.until(lambda: controller.statistics().channels <= 1)
