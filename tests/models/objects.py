"""Rules about what is opened, registered, mapped, closed and left."""

from __future__ import annotations

import contextlib
import gc
from errno import EBUSY
from typing import NamedTuple
from urllib.parse import urlencode

from helpers.facade import Facade
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from models.cells import Cell, number_in
from models.reference import DISK, MEMORY, Drive, Memory, Real, Space
from models.state import State

import aiougds
from aiougds import (
    AlignmentError,
    ClosedError,
    ControllerBusyError,
    RangeError,
    RegistrationBusyError,
    blocking,
    testing,
)

GRACE_S = 0.004
PATIENT_S = 5.0
SHORT_S = 0.003
DRIVES = 2
MEMORIES = 3
small = st.integers(0, 5)
seldom = st.sampled_from([False, False, False, True])
waits = st.sampled_from([0, SHORT_S, None])


class Way(NamedTuple):
    """How a controller is opened."""

    mode: aiougds.Mode
    step: bool
    queues: int
    short: bool  # commands of at most 4 KiB
    shadow: bool
    file: bool
    again: bool  # a file that was closed, if there is one
    home: int
    patient: bool  # a cancelled operation may take its time


ways = st.builds(
    Way,
    mode=st.sampled_from(["adaptive", "interrupt", "poll", "inline"]),
    step=st.booleans(),
    queues=st.sampled_from([4, 2, 1]),
    short=st.booleans(),
    shadow=st.booleans(),
    file=st.booleans(),
    again=st.booleans(),
    home=small,
    patient=seldom,
)


