"""The load of ``aiougds bench``: workers that read and write, and note latencies."""

from __future__ import annotations

import itertools
import random
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from aiougds.cli._latency import LONGEST_NS, samples
from aiougds.cli._suites.movers import Mover, Shape, our_mover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiougds import Namespace

Direction = Literal["read", "write", "mixed"]
Pattern = Literal["random", "sequential"]

OFFSETS: Final = 1 << 14  # a round is at least so many, of all workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    size: int
    depth: int
    batch: int
    rw: Direction
    mix: int
    pattern: Pattern
    span: int
    duration_s: float
    warmup_s: float
    seed: int

    def rounds(self, rng: random.Random, worker: int) -> Iterator[array[int]]:
        """Tell where a worker goes, without end; each round is whole batches."""
        places = self.span // self.size
        batch = max(1, self.batch)
        count = -(-OFFSETS // self.depth // batch) * batch
        if self.pattern == "random":
            blocks = rng.choices(range(places), k=count)
            yield from repeat(array("q", [block * self.size for block in blocks]))
        for first in itertools.count(worker * places // self.depth, count):
            blocks = [i % places for i in range(first, first + count)]
            yield array("q", [block * self.size for block in blocks])

    def steps(self, offsets: array[int]) -> Sequence[int | memoryview[int]]:
        """Return what is awaited one by one: offsets, or batches of them."""
        if not self.batch:
            return offsets
        whole, count = memoryview(offsets), self.batch
        return [whole[i : i + count] for i in range(0, len(offsets), count)]

    @property
    def shape(self) -> Shape:
        """What memory it takes."""
        return Shape(size=self.size, tasks=self.depth, batch=self.batch, seed=self.seed)

    def writing(self, rng: random.Random) -> list[bool]:
        """Return which operations, or batches, of a worker write."""
        if self.rw != "mixed":
            return [self.rw == "write"] * OFFSETS
        return [rng.randrange(100) >= self.mix for _ in range(OFFSETS)]


class Worker:
    """One of ``depth`` workers: an operation, or a batch, at a time."""

    __slots__ = ("_plan", "_read", "_rounds", "_write", "_writing", "reads", "writes")

    def __init__(self, mover: Mover, plan: Plan, number: int) -> None:
        steps = mover.steps(number)
        self._read: Callable[[Any], Any] = steps.read_many if plan.batch else steps.read
        write = steps.write_many if plan.batch else steps.write
        self._write: Callable[[Any], Any] = write or self._read
        self._plan = plan
        rng = random.Random(plan.seed * 1009 + number)
        self._writing = plan.writing(rng)
        self._rounds = plan.rounds(rng, number)
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self.reads = samples()
        self.writes = samples()

    async def run(self, begin_ns: int, end_ns: int) -> None:
        """Work until ``end_ns``; what begins after ``begin_ns`` counts."""
        clock, read, write = time.perf_counter_ns, self._read, self._write
        note_read, note_write = self.reads.append, self.writes.append
        for offsets in self._rounds:
            steps = self._plan.steps(offsets)
            for where, is_write in zip(steps, cycle(self._writing), strict=False):
                before = clock()
                await (write if is_write else read)(where)
                after = clock()
                if before >= begin_ns:
                    note = note_write if is_write else note_read
                    note(min(after - before, LONGEST_NS))
                if after >= end_ns:
                    return


async def work(workers: list[Worker], warmup_s: float, duration_s: float) -> float:
    """Have all work at once; return the seconds that were counted."""
    begin_ns = time.perf_counter_ns() + int(warmup_s * 1e9)
    end_ns = begin_ns + int(duration_s * 1e9)
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.run, begin_ns, end_ns)
    return (time.perf_counter_ns() - begin_ns) / 1e9


async def run_load(ns: Namespace, plan: Plan) -> tuple[list[Worker], float]:
    """Run the plan; return the workers and the seconds that were counted."""
    async with our_mover(ns, plan.shape, writes=plan.rw != "read") as mover:
        workers = [Worker(mover, plan, number) for number in range(plan.depth)]
        return workers, await work(workers, plan.warmup_s, plan.duration_s)
