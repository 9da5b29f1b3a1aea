"""The load of ``aiougds bench``: workers that read and write, and note latencies."""

from __future__ import annotations

import itertools
import random
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import TYPE_CHECKING, Final, Literal

import anyio

from aiougds.cli._latency import LONGEST_NS, samples

if TYPE_CHECKING:
    from aiougds import Namespace, RegistrationSlice

Direction = Literal["read", "write", "mixed"]
Pattern = Literal["random", "sequential"]

OFFSETS: Final = 1 << 14  # a round is at least so many


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
        count = -(-OFFSETS // batch) * batch
        if self.pattern == "random":
            blocks = rng.choices(range(places), k=count)
            yield from repeat(array("q", [block * self.size for block in blocks]))
        for first in itertools.count(worker * places // self.depth, count):
            blocks = [i % places for i in range(first, first + count)]
            yield array("q", [block * self.size for block in blocks])

    def writing(self, rng: random.Random) -> list[bool]:
        """Return which operations, or batches, of a worker write."""
        if self.rw != "mixed":
            return [self.rw == "write"] * OFFSETS
        return [rng.randrange(100) >= self.mix for _ in range(OFFSETS)]


class Worker:
    """One of ``depth`` workers: an operation, or a batch, at a time."""

    __slots__ = (
        "_ns", "_number", "_plan", "_rng", "_source", "_target", "reads", "writes"
    )  # fmt: skip

    def __init__(
        self,
        ns: Namespace,
        target: RegistrationSlice,
        source: RegistrationSlice,
        plan: Plan,
        number: int,
    ) -> None:
        self._ns = ns
        self._target = target  # of reads; what is written stays as it was made
        self._source = source
        self._plan = plan
        self._rng = random.Random(plan.seed * 1009 + number)
        self._number = number
        self.reads = samples()
        self.writes = samples()

    async def run(self, begin_ns: int, end_ns: int) -> None:
        """Work until ``end_ns``; what begins after ``begin_ns`` counts."""
        steps = self._batches if self._plan.batch else self._singles
        rounds = self._plan.rounds(self._rng, self._number)
        await steps(begin_ns, end_ns, rounds, self._plan.writing(self._rng))

    async def _singles(
        self,
        begin_ns: int,
        end_ns: int,
        rounds: Iterator[array[int]],
        writing: list[bool],
    ) -> None:
        clock, target, source = time.perf_counter_ns, self._target, self._source
        read, write = self._ns.read, self._ns.write
        note_read, note_write = self.reads.append, self.writes.append
        for offsets in rounds:
            for offset, is_write in zip(offsets, cycle(writing), strict=False):
                before = clock()
                if is_write:
                    await write(source, offset=offset)
                else:
                    await read(target, offset=offset)
                after = clock()
                if before >= begin_ns:
                    note = note_write if is_write else note_read
                    note(min(after - before, LONGEST_NS))
                if after >= end_ns:
                    return

    async def _batches(
        self,
        begin_ns: int,
        end_ns: int,
        rounds: Iterator[array[int]],
        writing: list[bool],
    ) -> None:
        clock, target, source = time.perf_counter_ns, self._target, self._source
        size, count = self._plan.size, self._plan.batch
        read_many, write_many = self._ns.read_many, self._ns.write_many
        for offsets in rounds:
            whole = memoryview(offsets)
            parts = [whole[i : i + count] for i in range(0, len(offsets), count)]
            for part, is_write in zip(parts, cycle(writing), strict=False):
                before = clock()
                if is_write:
                    await write_many(source, offsets=part, nbytes=size)
                else:
                    await read_many(target, offsets=part, nbytes=size)
                after = clock()
                if before >= begin_ns:
                    note = self.writes if is_write else self.reads
                    note.append(min(after - before, LONGEST_NS))
                if after >= end_ns:
                    return


async def run_load(ns: Namespace, plan: Plan) -> tuple[list[Worker], float]:
    """Run the plan; return the workers and the seconds that were counted."""
    share = plan.size * max(1, plan.batch)
    async with (
        ns.allocate(share * plan.depth) as targets,
        ns.allocate(share * plan.depth) as sources,
    ):
        view = sources.view
        noise = random.Random(plan.seed).randbytes(min(len(view), 1 << 20))
        for at in range(0, len(view), len(noise)):
            part = view[at : at + len(noise)]
            part[:] = noise[: len(part)]
        workers = [
            Worker(ns, targets[at : at + share], sources[at : at + share], plan, i)
            for i, at in enumerate(range(0, share * plan.depth, share))
        ]
        begin_ns = time.perf_counter_ns() + int(plan.warmup_s * 1e9)
        end_ns = begin_ns + int(plan.duration_s * 1e9)
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(worker.run, begin_ns, end_ns)
        return workers, (time.perf_counter_ns() - begin_ns) / 1e9
