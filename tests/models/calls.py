"""Rules about operations: single ones, many at once, as they end, cancelled."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from models.homes import Work, eventually
from models.objects import SHORT_S, small
from models.reference import DISK, MEMORY, MOST, Call, Memory, Part, Space
from models.state import State

from aiougds import (
    ClosedError,
    ControllerWedgedError,
    DeviceRemovedError,
    NotMappedError,
    OperationAbortedError,
    OperationTimeoutError,
)

counts = st.integers(1, MOST)
disks = st.integers(0, DISK - 1)
places = st.integers(0, MEMORY - 1)
moving = st.sampled_from(["read", "write", "compare"])
# drive, space, memory, first block, count, block of the memory
item = st.tuples(small, disks, counts, places)
BROKEN: Final[set[type[BaseException]]] = {ControllerWedgedError, DeviceRemovedError}
TRIES: Final = 200
PATIENCE_S: Final = {False: SHORT_S, True: 0.02}  # by whether an executor sends


def patience(parts: list[Part]) -> float:
    """Return a time limit that ends what the device keeps, and nothing else."""
    drive = parts[0].drive
    fates = {drive.fate(p.kind, c.first, c.count)[0] for p in parts for c in p.commands}
    if not fates & {"held", "lost"}:
        return 5
    # What it does not keep may have to wait for its turn on this machine.
    return PATIENCE_S[drive.shared] if fates <= {"held", "lost"} else 0.1


class CallRules(State):
    """Calls that somebody awaits."""

    # ---- what they are about ----

    def space(self, drive: int, number: int) -> Space:
        space: Space = self.pick(number, self.some_drive(drive).spaces)
        return space

    def memory(self, number: int, *, foreign: bool) -> Memory:
        choices = self.memories + (self.foreign if foreign else [])
        memory: Memory = self.pick(number, choices)
        return memory

    def part(
        self, space: Space, kind: str, first: int, count: int, memory: Memory, at: int
    ) -> Part:
        """Return an operation that fits into its space and memory."""
        first, at = space.first + first % space.blocks, at % MEMORY
        end = space.first + space.blocks
        count = min(count, end - first, MEMORY - at)
        part = Part(space, kind, first, count, memory, at)
        if kind == "write" and not self.uses(memory, at, count):
            memory.fill(at, count)
        return part

    # ---- how they run ----

    def submit(
        self,
        parts: list[Part],
        work: Callable[[], Work],
        home: int,
        *,
        many: bool,
        timed: bool,
    ) -> None:
        """Run a call that is not refused, or leave it with the device."""
        if not any(part.will_stay() for part in parts):
            self.launch(parts, home)
            self.ended(parts, self.run(work(), home), many=many)
        elif timed:
            self.run_out(parts, work, home, many=many)
        else:
            home %= self.homes.count
            running = self.homes.start(home, work())
            self.launch(parts, home)
            self.calls.append(Call(home, running, parts, many))

    def run_out(
        self, parts: list[Part], work: Callable[[], Work], home: int, *, many: bool
    ) -> None:
        """Run what is given up at its deadline.

        An executor may not even have sent it by then: once more, so that what follows
        does not depend on how busy this machine is.
        """
        for _ in range(TRIES):
            ended = self.run(work(), home)
            if self.went_out(parts, home):
                break
            for part in parts:
                part.given = {OperationTimeoutError}
            self.ended(parts, ended, many=many)
            for part in parts:
                part.given = None
        for part in parts:
            if part.out:
                part.give_up(OperationTimeoutError)
        self.ended(parts, ended, many=many)

    def went_out(self, parts: list[Part], home: int) -> bool:
        """Launch them if they were sent; an executor may have been too late for it."""
        drive = parts[0].drive
        sent = drive.real.statistics().commands - drive.sent
        if drive.shared and not sent:
            return False
        self.launch(parts, home)
        assert drive.real.statistics().commands == drive.sent
        return True

    # ---- single ones ----

    @precondition(lambda self: self.drives)
    @rule(
        kind=moving,
        drive=small,
        space=small,
        memory=small,
        where=item,
        home=small,
        timed=st.booleans(),
        fua=st.booleans(),
        keep=st.booleans(),
    )
    def transfer(
        self,
        kind: str,
        drive: int,
        space: int,
        memory: int,
        where: tuple[int, int, int, int],
        home: int,
        timed: bool,
        fua: bool,
        keep: bool,
    ) -> None:
        there, here = self.space(drive, space), self.memory(memory, foreign=True)
        _, first, count, at = where
        part = self.part(there, kind, first, count, here, at)
        if keep:
            self.keep(part)
        keywords: dict[str, object] = {}
        if timed:
            keywords["timeout_s"] = patience([part])
        if kind == "write" and fua:
            keywords["fua"] = True

        async def work() -> object:
            call = getattr(there.real, kind)
            target = here.target(part.at, part.count)
            return await call(target, offset=part.offset, **keywords)

        errors = self.refusal([part])
        if errors:
            self.refused(work(), errors, home)
        else:
            self.submit([part], work, home, many=False, timed=timed)

    @precondition(lambda self: self.drives)
    @rule(
        kind=st.sampled_from(["flush", "write_zeroes", "deallocate", "verify"]),
        drive=small,
        space=small,
        first=disks,
        count=counts,
        home=small,
        timed=st.booleans(),
        keep=st.booleans(),
    )
    def plain(
        self,
        kind: str,
        drive: int,
        space: int,
        first: int,
        count: int,
        home: int,
        timed: bool,
        keep: bool,
    ) -> None:
        there = self.space(drive, space)
        first = there.first + first % there.blocks
        count = min(count, there.first + there.blocks - first)
        part = Part(there, kind, first, count)
        if keep:
            self.keep(part)
        keywords: dict[str, object] = {}
        if kind != "flush":
            keywords.update(offset=part.offset, nbytes=part.nbytes)
        if timed:
            keywords["timeout_s"] = patience([part])

        async def work() -> object:
            return await getattr(there.real, kind)(**keywords)

        errors = self.refusal([part])
        if errors:
            self.refused(work(), errors, home)
        else:
            self.submit([part], work, home, many=False, timed=timed)

    # ---- many ----

    def items(
        self, there: Space, kind: str, wheres: list[tuple[int, int, int, int]]
    ) -> list[Part]:
        return [
            self.part(there, kind, first, count, self.memory(m, foreign=False), at)
            for m, first, count, at in wheres
        ]

    @staticmethod
    def pairs(parts: list[Part]) -> list[tuple[object, int]]:
        return [
            (p.memory.target(p.at, p.count), p.offset)
            for p in parts
            if p.memory is not None
        ]

    @precondition(lambda self: self.drives and self.memories)
    @rule(
        kind=st.sampled_from(["read", "write"]),
        drive=small,
        space=small,
        wheres=st.lists(item, min_size=1, max_size=3),
        home=small,
        timed=st.booleans(),
        arrays=st.booleans(),
        keep=st.booleans(),
    )
    def many(
        self,
        kind: str,
        drive: int,
        space: int,
        wheres: list[tuple[int, int, int, int]],
        home: int,
        timed: bool,
        arrays: bool,
        keep: bool,
    ) -> None:
        there = self.space(drive, space)
        if arrays:  # one memory, and a block each
            wheres = [(wheres[0][0], first, 1, at) for _, first, _, at in wheres]
        parts = self.items(there, kind, wheres)
        if keep:
            self.keep(parts[0])
        timeout_s = patience(parts) if timed else None

        async def work() -> object:
            call = getattr(there.real, f"{kind}_many")
            if not arrays:
                return await call(self.pairs(parts), timeout_s=timeout_s)
            memory = parts[0].memory
            assert memory is not None
            return await call(
                memory.target(0, MEMORY),
                offsets=array("q", (part.offset for part in parts)),
                nbytes=self.block,
                buf_offsets=array("q", (part.at * self.block for part in parts)),
                timeout_s=timeout_s,
            )

        errors = self.refusal(parts)
        if errors:
            self.refused(work(), errors, home)
        else:
            self.submit(parts, work, home, many=True, timed=timed)

    @precondition(lambda self: self.drives and self.memories)
    @rule(
        kind=st.sampled_from(["read", "write"]),
        drive=small,
        space=small,
        wheres=st.lists(item, min_size=1, max_size=4),
        take=st.integers(0, 4),
        home=small,
        keep=st.booleans(),
    )
    def as_completed(
        self,
        kind: str,
        drive: int,
        space: int,
        wheres: list[tuple[int, int, int, int]],
        take: int,
        home: int,
        keep: bool,
    ) -> None:
        """Take some results as they come, and leave: what is out is cancelled."""
        there = self.space(drive, space)
        parts = self.items(there, kind, wheres)
        if keep:
            self.keep(parts[-1])
        refused = {index: self.refusal([p]) for index, p in enumerate(parts)}
        sent = [part for index, part in enumerate(parts) if not refused[index]]
        stay = sum(part.will_stay() for part in sent)
        if stay and there.drive.patient:
            return
        if not there.drive.patient:
            take = 4  # else what the device has not served in the grace is aborted
        take = min(take, len(parts) - stay)
        if there.drive.shared and take < len(parts) - stay:
            return  # what an executor has sent by the time that we leave is a guess
        taken: list[tuple[int, object]] = []

        async def work() -> None:
            call = there.real.as_completed(self.pairs(parts), op=kind, capacity=4)
            async with call as done:
                if take:
                    async for index, result in done:
                        taken.append((index, result))
                        if len(taken) == take:
                            break
                # An Abort that comes before the device has looked is another story.
                assert eventually(lambda: self.met(sent), os.sched_yield)

        errors = set().union(*refused.values())
        if errors & {ClosedError, NotMappedError}:
            self.refused(work(), errors, home)
            return
        ended = self.run(work(), home)
        if ended.error is not None:  # no channel can be made for that loop any more
            assert type(ended.error) in errors & BROKEN, ended
            return
        assert len({index for index, _ in taken}) == len(taken) == take
        if sent and not self.went_out(sent, home):
            assert not [index for index, _ in taken if not refused[index]]
            sent.clear()
        for part in sent:
            if part.out:
                part.give_up(OperationAbortedError)
        self.abort(sent)
        for index, result in taken:
            if refused[index]:
                assert type(result) in refused[index]
            else:
                self.agree(parts[index], result)

    # ---- cancelled ----

    @precondition(lambda self: self.homes.can_cancel and self.calls)
    @rule(call=small)
    def cancel(self, call: int) -> None:
        """Cancel what the device keeps: it ends after the grace, and is aborted."""
        chosen: Call = self.pick(call, self.calls)
        if chosen.parts[0].drive.patient:
            return
        self.homes.cancel(chosen.home, chosen.running)
        for part in chosen.parts:
            part.given = {asyncio.CancelledError}
        self.abort(chosen.parts)
