"""Section 4.4: transfers in the order of a GPU stream, and beside the GPU's own work.

Figure 12: a transfer and a synchronise, one after another. Figure 13: the same
transfers and the same work of the GPU under three schedules.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from aiougds._errors import GPUUnavailableError
from aiougds._gpu.bench import GPU, SCRATCH, find_gpu
from aiougds._gpu.peers import Cufile, way
from aiougds.cli._common import run_on
from aiougds.cli._failures import UsageError
from aiougds.cli._latency import LONGEST_NS, Distribution, samples
from aiougds.cli._suites.gpu_peers import CufilePeer
from aiougds.cli._suites.measure import MIB, PEER_FAILURES, why
from aiougds.cli._suites.place import device
from aiougds.cli._suites.record import cell
from aiougds.cli._suites.scene import opened
from aiougds.cli._suites.turns import no_gc, turns

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from aiougds import Namespace, Registration, RegistrationSlice
    from aiougds.cli._suites.movers import Mover, Shape
    from aiougds.cli._suites.settings import Rw
    from aiougds.cli._suites.sides import Place
    from aiougds.cli._suites.suites import Run

ON_STREAM: Final = "aiougds on stream"
AWAITED: Final = "aiougds awaited"
CUFILE: Final = "cufile on stream"
LEAST_S: Final = 1e-5


class StreamSide:
    """One of those compared here; this module runs it by its name."""

    def __init__(self, name: str, how: str) -> None:
        self.name = name
        self.how = how

    @property
    def ours(self) -> bool:
        """Whether it is one of us."""
        return self.name != CUFILE

    @property
    def version(self) -> str:
        """Of its package."""
        from importlib.metadata import version

        return version("aiougds") if self.ours else CufilePeer().version

    def why_not(self, place: Place) -> str:
        """Return why it cannot run there; "" if it can."""
        return "" if self.ours else CufilePeer().why_not(place)

    def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AbstractAsyncContextManager[Mover]:
        """Nothing is opened: :class:`Bench` runs them."""
        raise NotImplementedError


def stream_sides(peers: tuple[str, ...]) -> list[StreamSide]:
    """Return ours, and cuFile if it was asked for."""
    ours = [
        StreamSide(ON_STREAM, "ns.read_on or write_on, and a synchronise"),
        StreamSide(AWAITED, "await ns.read or write, into the same memory"),
    ]
    theirs = StreamSide(CUFILE, f"cuFileReadAsync, and a synchronise; {way()}")
    return [*ours, theirs] if "cufile" in peers else ours


def stream(run: Run) -> None:
    """Measure both figures on the one GPU."""

    async def work() -> int:
        async with AsyncExitStack() as stack:
            try:
                gpu = find_gpu(run.place.device)
            except (GPUUnavailableError, ValueError) as exc:
                if run.settings.device is not None:
                    raise UsageError(f"--device {run.settings.device}: {exc}") from exc
                run.record.why_not = f"no GPU here: {exc}"
                return 0
            stack.callback(gpu.close)
            ns = await stack.enter_async_context(opened(run.settings, run.place))
            grid = run.settings.grid
            nbytes = max(*grid.stream_sizes, grid.piece * grid.pieces)
            reg = await stack.enter_async_context(
                ns.allocate(nbytes, device=gpu.address)
            )
            run.record.device = device(ns, run.place, gpu=f"{gpu.address}, {gpu.name}")
            await Bench(run, ns, reg, gpu).measure()
        return 0

    run_on(run.settings.loop, work)


class Bench:
    """A GPU, memory of it, and two of its streams."""

    def __init__(self, run: Run, ns: Namespace, reg: Registration, gpu: GPU) -> None:
        self._run = run
        self._ns = ns
        self._reg = reg
        self._gpu = gpu
        self._io = gpu.stream()
        self._compute = gpu.stream()
        self._rng = random.Random(run.settings.seed)
        self._cufile: Cufile | None = None

    async def measure(self) -> None:
        """Measure all that was asked for."""
        names = [side.name for side in self._run.sides]
        if CUFILE in names:
            try:
                self._cufile = Cufile(Path(self._run.place.path))
            except PEER_FAILURES as exc:
                self._run.failed[CUFILE] = why(exc)
                names.remove(CUFILE)
        try:
            for rw in self._run.settings.rw:
                for size in self._run.settings.grid.stream_sizes:
                    await self._serialised(names, rw, size)
                await self._schedules(rw)
        finally:
            if self._cufile is not None:
                self._cufile.close()

    # ---- figure 12 ----

    async def _serialised(self, names: list[str], rw: Rw, size: int) -> None:
        names = [name for name in names if rw == "read" or name != CUFILE]
        pace = self._run.settings.pace
        rounds: dict[str, list[Mapping[str, float]]] = {name: [] for name in names}
        steps = {name: self._step(name, rw, size) for name in names}
        for name in names:
            await self._round(steps[name], size, pace.warmup_s)
        with no_gc():
            for name in turns(names, pace.repeat):
                found = await self._round(steps[name], size, pace.duration_s)
                rounds[name].append(found)
        self._run.record.cells += [
            cell(name, rw, found, size=size) for name, found in rounds.items()
        ]

    def _step(self, name: str, rw: Rw, size: int) -> Callable[[int], Awaitable[object]]:
        part, ns, gpu, io = self._reg[:size], self._ns, self._gpu, self._io
        if name == AWAITED:
            move = ns.read if rw == "read" else ns.write
            return lambda offset: move(part, offset=offset)
        if name == ON_STREAM:
            queue = ns.read_on if rw == "read" else ns.write_on

            async def ours(offset: int) -> None:
                queue(io, part, offset=offset)
                gpu.wait(io)

            return ours

        async def theirs(offset: int) -> None:
            assert self._cufile is not None
            kept = self._cufile.read_async(int(io), self._reg.ptr, size, offset)
            gpu.wait(io)
            del kept

        return theirs

    async def _round(
        self, step: Callable[[int], Awaitable[object]], size: int, seconds: float
    ) -> Mapping[str, float]:
        places = self._run.place.span // size
        taken, clock = samples(), time.perf_counter_ns
        begin = clock()
        end = begin + int(seconds * 1e9)
        while True:
            offset = self._rng.randrange(places) * size
            before = clock()
            await step(offset)
            after = clock()
            taken.append(min(after - before, LONGEST_NS))
            if after >= end:
                break
        found = Distribution([taken])
        return {
            "bandwidth": found.n * size / ((after - begin) / 1e9) / MIB,
            "latency": found.mean / 1e3,
            "p50": found.percentile(50) / 1e3,
            "p99": found.percentile(99) / 1e3,
        }

    # ---- figure 13 ----

    async def _schedules(self, rw: Rw) -> None:
        grid, pace = self._run.settings.grid, self._run.settings.pace
        parts = list(self._parts(grid.pieces, grid.piece))
        work = await self._work_as_long_as(rw, parts[0])
        plans: dict[str, Callable[[], Awaitable[None]]] = {
            "sequential": lambda: self._sequential(rw, parts, work),
            "overlapped": lambda: self._overlapped(rw, parts, work),
            "pipelined": lambda: self._pipelined(rw, parts, work),
        }
        taken: dict[str, list[float]] = {name: [] for name in plans}
        for plan in plans.values():
            await plan()
        with no_gc():
            for name in turns(list(plans), pace.repeat):
                start = time.perf_counter()
                await plans[name]()
                taken[name].append(1e3 * (time.perf_counter() - start))
        self._run.record.cells.append(
            cell(
                ON_STREAM,
                rw,
                [
                    dict(zip(taken, found, strict=True))
                    for found in zip(*taken.values(), strict=True)
                ],
                size=grid.piece,
                batch=grid.pieces,
            )
        )

    def _parts(self, count: int, size: int) -> Iterator[tuple[RegistrationSlice, int]]:
        for i in range(count):
            yield self._reg[i * size : (i + 1) * size], i * size

    async def _work_as_long_as(
        self, rw: Rw, piece: tuple[RegistrationSlice, int]
    ) -> int:
        """Return the bytes whose filling takes the GPU as long as a transfer takes."""
        part, offset = piece
        move = self._ns.read if rw == "read" else self._ns.write
        io: list[float] = []
        fills: list[float] = []
        for _ in range(10):
            start = time.perf_counter()
            await move(part, offset=offset)
            io.append(time.perf_counter() - start)
            start = time.perf_counter()
            self._gpu.fill(self._compute, SCRATCH)
            self._gpu.wait(self._compute)
            fills.append(max(LEAST_S, time.perf_counter() - start))
        return max(4096, int(SCRATCH * median(io) / median(fills)))

    def _queue(self, rw: Rw, part: RegistrationSlice, offset: int) -> Awaitable[int]:
        queue = self._ns.read_on if rw == "read" else self._ns.write_on
        return queue(self._io, part, offset=offset)

    async def _sequential(
        self, rw: Rw, parts: list[tuple[RegistrationSlice, int]], work: int
    ) -> None:
        for part, offset in parts:
            await self._queue(rw, part, offset)
            self._gpu.fill(self._compute, work)
            self._gpu.wait(self._compute)

    async def _overlapped(
        self, rw: Rw, parts: list[tuple[RegistrationSlice, int]], work: int
    ) -> None:
        for part, offset in parts:
            operation = self._queue(rw, part, offset)
            self._gpu.fill(self._compute, work)
            await operation
            self._gpu.wait(self._compute)

    async def _pipelined(
        self, rw: Rw, parts: list[tuple[RegistrationSlice, int]], work: int
    ) -> None:
        operations: list[Awaitable[int]] = []
        for part, offset in parts:
            operations.append(self._queue(rw, part, offset))
            self._gpu.fill(self._compute, work)
        for operation in operations:
            await operation
        self._gpu.wait(self._compute)
