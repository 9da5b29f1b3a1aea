"""The experiments of the paper (sections 4.1 to 4.5), each a function of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

from aiougds.cli._common import run_on
from aiougds.cli._load import Plan
from aiougds.cli._suites.fresh import (
    FIRST_BYTES,
    FreshError,
    import_ms,
    in_fresh_process,
)
from aiougds.cli._suites.measure import compare
from aiougds.cli._suites.peers import Peer
from aiougds.cli._suites.place import device
from aiougds.cli._suites.record import SuiteRecord, cell
from aiougds.cli._suites.scene import opened
from aiougds.cli._suites.show import note
from aiougds.cli._suites.sides import OURS
from aiougds.cli._suites.stream import stream
from aiougds.cli._suites.turns import turns
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds.cli._suites.settings import Rw, Settings
    from aiougds.cli._suites.sides import Place, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One suite being run: by whom, where, and what comes of it."""

    settings: Settings
    place: Place
    sides: Sequence[Side]
    record: SuiteRecord
    failed: dict[str, str]

    def plan(self, size: int, tasks: int, rw: Rw) -> Plan:
        """Return a load of single awaits at random offsets."""
        return Plan(
            size=size,
            depth=tasks,
            batch=0,
            rw=rw,
            mix=0,
            pattern="random",
            span=self.place.span,
            duration_s=self.settings.pace.duration_s,
            warmup_s=0,
            seed=self.settings.seed,
        )


def look(run: Run) -> None:
    """Describe the device, for suites whose work is in other processes."""

    async def work() -> int:
        async with opened(run.settings, run.place) as ns:
            run.record.device = device(ns, run.place)
        return 0

    run_on(run.settings.loop, work)


def setup(run: Run) -> None:
    """Fresh processes, by turns."""
    look(run)
    note("setup: fresh processes")
    place = replace(run.place, writes=False)

    def measure(side: Side) -> Mapping[str, float]:
        module = side.module if isinstance(side, Peer) else OURS
        found: Mapping[str, float] = in_fresh_process("setup", side, place)
        return {"import": import_ms(module or "asyncio"), **found}

    rounds = by_processes(run, measure)
    run.record.cells += [
        cell(name, "read", found, size=FIRST_BYTES) for name, found in rounds.items()
    ]


def by_processes(
    run: Run, measure: Callable[[Side], Mapping[str, float]]
) -> dict[str, list[Mapping[str, float]]]:
    """Return what processes found, side by side; a peer that fails is left out."""
    by_name = {side.name: side for side in run.sides if side.name not in run.failed}
    rounds: dict[str, list[Mapping[str, float]]] = {}
    for name in turns(list(by_name), run.settings.pace.repeat):
        if name in run.failed:
            continue
        try:
            rounds.setdefault(name, []).append(measure(by_name[name]))
        except FreshError as exc:
            if by_name[name].ours:
                raise
            run.failed[name] = f"failed: {exc}"
            rounds.pop(name, None)
    return {name: rounds[name] for name in by_name if name in rounds}


def sync(run: Run) -> None:
    """Awaits one after another, by some tasks at once, over a grid."""
    grid = run.settings.grid
    _in_process(run, product(run.settings.rw, grid.sync_sizes, grid.tasks))


def poll(run: Run) -> None:
    """The same by one task, for the processor time beside the latency."""
    _in_process(run, product(run.settings.rw, run.settings.grid.poll_sizes, (1,)))


def _in_process(run: Run, shapes: product[tuple[Rw, int, int]]) -> None:
    async def work() -> int:
        async with opened(run.settings, run.place) as ns:
            run.record.device = device(ns, run.place)
            for rw, size, tasks in shapes:
                note(f"{run.record.name}: {rw} {as_bytes(size)}, {tasks} at once")
                run.record.cells += await compare(
                    run.sides,
                    run.place,
                    ns,
                    run.plan(size, tasks, rw),
                    run.settings.pace,
                    run.failed,
                )
        return 0

    run_on(run.settings.loop, work)


def batch(run: Run) -> None:
    """A fixed volume in batches, each time by a fresh process."""
    look(run)
    grid = run.settings.grid
    for rw, size, count in product(run.settings.rw, grid.batch_sizes, grid.batches):
        note(f"batch: {rw} {as_bytes(size)} x {count}")

        def measure(
            side: Side, rw: str = rw, size: int = size, count: int = count
        ) -> Mapping[str, float]:
            found: Mapping[str, float] = in_fresh_process(
                "batches", side, run.place,
                rw=rw, size=size, batch=count, total=grid.total,
            )  # fmt: skip
            return found

        run.record.cells += [
            cell(name, rw, found, size=size, batch=count)
            for name, found in by_processes(run, measure).items()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """An experiment, and what is shown of it."""

    name: str
    section: str
    title: str
    method: str
    measure: Callable[[Run], None]
    shown: tuple[str, ...]
    """Metrics of the tables for people."""
    all_modes: bool = False


SUITES: Final = (
    Suite(
        name="setup",
        section="4.1",
        title="Set-up until the first block is there",
        method=(
            "fresh processes by turns; import (of the package alone, in another "
            "process) is not part of the total"
        ),
        measure=setup,
        shown=("import", "open", "register", "first_read", "total"),
    ),
    Suite(
        name="sync",
        section="4.2",
        title="Awaits one after another, by some tasks at once",
        method="random offsets; all sides opened and warmed, then rounds by turns",
        measure=sync,
        shown=("latency", "bandwidth", "cpu"),
        all_modes=True,
    ),
    Suite(
        name="batch",
        section="4.3",
        title="A fixed volume in batches, and what the first one costs",
        method=(
            "a fresh process for each measurement, by turns; sequential offsets; from "
            "the first submission to the last completion"
        ),
        measure=batch,
        shown=("bandwidth", "steady_bandwidth", "first", "later"),
    ),
    Suite(
        name="stream",
        section="4.4",
        title="In the order of a GPU stream, and beside the GPU's own work",
        method=(
            "random offsets, each transfer and its synchronise; then so many pieces, "
            "each beside work of the GPU (filling memory) that takes as long, under "
            "three schedules; rounds by turns"
        ),
        measure=stream,
        shown=("latency", "bandwidth", "sequential", "overlapped", "pipelined"),
    ),
    Suite(
        name="poll",
        section="4.5",
        title="Polling against interrupts",
        method=(
            "one task, random offsets, rounds by turns; processor time of the process "
            "without the embedded controller's threads"
        ),
        measure=poll,
        shown=("latency", "cpu_share"),
        all_modes=True,
    ),
)
BY_NAME: Final = {suite.name: suite for suite in SUITES}
