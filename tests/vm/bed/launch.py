"""Start a guest, wait for its end, and bring back what it left."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder
from vm.bed.disks import make_storage
from vm.bed.initramfs import initramfs
from vm.bed.kernels import Kernel, kernel
from vm.bed.machine import Machine, slot
from vm.bed.modules import module
from vm.bed.packages import package
from vm.bed.programs import program
from vm.bed.qemu import Boot, Properties, command, devices
from vm.bed.run import GuestRun, Result, died_booting, read_result
from vm.guest.ground import Module, Plan

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOTS = 3
KEPT_FOR_S = 24 * 3600
# The process groups of guests that run now.
_running: set[int] = set()
PASSED_ON = "UGDS_"  # options of the package are the guest's too


@dataclass(frozen=True, slots=True)
class Options:
    """How guests are run here."""

    accel: str = "tcg"
    keep: bool = False


def guests_at_once() -> int:
    """Return how many guests this machine carries; two share two processors well."""
    return max(2, min(4, (os.cpu_count() or 1) // 2))


@contextmanager
def place_to_run(alone: bool) -> Generator[None]:
    """Wait for a free place among the guests of all who share this cache."""
    paths = [cache_folder() / f"slot.{n}" for n in range(guests_at_once())]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("a")) for path in paths]
        if alone:
            for file in files:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
            return
        while not any(taken(file.fileno()) for file in files):
            time.sleep(0.1)
        yield


def taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def described_devices(machine: Machine) -> dict[str, Properties]:
    return {str(device["id"]): device for device in devices(machine) if "id" in device}


def make_plan(run: GuestRun, booted: Kernel, selected: list[str]) -> Plan:
    modules: list[Module] = []
    for wanted in run.modules:
        path, *parameters = wanted.split()
        modules.append(
            {"path": str(module(booted, path)), "parameters": parameters},
        )
    names = [item.serial for item in run.machine.controllers]
    names += [item.name for item in run.machine.peers]
    return {
        "release": booted.release,
        "modules": modules,
        "checks": list(run.checks),
        "selected": selected,
        "programs": {
            Path(source).stem: str(program(source)) for source in run.programs
        },
        "packages": {name: str(package(name)) for name in run.packages},
        "devices": described_devices(run.machine),
        "slots": {name: slot(run.machine, name) for name in names},
        "iommu": run.machine.iommu,
        "boots": run.boots,
    }


def command_script(words: list[str]) -> str:
    """Return what process 1 of the guest runs."""
    env = {
        "HOME": "/root",
        "PATH": PATH,
        "TMPDIR": "/run/tmp",
        "PYTHONPATH": str(ROOT / "tests"),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    own = {k: value for k, value in os.environ.items() if k.startswith(PASSED_ON)}
    exports = [f"export {k}={shlex.quote(value)}" for k, value in (env | own).items()]
    return "\n".join((*exports, shlex.join(words), ""))


def boot_of(booted: Kernel, share: Path, accel: str) -> Boot:
    start = ROOT / "tests" / "vm" / "guest" / "start.sh"
    options = (f"vm.modules={booted.modules.parent}", f"vm.start={start}")
    return Boot(booted.image, initramfs(booted), share, options, accel)


def forget_old(folder: Path) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - KEPT_FOR_S:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def share_for(name: str, keep: bool) -> Generator[Path]:
    """Give a folder that host and guest share; without ``keep`` only logs stay."""
    runs = cache_folder("runs")
    forget_old(runs)
    plain = "".join(letter if letter.isalnum() else "-" for letter in name)
    share = Path(tempfile.mkdtemp(prefix=f"{plain}-", dir=runs))
    try:
        yield share
    finally:
        if not keep:
            for folder in ("disks", "peers"):
                shutil.rmtree(share / folder, ignore_errors=True)


def run_qemu(line: list[str], share: Path, limit_s: float) -> int:
    """Run QEMU to its end, and see to it that there is one."""
    # It may wait for an I/O under its big lock, and then ignores all but SIGKILL.
    bounded = ["timeout", "-k", "2", f"{limit_s:.0f}", *line]
    with (
        (share / "console.log").open("wb") as console,
        subprocess.Popen(
            bounded,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        _running.add(process.pid)
        try:
            return process.wait()
        finally:
            _running.discard(process.pid)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def end_guests() -> None:
    """Kill the guests that still run, where their session ends early."""
    for group in tuple(_running):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def boot(
    machine: Machine,
    booted: Kernel,
    share: Path,
    words: list[str],
    limit_s: float,
    options: Options,
    alone: bool = False,
) -> tuple[int, float]:
    """Run a command in a guest; return QEMU's status and the seconds it took."""
    make_storage(machine, share)
    (share / "command.sh").write_text(command_script(words))
    line = command(machine, boot_of(booted, share, options.accel))
    with place_to_run(alone):
        began = time.monotonic()
        status = run_qemu(line, share, limit_s)
        return status, time.monotonic() - began


def launch(run: GuestRun, selected: list[str], options: Options) -> Result:
    """Run the selected checks of a run in a guest of its own."""
    booted = kernel(run.kernel)
    plan = make_plan(run, booted, selected)
    with share_for(run.name, options.keep) as share:
        (share / "plan.json").write_text(json.dumps(plan, indent=1))
        words = [sys.executable, "-m", "vm.guest.runner"]
        if run.boots:
            before = [sys.executable, "-m", "vm.guest.userspace"]
            (share / "before.sh").write_text(command_script(before))
        limit_s = run.limit_s(selected)
        for number in itertools.count(1):
            status, seconds = boot(
                run.machine, booted, share, words, limit_s, options, run.alone
            )
            if number == BOOTS or not died_booting(share):
                return read_result(share, selected, status, seconds)
            (share / "console.log").rename(share / f"console-{number}.log")
        raise AssertionError("not reached")
