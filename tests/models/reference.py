"""The reference model: controllers, memory, operations and faults as they should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from models.cells import Cell, Move, compare, filled, fresh, number_in
from models.homes import Running

from aiougds import CompareError, MediaError
from aiougds.testing import Fault, FaultHandle

DISK: Final = 12  # blocks of a namespace
MEMORY: Final = 6  # blocks of a piece of memory
MOST: Final = 4  # blocks of one operation, and commands: as many as may be aborted
MOVING: Final = ("read", "write", "compare")
ERASING: Final = ("write_zeroes", "deallocate")
ZERO: Final = Cell(0)

Real = Any  # an object of aiougds, or a facade before one of aiougds.blocking
State = Literal["live", "wedged", "removed", "closed"]
Fate = Literal["now", "fail", "held", "lost"]
Result = int | type[BaseException] | None


@dataclass(eq=False, slots=True)
class Memory:
    """Bytes that operations go to and come from; registered or not."""

    number: int
    block: int
    registered: bool
    buffer: Any  # bytearray or memoryview
    real: Real = None
    closed: bool = False
    drives: list[Drive] = field(default_factory=list)  # mapped for, in this order
    cells: list[Cell] = field(default_factory=lambda: [Cell() for _ in range(MEMORY)])

    def target(self, at: int, count: int) -> Real:
        """Return what to give to an operation."""
        part = slice(at * self.block, (at + count) * self.block)
        return self.real[part] if self.registered else memoryview(self.buffer)[part]

    def fill(self, at: int, count: int) -> None:
        """Put new numbers into blocks."""
        for index in range(at, at + count):
            number = fresh()
            part = slice(index * self.block, (index + 1) * self.block)
            self.buffer[part] = filled(number, self.block)
            self.cells[index].may = {number}

    def look(self) -> None:
        """Every block holds what it may; from now on, that alone."""
        data = bytes(self.buffer)
        for index, cell in enumerate(self.cells):
            part = slice(index * self.block, (index + 1) * self.block)
            number = number_in(data[part])
            assert number in cell.may, (
                f"block {index} of memory {self.number} holds {number}, not {cell.may}"
            )
            cell.may = {number}


@dataclass(eq=False, slots=True)
class Space:
    """A namespace object: a window onto a drive."""

    drive: Drive
    real: Real
    first: int
    blocks: int
    readonly: bool = False
    closed: bool = False


@dataclass(eq=False, slots=True)
class Script:
    """A fault in force."""

    handle: FaultHandle
    fault: Fault
    hits: int = 0

    def strikes(self, kind: str, first: int, count: int) -> bool:
        """Whether it acts on a command."""
        fault = self.fault
        if fault.action == "abort_refused" or fault.command != kind:
            return False
        if not fault.nlb:
            return True
        if kind in ("flush", "deallocate"):  # they name no range
            return False
        return first < fault.slba + fault.nlb and fault.slba < first + count


@dataclass(eq=False, slots=True)
class Drive:
    """A controller with one namespace."""

    number: int
    real: Real
    block: int
    most: int  # blocks of a command that moves data
    shared: bool  # an executor sends, a little after the call
    patient: bool  # what is cancelled gets more time than there is here
    cells: list[Cell]
    path: Path | None
    state: State = "live"
    spaces: list[Space] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    sent: int = 0
    done: int = 0
    lost: int = 0  # forgotten by a reset
    read_blocks: int = 0
    written_blocks: int = 0
    resets: int = 0

    def split(self, kind: str, first: int, count: int) -> list[tuple[int, int]]:
        """Return the commands of an operation: first block and count."""
        if kind not in (*MOVING, "verify"):
            return [(first, count)]
        most = self.most
        return [
            (at, min(most, first + count - at))
            for at in range(first, first + count, most)
        ]

    def fate(self, kind: str, first: int, count: int) -> tuple[Fate, Script | None]:
        """Say what the device would do with a command."""
        for script in self.scripts:
            if script.strikes(kind, first, count):
                fates: dict[str, Fate] = {"status": "fail", "hold": "held"}
                fate = fates.get(script.fault.action, "now")
                return ("lost" if script.fault.action == "drop" else fate), script
        return "now", None


@dataclass(eq=False, slots=True)
class Command:
    """What one command does to which blocks, and what has become of it."""

    part: Part
    first: int  # block of the namespace
    count: int
    at: int  # block of the memory
    fate: Fate = "now"
    script: Script | None = None
    verdict: Literal["ok", "failed", "differs", "either", ""] = ""  # "": it is out

    def moves(self, *, certain: bool = True) -> list[Move]:
        """Return the blocks that it copies."""
        drive, kind, memory = self.part.drive, self.part.kind, self.part.memory
        there = drive.cells[self.first : self.first + self.count]
        if kind in ERASING:
            return [Move(ZERO, cell, certain) for cell in there]
        if memory is None or kind not in ("read", "write"):
            return []
        here = memory.cells[self.at : self.at + self.count]
        pairs = zip(there, here, strict=True)
        if kind == "read":
            return [Move(cell, own, certain) for cell, own in pairs]
        return [Move(own, cell, certain) for cell, own in pairs]

    def same(self) -> bool | None:
        """Return what a compare would find now; None: it is not known."""
        memory, there = self.part.memory, self.part.drive.cells
        if self.part.kind != "compare" or memory is None:
            return True
        here = memory.cells[self.at : self.at + self.count]
        pairs = zip(there[self.first : self.first + self.count], here, strict=True)
        return compare(pairs)

    def judge(self, before: bool | None) -> None:
        """The device carried it out, or refused to."""
        part, drive = self.part, self.part.drive
        drive.done += 1
        after = self.same()
        if self.fate == "fail":
            self.verdict = "failed"
        elif before is None or after is not before:
            self.verdict = "either"
        else:
            self.verdict = "ok" if after else "differs"
        if self.verdict == "ok" and part.kind == "read":
            drive.read_blocks += self.count
        if self.verdict == "ok" and part.kind == "write":
            drive.written_blocks += self.count


@dataclass(eq=False, slots=True)
class Part:
    """One operation of the engine: a single call, or an item of many."""

    space: Space
    kind: str
    first: int  # block of the namespace, not of the space
    count: int
    memory: Memory | None = None
    at: int = 0
    cookie: int = -1
    commands: list[Command] = field(default_factory=list)
    given: set[Result] | None = None  # what it was given up with
    sent: bool = False

    def __post_init__(self) -> None:
        self.commands = [
            Command(self, at, count, self.at + at - self.first)
            for at, count in self.drive.split(self.kind, self.first, self.count)
        ]

    @property
    def drive(self) -> Drive:
        return self.space.drive

    @property
    def nbytes(self) -> int:
        return 0 if self.kind == "flush" else self.count * self.drive.block

    @property
    def offset(self) -> int:
        """Where it is for the space that it goes through."""
        return (self.first - self.space.first) * self.drive.block

    @property
    def out(self) -> list[Command]:
        """The commands that the device has still."""
        return [c for c in self.commands if self.sent and not c.verdict]

    @property
    def reported(self) -> bool:
        """Whether its result is known to whoever waits for it."""
        return self.given is not None or not self.out

    @property
    def stray(self) -> bool:
        """Given up, and the device has it still."""
        return self.given is not None and bool(self.out)

    @property
    def registered(self) -> bool:
        """Whether its memory is mapped as a whole; else, for it alone."""
        return self.memory is not None and self.memory.registered

    def will_stay(self) -> bool:
        """Whether the device would keep some of it, were it sent now."""
        fates = [self.drive.fate(self.kind, c.first, c.count)[0] for c in self.commands]
        return "held" in fates or "lost" in fates

    def touches(self, memory: Memory, at: int, count: int) -> bool:
        """Whether it uses those blocks of memory."""
        return (
            self.memory is memory and self.at < at + count and at < self.at + self.count
        )

    def give_up(self, why: type[BaseException]) -> None:
        """End it with commands out: an error that came before is what is told."""
        verdicts = {c.verdict for c in self.commands}
        ways: set[Result] = set()
        if "failed" in verdicts:
            ways.add(MediaError)
        if verdicts & {"differs", "either"}:
            ways.add(CompareError)
        if not verdicts & {"failed", "differs"}:
            ways.add(why)
        self.given = ways

    def results(self) -> set[Result]:
        """Return what it may have ended with."""
        if self.given is not None:
            return self.given
        verdicts = {c.verdict for c in self.commands}
        ways: set[Result] = set()
        if "failed" in verdicts:
            ways.add(MediaError)
        if verdicts & {"differs", "either"}:
            ways.add(CompareError)
        if verdicts <= {"ok", "either"}:
            ways.add(self.nbytes)
        return ways

    def moved(self) -> int:
        """Return the bytes of the commands that went well."""
        blocks = sum(c.count for c in self.commands if c.verdict == "ok")
        return blocks * self.drive.block


@dataclass(eq=False, slots=True)
class Call:
    """What somebody awaits: it ends when all parts have."""

    home: int
    running: Running
    parts: list[Part]
    many: bool


@dataclass(eq=False, slots=True)
class Pack:
    """A batch."""

    space: Space
    real: Real
    capacity: int
    home: int | None = None
    prepared: list[Part] = field(default_factory=list)
    unharvested: list[Part] = field(default_factory=list)
    given_up: list[Part] = field(default_factory=list)  # harvested, with the device
    cookies: int = 0
    closed: bool = False

    @property
    def flying(self) -> list[Part]:
        return [part for part in self.unharvested if not part.reported]

    @property
    def room(self) -> int:
        """How many more the engine takes."""
        self.given_up = [part for part in self.given_up if part.out]
        return self.capacity - len(self.unharvested) - len(self.given_up)
