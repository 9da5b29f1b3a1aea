"""What every rule needs: homes, drives, expectations; and what holds after a step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant
from models.cells import Cell, Move, move, number_in
from models.homes import Ended, Homes, Work, eventually
from models.reference import (
    Call,
    Command,
    Drive,
    Memory,
    Pack,
    Part,
    Result,
    Script,
)

from aiougds import (
    BatchError,
    ClosedError,
    ControllerWedgedError,
    DeviceRemovedError,
    NotMappedError,
    NVMeError,
    RangeBusyError,
    ReadOnlyError,
)
from aiougds.testing import Fault, counters, inject

Errors = set[type[BaseException]]


def descriptors() -> dict[str, str]:
    """Return what the descriptors of this process are open for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def threads() -> dict[str, str]:
    """Return the names of the threads of this process."""
    found = {}
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it ends just now
            found[path.name] = (path / "comm").read_text(encoding="utf-8").strip()
    return found


def never_ended(call: Call) -> str:
    return f"it never ended: {call.parts}"


class State(RuleBasedStateMachine):
    """The machine without its rules."""

    make_homes: ClassVar[Callable[[], Homes]]

    def __init__(self) -> None:
        super().__init__()
        type(self).make_homes().close()  # what the first loop leaves open for good
        self.before = descriptors(), threads()
        self.homes = type(self).make_homes()
        self.folder = Path(tempfile.mkdtemp(prefix="aiougds-model-"))
        self.block = 512
        self.drives: list[Drive] = []
        self.ghosts: list[Drive] = []  # left while the device had memory of theirs
        self.shelf: dict[Path, list[Cell]] = {}  # files of closed drives
        self.memories: list[Memory] = []
        self.abandoned: list[Memory] = []
        self.foreign: list[Memory] = []
        self.echoes: list[tuple[Cell, Cell]] = []
        self.parts: list[Part] = []  # that the device has something of
        self.calls: list[Call] = []
        self.packs: list[Pack] = []
        self.numbers = 0

    # ---- small helpers ----

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def run(self, work: Work, home: int = 0) -> Ended:
        """Run a call to its end."""
        return self.homes.run(home % self.homes.count, work)

    def get(self, work: Work, home: int = 0) -> Any:  # noqa: ANN401
        """Run a call that has to succeed."""
        ended = self.run(work, home)
        if ended.error is not None:
            raise ended.error
        return ended.value

    def refused(self, work: Work, errors: Errors, home: int = 0) -> BaseException:
        """Run a call that has to be refused, with all as it was."""
        ended = self.run(work, home)
        assert type(ended.error) in errors, (
            f"{ended} instead of {sorted(error.__name__ for error in errors)}"
        )
        assert ended.error is not None
        return ended.error

    def wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        assert eventually(condition, self.homes.turn), what()

    @staticmethod
    def pick(number: int, choices: list[Any]) -> Any:  # noqa: ANN401
        return choices[number % len(choices)]

    def some_drive(self, number: int) -> Drive:
        """Return a drive: a closed one seldom, for there is little to do with it."""
        alive = [drive for drive in self.drives if drive.state == "live"]
        drive: Drive = self.pick(number, alive if alive and number < 4 else self.drives)
        return drive

    @property
    def all_memories(self) -> list[Memory]:
        gone = [m for m in self.abandoned if m not in self.memories]
        return self.memories + self.foreign + gone

    @property
    def all_drives(self) -> list[Drive]:
        return self.drives + self.ghosts

    def flying(self, drive: Drive) -> list[Part]:
        """Operations that somebody waits for."""
        waited = [part for call in self.calls for part in call.parts]
        packed = [part for pack in self.packs for part in pack.unharvested]
        return [p for p in waited + packed if p.drive is drive and not p.reported]

    def out(self, drive: Drive) -> list[Part]:
        return [part for part in self.parts if part.drive is drive]

    def uses(self, memory: Memory, at: int = 0, count: int = 1 << 30) -> bool:
        return any(part.touches(memory, at, count) for part in self.parts)

    # ---- what a submission has to answer ----

    def refusal(self, parts: list[Part], *, closed: bool = False) -> Errors:
        """Return what refuses the operations, if anything does."""
        space = parts[0].space
        if closed or space.closed or space.drive.state == "closed":
            return {ClosedError}
        broken: Errors = set()
        if space.drive.state == "wedged":
            broken = {ControllerWedgedError}
        if space.drive.state == "removed":
            broken = {DeviceRemovedError}
        for part in parts:
            if part.memory is None or not part.registered:
                continue
            if part.memory.closed:
                return {ClosedError} | broken
            if space.drive not in part.memory.drives:
                return {NotMappedError} | broken
        if broken:
            return broken
        for part in parts:
            if space.readonly and part.kind in ("write", "write_zeroes", "deallocate"):
                return {ReadOnlyError}
            if part.memory is not None and self.held(part):
                return {RangeBusyError}
        return set()

    def held(self, part: Part) -> bool:
        """Whether a given-up operation has the memory of this one still."""
        assert part.memory is not None
        return any(
            p.stray
            and p.drive is part.drive
            and p.touches(part.memory, part.at, part.count)
            for p in self.parts
        )

    # ---- what the device does ----

    @staticmethod
    def met(parts: list[Part]) -> bool:
        """Whether the device has fetched what it keeps of operations just sent."""
        keep = [
            script
            for part in parts
            for c in part.commands
            if (script := part.drive.fate(part.kind, c.first, c.count)[1])
        ]
        return all(s.handle.hits >= s.hits + keep.count(s) for s in keep)

    def add_script(self, drive: Drive, fault: Fault) -> None:
        """Put a fault in force; a few at a time are enough."""
        if len(drive.scripts) > 3:
            return
        drive.scripts.append(Script(inject(drive.real, fault), fault))

    def keep(self, part: Part) -> None:
        """Have the device keep an operation, if it would get as far as that."""
        if part.will_stay() or self.refusal([part]):
            return
        fault = Fault.hold(part.kind)
        if part.kind not in ("flush", "deallocate"):  # they name no range
            fault = fault.on(slba=part.first, nlb=part.count)
        self.add_script(part.drive, fault)

    def launch(self, parts: list[Part], home: int) -> None:
        """They were sent, at once and in any order."""
        now: list[Command] = []
        for part in parts:
            part.sent = True
            drive = part.drive
            for command in part.commands:
                command.fate, command.script = drive.fate(
                    part.kind, command.first, command.count
                )
                drive.sent += 1
                if command.script is not None:
                    command.script.hits += 1
                if command.fate in ("now", "fail"):
                    now.append(command)
        self.parts += [part for part in parts if part not in self.parts]
        self.carry_out(now)

    def carry_out(self, commands: list[Command]) -> None:
        """The device serves commands, in any order."""
        served = [c for c in commands if c.fate != "fail"]
        before = {id(c): c.same() for c in served}
        self.echoes += move([m for c in served for m in c.moves()])
        for command in commands:
            command.judge(before.get(id(command)))
        self.parts = [part for part in self.parts if part.out]

    def echo(self) -> None:
        """What a read found tells what is there, once the memory was looked at."""
        for target, source in self.echoes:
            if len(target.may) == 1 and target.may <= source.may:
                source.may = set(target.may)
        self.echoes.clear()

    def forget(self, commands: list[Command], *, aborted: bool) -> None:
        """The device lets go of commands; whether it served them is not known."""
        possible: list[Move] = []
        for command in commands:
            possible += command.moves(certain=False)
            command.verdict = "failed"
            command.part.drive.done += aborted
            command.part.drive.lost += not aborted
        move(possible)
        self.parts = [part for part in self.parts if part.out]

    def abort(self, parts: list[Part]) -> None:
        """What a cancel gave up is aborted, if the device agrees to that."""
        for part in parts:
            scripts = part.drive.scripts
            if not any(s.fault.action == "abort_refused" for s in scripts):
                held = [command for command in part.out if command.fate == "held"]
                self.forget(held, aborted=True)

    # ---- how calls have to end ----

    def agree(self, part: Part, result: object, *, plain: bool = False) -> None:
        """Assert that an operation ended as it had to."""
        ways = part.results()
        if isinstance(result, BaseException):
            assert type(result) in ways, f"{result!r} instead of one of {ways}"
            if isinstance(result, NVMeError) and part.given is None:
                assert result.bytes_done == part.moved()
                assert result.command == part.kind
        else:
            value: Result = part.nbytes if plain and result is None else result  # type: ignore[assignment]
            assert value in ways, f"{result!r} instead of one of {ways}"

    def ended(self, parts: list[Part], ended: Ended, *, many: bool) -> None:
        """Assert that a call ended as all of its operations had to."""
        if isinstance(ended.error, asyncio.CancelledError):
            assert all(part.given == {asyncio.CancelledError} for part in parts)
            return
        if not many:
            result = ended.value if ended.error is None else ended.error
            self.agree(parts[0], result, plain=parts[0].kind == "flush")
            return
        if ended.error is None:
            results = ended.value
        else:
            assert isinstance(ended.error, BatchError), ended
            results = list(ended.error.results)
            failures = [r for r in results if isinstance(r, BaseException)]
            assert list(ended.error.exceptions) == failures
        assert isinstance(results, list)
        assert len(results) == len(parts)
        for part, result in zip(parts, results, strict=True):
            self.agree(part, result)

    # ---- after every step ----

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        self.calls_have_ended()
        for drive in self.all_drives:
            if drive in self.ghosts and drive.real.closed:
                drive.state = "closed"
            if drive.state == "closed":
                assert drive.real.closed
                assert drive.real.state == "closed"
            else:
                self.counts_of(drive)
        for memory in self.all_memories:
            memory.look()
        self.echo()
        self.memory_in_flight_is_pinned()
        self.files_hold_what_they_may()

    def calls_have_ended(self) -> None:
        for call in list(self.calls):
            if all(part.reported for part in call.parts):
                self.wait(call.running.done, partial(never_ended, call))
                self.calls.remove(call)
                self.ended(call.parts, call.running.ended(), many=call.many)
        for call in self.calls:
            assert not call.running.done(), (
                f"{call.running.ended()} while the device has {call.parts}"
            )

    def counts_of(self, drive: Drive) -> None:
        out = self.out(drive)
        strays = [part for part in out if part.stray]
        expected = {
            "state": drive.state,
            "hits": [s.hits for s in drive.scripts if s.fault.command],
            "inflight": sum(len(part.out) for part in out),
            "quarantined": len(strays),
            "sent": drive.sent,
            "ended": drive.done,
            "read": drive.read_blocks * drive.block,
            "written": drive.written_blocks * drive.block,
            "resets": drive.resets,
            "mappings": self.mappings(drive),
        }

        def observed() -> dict[str, object]:
            _ = drive.real.quarantine  # a thread takes what is late here
            drive.real._device.sweep_limbo()
            stats = drive.real.statistics()
            return {
                "state": drive.real.state,
                "hits": [s.handle.hits for s in drive.scripts if s.fault.command],
                "inflight": stats.inflight,
                "quarantined": stats.quarantined,
                "sent": stats.commands,
                "ended": stats.reads + stats.writes + stats.others,
                "read": stats.read_bytes,
                "written": stats.write_bytes,
                "resets": stats.resets,
                "mappings": stats.mappings - len(drive.real._device.pool),
            }

        self.wait(
            lambda: observed() == expected,
            lambda: f"drive {drive.number}: {observed()} instead of {expected}",
        )
        seen = counters(drive.real)
        assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
        assert drive.real.statistics().unknown_cids == 0
        assert sorted(
            (q.buf_offset, q.nbytes) for q in drive.real.quarantine
        ) == sorted(
            (part.at * drive.block if part.registered else 0, part.nbytes)
            for part in strays
        )

    def mappings(self, drive: Drive) -> int:
        """Return how much memory the controller can reach."""
        registered = sum(drive in m.drives and not m.closed for m in self.memories)
        left = sum(
            any(part.memory is memory for part in self.out(drive))
            for memory in self.abandoned
        )
        pinned = sum(
            part.memory is not None and not part.registered for part in self.out(drive)
        )
        return registered + left + pinned

    def memory_in_flight_is_pinned(self) -> None:
        for memory in self.memories:
            using = [part for part in self.parts if part.memory is memory]
            if not memory.closed:
                assert memory.real.inflight == len(using)
                assert f"{len(using)} in flight" in repr(memory.real)
            else:
                assert memory.real.inflight == 0
                assert memory.real.closed

        for memory in self.foreign + self.abandoned:
            if isinstance(memory.buffer, bytearray) and self.uses(memory):
                with pytest.raises(BufferError):
                    memory.buffer.append(0)

    def files_hold_what_they_may(self) -> None:
        for drive in self.all_drives:
            if drive.path is None:
                continue
            data = drive.path.read_bytes()
            for index, cell in enumerate(drive.cells):
                part = slice(index * drive.block, (index + 1) * drive.block)
                number = number_in(data[part])
                assert number in cell.may, (
                    f"block {index} of drive {drive.number} holds {number}, "
                    f"not {cell.may}"
                )

    # ---- the end ----

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:  # the failure is what is to be seen
            self.let_go()
            return
        try:
            self.put_away()
        finally:
            self.homes.close()
            shutil.rmtree(self.folder)
        # A thread that was joined is listed for a moment still.
        eventually(lambda: threads().items() <= self.before[1].items(), os.sched_yield)
        assert threads().items() <= self.before[1].items()
        assert descriptors() == self.before[0]

    def let_go(self) -> None:
        """After a failure: close what can be closed, and say nothing about it."""
        raise NotImplementedError

    def put_away(self) -> None:
        """Close everything; nothing may be left of it."""
        raise NotImplementedError

    # ---- reading it all back ----

    def read_back(self, drive: Drive) -> None:
        """The namespace holds what it may; from now on, that alone."""
        buffer = bytearray(len(drive.cells) * self.block)
        space = drive.spaces[0]

        async def work() -> object:
            return await space.real.read(buffer, offset=0)

        assert self.get(work()) == len(buffer)
        commands = len(drive.split("read", 0, len(drive.cells)))
        drive.sent += commands
        drive.done += commands
        drive.read_blocks += len(drive.cells)
        for index, cell in enumerate(drive.cells):
            part = slice(index * self.block, (index + 1) * self.block)
            number = number_in(bytes(buffer[part]))
            assert number in cell.may, (
                f"block {index} of drive {drive.number} holds {number}, not {cell.may}"
            )
            cell.may = {number}