class ObjectRules(State):
    """Controllers, namespaces and registrations come and go."""

    # ---- controllers ----

    @initialize(lba=st.sampled_from([512, 4096]), how=ways, allocate=st.booleans())
    def begin(self, lba: int, how: Way, allocate: bool) -> None:
        """A history starts with something to do it with."""
        self.block = lba
        for _ in range(2):
            buffer = bytearray(MEMORY * lba)
            self.foreign.append(Memory(self.number(), lba, False, buffer))
        self.open_drive(how)
        self.add_memory(self.drives[0], allocate=allocate)

    @precondition(lambda self: sum(d.state != "closed" for d in self.drives) < DRIVES)
    @rule(how=ways)
    def open(self, how: Way) -> None:
        self.open_drive(how)

    def open_drive(self, how: Way) -> None:
        path, cells = None, [Cell() for _ in range(DISK)]
        if how.file:
            path = self.folder / f"drive-{self.number()}"
            if how.again and self.shelf:
                path, cells = self.shelf.popitem()
        options: dict[str, object] = {"lba": self.block, "step": int(how.step)}
        if path is None or not path.exists():
            options["size"] = DISK * self.block
        if how.shadow:
            options["shadow"] = 1
        address = f"emu:{path or ''}?{urlencode(options)}"
        most = 4096 if how.short else 1 << 20

        async def work() -> Real:
            keywords = aiougds.OpenKeywords(
                mode=how.mode,
                queues=how.queues,
                max_transfer=most,
                cancel_grace_s=PATIENT_S if how.patient else GRACE_S,
            )
            if not self.homes.can_cancel:
                return Facade(blocking.open_controller(address, **keywords))
            return await aiougds.open_controller(address, **keywords)

        drive = Drive(
            number=self.number(),
            real=self.get(work(), how.home),
            block=self.block,
            most=most // self.block,
            shared=how.mode == "poll" or how.queues < 2 * self.homes.count,
            patient=how.patient,
            cells=cells,
            path=path,
        )
        drive.spaces.append(Space(drive, drive.real.namespace(), 0, DISK))
        gone = [d for d in self.drives if d.state == "closed"]
        if gone and len(self.drives) > DRIVES:
            self.drives.remove(gone[0])
        self.drives.append(drive)

    @precondition(lambda self: self.open_drives)
    @rule(drive=small, first=st.integers(0, DISK - 1), readonly=st.booleans())
    def region(self, drive: int, first: int, readonly: bool) -> None:
        there = self.pick(drive, self.open_drives)
        whole = there.spaces[0]
        if whole.closed or len(there.spaces) > 2:
            return
        blocks = DISK - first
        real = whole.real.region(first * self.block, blocks * self.block, readonly)
        there.spaces.append(Space(there, real, first, blocks, readonly))

    @property
    def open_drives(self) -> list[Drive]:
        return [drive for drive in self.drives if drive.state != "closed"]

    @precondition(lambda self: self.drives)
    @rule(drive=small, timeout_s=waits, force=st.booleans(), home=small, end=seldom)
    def close_drive(
        self, drive: int, timeout_s: float | None, force: bool, home: int, end: bool
    ) -> None:
        there = self.some_drive(drive)
        flying, strays = self.flying(there), [p for p in self.out(there) if p.stray]
        if force and strays:  # it passes over batches, not over who waits just now
            flying = [p for p in flying if any(p in call.parts for call in self.calls)]
        busy = there.state != "closed" and (flying or (strays and not force))
        if not busy and not end:
            return
        if busy and timeout_s is None and (force or not strays):
            return  # it would wait for what only another rule ends

        async def work() -> object:
            return await there.real.aclose(timeout_s, force=force)

        if busy:
            error = self.refused(work(), {ControllerBusyError}, home)
            assert isinstance(error, ControllerBusyError)
            assert error.errno == EBUSY
            return
        self.get(work(), home)
        self.closed(there)

    def closed(self, drive: Drive) -> None:
        """It was closed: all that belongs to it has ended."""
        if drive.state != "closed" and drive.path is not None:
            self.shelf[drive.path] = drive.cells
        drive.state = "closed"
        for part in self.out(drive):  # a forced close: the device was stopped
            self.forget(part.out, aborted=False)

    @precondition(lambda self: self.open_drives)
    @rule(drive=small, home=small, end=seldom)
    def leave_drive(self, drive: int, home: int, end: bool) -> None:
        """Leave ``async with`` while operations were given up, or not."""
        there = self.pick(drive, self.open_drives)
        strays = [part for part in self.out(there) if part.stray]
        if (self.flying(there) and not strays) or not end:
            return  # it would wait

        async def work() -> object:
            return await there.real.__aexit__(None, None, None)

        if not strays:
            self.get(work(), home)
            self.closed(there)
            return
        self.refused(work(), {ControllerBusyError}, home)
        assert not there.real.closed
        self.drives.remove(there)
        self.ghosts.append(there)
        there.path = None  # nobody will open it again
        self.packs = [pack for pack in self.packs if pack.space.drive is not there]

    @precondition(lambda self: any(len(d.spaces) > 1 for d in self.drives))
    @rule(drive=small, timeout_s=waits, home=small)
    def close_region(self, drive: int, timeout_s: float | None, home: int) -> None:
        there = self.pick(drive, [d for d in self.drives if len(d.spaces) > 1])
        space = there.spaces[-1]
        using = [part for part in self.parts if part.space is space]
        queued = [p for p in self.flying(there) if p.space is space]
        if queued and timeout_s is None and not any(part.stray for part in using):
            return  # it would wait

        async def work() -> object:
            return await space.real.aclose(timeout_s)

        if using and there.state != "closed":
            error = self.refused(work(), {ControllerBusyError}, home)
            assert isinstance(error, ControllerBusyError)
            assert error.errno == EBUSY
            assert not space.real.closed
            return
        self.get(work(), home)
        assert space.real.closed
        space.closed = True
        there.spaces.remove(space)

    # ---- memory ----

    @precondition(lambda self: self.open_drives)
    @rule(drive=small, allocate=st.booleans(), slot=small)
    def register(self, drive: int, allocate: bool, slot: int) -> None:
        there = self.pick(drive, self.open_drives)
        whole = there.spaces[0]
        if whole.closed:
            return
        if len(self.memories) >= MEMORIES:
            gone = [m for m in self.memories if m.closed]
            if not gone:
                return
            self.memories.remove(self.pick(slot, gone))
        self.add_memory(there, allocate=allocate)

    def add_memory(self, drive: Drive, *, allocate: bool) -> None:
        nbytes, whole = MEMORY * self.block, drive.spaces[0]
        buffer: bytearray | memoryview
        if allocate:
            real = whole.real.allocate(nbytes)
            buffer = real.view
        else:
            buffer = bytearray(nbytes)
            real = whole.real.register(buffer)
        memory = Memory(self.number(), self.block, True, buffer, real, drives=[drive])
        self.memories.append(memory)

    @precondition(lambda self: self.memories and self.drives)
    @rule(memory=small, drive=small, home=small)
    def map(self, memory: int, drive: int, home: int) -> None:
        here, there = self.pick(memory, self.memories), self.some_drive(drive)

        async def work() -> object:
            return await here.real.map(there.real)

        if here.closed or there.state == "closed":
            self.refused(work(), {ClosedError}, home)
            return
        self.get(work(), home)
        if there not in here.drives:
            here.drives.append(there)

    @precondition(lambda self: self.memories)
    @rule(memory=small, timeout_s=waits, home=small, leave=st.booleans(), end=seldom)
    def close_memory(
        self, memory: int, timeout_s: float | None, home: int, leave: bool, end: bool
    ) -> None:
        here = self.pick(memory, self.memories)
        using = [part for part in self.parts if part.memory is here]
        busy = bool(using) and not here.closed
        if not end and not (busy and not leave):
            return
        if busy and (leave or timeout_s is None) and not any(p.stray for p in using):
            return  # it would wait

        async def work() -> object:
            if leave:
                return await here.real.__aexit__(None, None, None)
            return await here.real.aclose(timeout_s)

        if not busy:
            self.get(work(), home)
            here.closed = True
            return
        error = self.refused(work(), {RegistrationBusyError}, home)
        assert isinstance(error, RegistrationBusyError)
        assert error.errno == EBUSY
        if leave:
            here.closed = True
            self.abandoned.append(here)
        else:
            assert not here.real.closed

    @precondition(lambda self: any(d.state == "live" for d in self.drives))
    @rule(drive=small)
    def read_all(self, drive: int) -> None:
        """Read a namespace back, unless a fault would keep it."""
        there = self.pick(drive, [d for d in self.drives if d.state == "live"])
        fates = {there.fate("read", block, 1)[0] for block in range(DISK)}
        if fates == {"now"}:
            self.read_back(there)

    def bad_arguments(self, drive: Drive) -> None:
        """What is wrong is refused before anything is sent."""
        whole, buffer = drive.spaces[0], bytearray(2 * self.block)

        async def past() -> object:
            return await whole.real.read(buffer, offset=(DISK - 1) * self.block)

        async def between() -> object:
            return await whole.real.read(buffer, offset=self.block // 2)

        self.refused(past(), {RangeError}, 1)
        self.refused(between(), {AlignmentError}, 0)
        self.counts_of(drive)

    # ---- the end ----

    def let_go(self) -> None:
        for drive in self.all_drives:
            for script in drive.scripts:
                script.handle.clear()
        self.homes.turn()
        for drive in self.all_drives:

            async def work(drive: Drive = drive) -> None:
                with contextlib.suppress(aiougds.UGDSError):
                    await drive.real.reset()
                await drive.real.aclose(1, force=True)

            self.run(work())
        for memory in self.memories:
            if memory.real is not None:
                self.run(memory.real.aclose(0))
        with contextlib.suppress(AssertionError):
            self.homes.close()

    def put_away(self) -> None:
        for drive in self.all_drives:
            self.put_away_drive(drive)
        self.all_is_as_it_should_be()
        assert not self.parts
        assert not self.calls
        for memory in self.memories:
            self.get(memory.real.aclose(0))
            memory.closed = True
        gc.collect()  # what an exception's frames held
        for memory in self.foreign:
            memory.buffer.append(0)  # nobody holds it
        for drive in self.drives:
            if drive.state == "live":
                self.bad_arguments(drive)
                assert testing.counters(drive.real).iommu_faults == 0
                self.get(drive.real.aclose(5))
        if self.ghosts:
            self.end_ghosts()
        for drive in self.all_drives:
            assert drive.real.closed
            assert not drive.real._device.channels
            assert drive.real.quarantine == ()
            assert not drive.real._device.lingers()
        for path, cells in self.shelf.items():
            data = path.read_bytes()
            for index, cell in enumerate(cells):
                part = slice(index * self.block, (index + 1) * self.block)
                assert number_in(data[part]) in cell.may

    def put_away_drive(self, drive: Drive) -> None:
        raise NotImplementedError

    def end_ghosts(self) -> None:
        """Whoever opens something next frees what lingers."""

        def gone() -> bool:
            async def work() -> None:
                if self.homes.can_cancel:
                    await (await aiougds.open_controller("emu:?size=4KiB")).aclose()
                else:
                    blocking.open_controller("emu:?size=4KiB").close()

            self.get(work())
            return all(drive.real.closed for drive in self.ghosts)

        self.wait(gone, lambda: "what was left never ended")
