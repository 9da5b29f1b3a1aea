"""Runs the checks of a plan, one after another, and reports each as it ends."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import io
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Self

from vm.guest.check import Check, checks_in
from vm.guest.ground import SHARE, Ground, here
from vm.guest.kmsg import Message, bad_ones

# How long a check that is out of time has to unwind, before the whole run ends.
UNWIND_S = 15
SHOWN = 400  # characters of a value in a report
FLUSHED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class OutOfTime(KeyboardInterrupt):
    """The time of a check is up; event loops let this one through."""


class Report:
    """One JSON line for each thing that happened, with the host at once."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, FLUSHED)

    def add(self, **line: object) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")


def stacks(loop: asyncio.AbstractEventLoop | None) -> str:
    """Return where every thread is, and every task of the loop."""
    text = io.StringIO()
    for thread, frame in sys._current_frames().items():
        text.write(f"thread {thread}:\n{''.join(traceback.format_stack(frame))}")
    if loop is not None:
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=text)
    return text.getvalue()


class Limit:
    """Ends a check when its time is up, and the run if that does not help."""

    __slots__ = ("_seconds", "loop", "where")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.loop: asyncio.AbstractEventLoop | None = None
        self.where = ""

    def __enter__(self) -> Self:
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        faulthandler.dump_traceback_later(self._seconds + UNWIND_S, exit=True)
        return self

    def __exit__(self, *ending: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        self.where = stacks(self.loop)
        raise OutOfTime


def call(check: Check, ground: Ground, limit: Limit) -> None:
    if not inspect.iscoroutinefunction(check.function):
        check.function(ground)
        return
    with asyncio.Runner() as runner:
        limit.loop = runner.get_loop()
        runner.run(check.function(ground))


def described(error: BaseException) -> str:
    """Return a traceback with the values that a plain assert does not show."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in shown.stack:
        values = frame.locals or {}
        frame.locals = {name: shortened(value) for name, value in values.items()}
    own = [frame for frame in shown.stack if frame.filename != __file__]
    shown.stack = traceback.StackSummary.from_list(own)
    return "".join(shown.format())


def shortened(value: str) -> str:
    half = SHOWN // 2
    return value if len(value) <= SHOWN else f"{value[:half]} ... {value[-half:]}"


def attempt(check: Check, ground: Ground) -> str:
    """Run a check; return what went wrong, or nothing."""
    limit = Limit(check.limit_s)
    try:
        with limit:
            call(check, ground, limit)
    except OutOfTime:
        return f"not finished in {check.limit_s} s\n{limit.where}"
    except BaseException as error:  # noqa: BLE001 - a check may fail in any way
        return described(error)
    return ""


def complaint(messages: list[Message], allows: tuple[str, ...]) -> str:
    bad = bad_ones(messages, allows)
    if not bad:
        return ""
    first = "the kernel said what it must not:"
    every = "all that it said meanwhile:"
    return "\n".join((first, *map(str, bad), every, *map(str, messages)))


def run_one(check: Check, ground: Ground, report: Report) -> None:
    report.add(event="started", name=check.name)
    ground.log.say(f"check {check.name}")
    began = time.monotonic()
    failure = attempt(check, ground)
    seconds = round(time.monotonic() - began, 3)
    wrong = complaint(ground.messages(), check.allows)
    ground.seen.clear()
    detail = "\n".join(part for part in (failure, wrong) if part)
    outcome = "failed" if detail else "passed"
    line = {"name": check.name, "outcome": outcome, "seconds": seconds}
    report.add(event="ended", detail=detail, **line)


def main() -> int:
    report = Report(SHARE / "results.jsonl")
    ground = here()
    facts = {"release": os.uname().release, "processors": os.cpu_count()}
    report.add(event="up", seconds=time.clock_gettime(time.CLOCK_BOOTTIME), **facts)
    checks = checks_in(tuple(ground.plan["checks"]))
    for module in () if ground.plan["boots"] else ground.plan["modules"]:
        ground.load(module)
    before = complaint(ground.messages(), ())
    report.add(event="ready", detail=before)
    ground.seen.clear()
    for name in ground.plan["selected"]:
        run_one(checks[name], ground, report)
    report.add(event="done", detail=complaint(ground.messages(), ()))
    # A thread that a check left behind must not keep the guest up.
    faulthandler.dump_traceback_later(UNWIND_S, exit=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
