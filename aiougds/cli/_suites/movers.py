"""What moves blocks: one of our handles, or a peer, in the form that a load drives."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from array import array

    from aiougds import Namespace, Registration, RegistrationSlice

NOISE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of a load: ``batch`` 0 is one operation an await."""

    size: int
    tasks: int = 1
    batch: int = 0
    seed: int = 1

    @property
    def share(self) -> int:
        """The bytes that one task moves at a time."""
        return self.size * max(1, self.batch)


One = Callable[[int], Awaitable[object]]
Many = Callable[["array[int] | memoryview[int]"], Awaitable[object]]


class Steps(NamedTuple):
    """Of one task: to an offset, or in a batch to many; None: it does not write."""

    read: One
    write: One | None
    read_many: Many
    write_many: Many | None


class Mover(Protocol):
    """Opened for a shape: memory, files and contexts are there."""

    def steps(self, task: int) -> Steps:
        """Return what a task calls; each has memory of its own."""
        ...


class OurMover:
    """A handle of ours, with registered memory."""

    __slots__ = ("_ns", "_shape", "_sources", "_targets")

    def __init__(
        self,
        ns: Namespace,
        targets: Registration,
        sources: Registration | None,
        shape: Shape,
    ) -> None:
        self._ns = ns
        self._targets = targets  # of reads; what is written stays as it was made
        self._sources = sources
        self._shape = shape

    def steps(self, task: int) -> Steps:
        """Return what a task calls."""
        ns, size = self._ns, self._shape.size
        first = task * self._shape.share
        part = slice(first, first + self._shape.share)
        target: RegistrationSlice = self._targets[part]
        read, read_many = ns.read, ns.read_many

        def read_one(offset: int) -> Awaitable[object]:
            return read(target, offset=offset)

        def read_batch(offsets: array[int] | memoryview[int]) -> Awaitable[object]:
            return read_many(target, offsets=offsets, nbytes=size)

        if self._sources is None:
            return Steps(read_one, None, read_batch, None)
        source: RegistrationSlice = self._sources[part]
        write, write_many = ns.write, ns.write_many

        def write_one(offset: int) -> Awaitable[object]:
            return write(source, offset=offset)

        def write_batch(offsets: array[int] | memoryview[int]) -> Awaitable[object]:
            return write_many(source, offsets=offsets, nbytes=size)

        return Steps(read_one, write_one, read_batch, write_batch)


@asynccontextmanager
async def our_mover(
    ns: Namespace, shape: Shape, *, writes: bool, device: str | None = None
) -> AsyncGenerator[OurMover]:
    """Registered memory for all tasks, of the host or of a GPU."""
    nbytes = shape.share * shape.tasks
    async with ns.allocate(nbytes, device=device) as targets:
        if device is None:
            fill(targets.view, shape.seed)  # no page fault is measured
        if not writes:
            yield OurMover(ns, targets, None, shape)
            return
        async with ns.allocate(nbytes, device=device) as sources:
            if device is None:
                fill(sources.view, shape.seed)
            yield OurMover(ns, targets, sources, shape)


def fill(view: memoryview, seed: int) -> None:
    """Fill memory with what no drive can compress."""
    noise = random.Random(seed).randbytes(min(len(view), NOISE))
    for at in range(0, len(view), len(noise)):
        part = view[at : at + len(noise)]
        part[:] = noise[: len(part)]
