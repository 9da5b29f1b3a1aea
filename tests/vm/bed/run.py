"""One guest run, and what came out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vm.bed.machine import Machine
from vm.guest.check import Check, checks_in

# Boot, loading modules and the end, on a slow machine beside another guest.
AROUND_S = 90.0
SYSTEMD_S = 180.0


@dataclass(frozen=True, slots=True)
class GuestRun:
    """A guest to start, and the checks to run in it.

    ``checks``: modules below ``tests/`` (``vm.checks.bed``). ``modules``: kernel
    modules to load before, as if built where their sources are, each with its
    parameters (``kmod/ugds_drv.ko name=value``). ``programs``: C files below
    ``tests/vm`` to build. ``packages``: of Debian, for a check to install.
    ``boots``: a module of checks whose ``prepare`` is called, and then systemd boots
    the guest and runs the checks last; ``modules`` are installed, not loaded.
    ``quick``: part of what every change has to pass. ``alone``: no other guest beside
    it, because times are compared.
    """

    name: str
    checks: tuple[str, ...]
    kernel: str = "6.12"
    machine: Machine = field(default_factory=Machine)
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    boots: str | None = None
    quick: bool = False
    alone: bool = False

    def all_checks(self) -> dict[str, Check]:
        return checks_in(self.checks)

    def limit_s(self, selected: Iterable[str]) -> float:
        known = self.all_checks()
        around = AROUND_S + (SYSTEMD_S if self.boots else 0)
        return around + sum(known[name].limit_s for name in selected)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended; ``detail`` says why it failed."""

    name: str
    state: Literal["passed", "failed", "missing"]
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a guest left: outcomes by name, its own fate, its logs."""

    outcomes: dict[str, Outcome]
    trouble: str
    console: str
    dmesg: str
    seconds: float
    boot_s: float | None

    def outcome(self, name: str) -> Outcome:
        """Return how a check ended; one that never reported has failed."""
        return self.outcomes[name]


# What QEMU's exit status means: see ``start.sh`` for the guest's own.
OWN_STATUS = 16
ENDED = {
    0: "the guest rebooted or went down: a panic, most likely (see its console)",
    1: "QEMU did not start",
    124: "the guest did not end in time",
    137: "the guest did not end in time, and QEMU had to be killed",
}


def fate(status: int) -> str:
    """Return what is wrong about QEMU's exit status, or nothing."""
    if status in ENDED:
        return ENDED[status]
    code = (status >> 1) - OWN_STATUS
    if not status & 1 or code < 0:
        return f"QEMU ended with {status}"
    return f"the guest's runner ended with {code}" if code else ""


def lines(path: Path) -> list[dict[str, object]]:
    """Read a file of JSON lines; the last may have been cut off."""
    found: list[dict[str, object]] = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
    return found


# A processor meets a breakpoint with which the kernel was patching its own code, and
# which is gone when the kernel looks: the emulation's doing, on a busy host.
PATCHING = "Oops: int3"


def died_booting(share: Path) -> bool:
    """Whether QEMU's emulation broke the kernel before anything of ours ran."""
    begun = (share / "results.jsonl").exists()
    return not begun and PATCHING in text(share / "console.log")


def text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def missing(name: str, started: bool, trouble: str) -> Outcome:
    when = "while it ran" if started else "before it began"
    cause = trouble or "the run ended early"
    return Outcome(name, "missing", 0.0, f"no result: {cause}, {when}")


def read_result(
    share: Path, selected: Iterable[str], status: int, seconds: float
) -> Result:
    """Read what a guest has left in its share."""
    reported = lines(share / "results.jsonl")
    of = {str(line["event"]): line for line in reported}
    started = {line["name"] for line in reported if line["event"] == "started"}
    outcomes: dict[str, Outcome] = {}
    for line in reported:
        if line["event"] == "ended":
            state: Literal["passed", "failed"] = (
                "passed" if line["outcome"] == "passed" else "failed"
            )
            name, took = str(line["name"]), float(str(line["seconds"]))
            outcomes[name] = Outcome(name, state, took, str(line["detail"]))
    troubles = [fate(status)]
    if "up" not in of:
        troubles.append("its runner never began")
    elif "ready" not in of:
        troubles.append("its modules were not all loaded")
    troubles += [str(of[event]["detail"]) for event in ("ready", "done") if event in of]
    trouble = "; ".join(part for part in troubles if part)
    for name in selected:
        if name not in outcomes:
            outcomes[name] = missing(name, name in started, trouble)
    boot = float(str(of["up"]["seconds"])) if "up" in of else None
    console, dmesg = text(share / "console.log"), text(share / "dmesg.txt")
    return Result(outcomes, trouble, console, dmesg, seconds, boot)
