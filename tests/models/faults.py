"""Rules about what the device does wrong, and about its repair."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from models.calls import PATIENCE_S, TRIES
from models.objects import ObjectRules, seldom, small
from models.packs import PackRules
from models.reference import DISK, Drive, Part, Script

from aiougds import (
    ClosedError,
    ControllerWedgedError,
    DeviceRemovedError,
    OperationAbortedError,
    OperationTimeoutError,
)
from aiougds.testing import Fault, inject

MEDIA = 2 << 8 | 0x81
COMMANDS = ("read", "write", "compare", "flush", "write_zeroes", "deallocate", "verify")


class Machine(ObjectRules, PackRules):
    """All rules together."""

    def running(self, drive: int) -> Drive:
        chosen: Drive = self.pick(
            drive, [d for d in self.all_drives if d.state == "live"]
        )
        return chosen

    @precondition(lambda self: any(d.state == "live" for d in self.drives))
    @rule(
        action=st.sampled_from(
            ["hold", "hold", "hold", "status", "drop", "abort_refused"]
        ),
        drive=small,
        command=st.none() | st.sampled_from(COMMANDS),
        first=st.integers(0, DISK - 1),
        blocks=st.integers(0, 3),
    )
    def inject(
        self, action: str, drive: int, command: str | None, first: int, blocks: int
    ) -> None:
        there = self.pick(drive, [d for d in self.drives if d.state == "live"])
        if action == "abort_refused":
            self.add_script(there, Fault(action))
            return
        command = command or "read"
        fault = Fault(action, command)  # type: ignore[arg-type]
        if action == "status":
            fault = Fault.status(command, sct=2, sc=0x81)
        self.add_script(there, fault.on(slba=first if blocks else 0, nlb=blocks))

    @precondition(lambda self: any(d.scripts for d in self.all_drives))
    @rule(drive=small, script=small)
    def clear(self, drive: int, script: int) -> None:
        there = self.pick(drive, [d for d in self.all_drives if d.scripts])
        if there.state in ("wedged", "removed"):
            return  # whether it serves them now is anybody's guess
        self.clear_script(there, self.pick(script, there.scripts))

    def clear_script(self, drive: Drive, script: Script) -> None:
        script.handle.clear()
        drive.scripts.remove(script)
        if drive.state == "live":
            held = [
                command
                for part in self.out(drive)
                for command in part.out
                if command.script is script and command.fate == "held"
            ]
            self.carry_out(held)

    @precondition(lambda self: self.drives)
    @rule(drive=small, home=small, end=seldom)
    def reset(self, drive: int, home: int, end: bool) -> None:
        there = self.pick(drive, self.drives)
        if end or there.state != "live":
            self.reset_drive(there, home)

    def reset_drive(self, drive: Drive, home: int = 0) -> None:
        if drive.state in ("closed", "removed"):
            gone = {"closed": ClosedError, "removed": DeviceRemovedError}
            self.refused(drive.real.reset(), {gone[drive.state]}, home)
            return
        self.get(drive.real.reset(), home)
        drive.state = "live"
        drive.resets += 1
        for part in self.flying(drive):
            part.give_up(OperationAbortedError)
        for part in self.out(drive):
            self.forget(part.out, aborted=False)

    @precondition(lambda self: any(d.state == "live" for d in self.drives))
    @rule(drive=small, removed=seldom, home=small, end=seldom)
    def break_drive(self, drive: int, removed: bool, home: int, end: bool) -> None:
        """Have a flush end the controller: a fatal status, or nobody is there."""
        there = self.pick(drive, [d for d in self.drives if d.state == "live"])
        if not end or there.spaces[0].closed or there.fate("flush", 0, 0)[0] != "now":
            return
        error = DeviceRemovedError if removed else ControllerWedgedError
        fault = Fault("removed" if removed else "cfs", "flush")
        with inject(there.real, fault) as broken:
            for _ in range(TRIES):  # an executor may be too late for it
                flush = there.spaces[0].real.flush(timeout_s=PATIENCE_S[True])
                self.refused(flush, {error, OperationTimeoutError}, home)
                if there.real.statistics().commands > there.sent:
                    break
            self.wait(lambda: broken.hits == 1, lambda: "a flush was not served")
        flying = self.flying(there)
        part = Part(there.spaces[0], "flush", 0, 0)
        self.launch([part], home)
        (command,) = part.commands
        if not command.verdict:
            raise AssertionError("a flush that was to be lost")
        self.lose(there, part)
        there.state = "removed" if removed else "wedged"
        for flown in flying:
            flown.give_up(error)

    def lose(self, drive: Drive, part: Part) -> None:
        """The device will never answer it."""
        for command in part.commands:
            command.fate, command.verdict = "lost", ""
            drive.done -= 1
        part.given = {ControllerWedgedError}
        self.parts.append(part)

    def put_away_drive(self, drive: Drive) -> None:
        if drive.real.closed:
            return
        if drive.state == "removed":
            self.get(drive.real.aclose(5, force=True))
            self.closed(drive)
            return
        if drive.state == "wedged":
            self.reset_drive(drive)
        for script in list(drive.scripts):
            self.clear_script(drive, script)
            self.all_is_as_it_should_be()  # before others run beside it
        if self.out(drive):  # commands that were dropped: they never end
            self.reset_drive(drive)
        self.all_is_as_it_should_be()
        if drive in self.drives:
            self.read_back(drive)
