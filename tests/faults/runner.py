"""Run many cases at once: they wait more than they work."""

from __future__ import annotations

import faulthandler
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from faults.case import Case, Ends
from faults.scenario import Scenario
from helpers.matrix import Place

WIDTH: Final = 16
LIMIT_S: Final = 45.0  # of one case, on a machine that has much else to do


class _Turn:
    """A thread that runs one case."""

    __slots__ = ("case", "ends", "error", "started", "thread")

    def __init__(self, case: Case, done: queue.SimpleQueue[_Turn]) -> None:
        self.case = case
        self.ends: Ends | None = None
        self.error: BaseException | None = None
        self.started = time.monotonic()
        self.thread = threading.Thread(target=self._run, args=(done,), daemon=True)
        self.thread.start()

    def _run(self, done: queue.SimpleQueue[_Turn]) -> None:
        try:
            self.ends = self.case.run()
        except BaseException as error:  # noqa: BLE001
            error.add_note(f"in {self.case}")
            self.error = error
        done.put(self)


def run_cases(
    scenario: Scenario, places: Sequence[Place], folder: Path
) -> dict[Place, Ends]:
    """Run a scenario in many places; raise for all that went wrong.

    One that does not end is a failure: every thread's stack is shown, and its thread
    is left behind.
    """
    waiting = [Case(scenario, place, folder) for place in places][::-1]
    running: set[_Turn] = set()
    ends: dict[Place, Ends] = {}
    errors: list[Exception] = []
    done: queue.SimpleQueue[_Turn] = queue.SimpleQueue()
    while waiting or running:
        while waiting and len(running) < WIDTH:
            running.add(_Turn(waiting.pop(), done))
        oldest = min(turn.started for turn in running)
        try:
            turn = done.get(timeout=max(0.01, oldest + LIMIT_S - time.monotonic()))
        except queue.Empty:
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
            stuck = ", ".join(str(turn.case) for turn in running)
            raise AssertionError(f"hangs: {stuck}") from None
        running.discard(turn)
        turn.thread.join()
        if turn.ends is not None:
            ends[turn.case.place] = turn.ends
        else:
            assert turn.error is not None
            if not isinstance(turn.error, Exception):
                raise turn.error
            errors.append(turn.error)
    if errors:
        raise ExceptionGroup(f"{scenario}: {len(errors)} cases failed", errors)
    return ends


def belongings() -> tuple[Counter[str], Counter[str]]:
    """Return what this process holds: descriptors by kind, our threads by name."""
    kinds: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # of the listing itself
            continue
        kinds[target.split("[")[0] if ":[" in target else target] += 1
    names: Counter[str] = Counter()
    for thread in Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text().strip()
        except OSError:  # it has just ended
            continue
        if name.startswith("ugds"):
            names[name] += 1
    return kinds, names
