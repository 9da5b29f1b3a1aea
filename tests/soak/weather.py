"""Faults that come and go at random, and resets where one was fatal."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from helpers.world import Opened

from aiougds import BrokenError
from aiougds.testing import Action, Fault, inject

COMMANDS: Final = (None, "read", "write", "flush")
# One completion more than the host asked for, each time.
EXTRA: Final[tuple[Action, ...]] = ("dup_cqe", "bad_cid", "free_cid", "bad_sqid")
STUBBORN: Final[tuple[Action, ...]] = ("enable_stuck", "reset_refused", "never_ready")
FATAL_SHARE: Final = 0.012
RESET_WITHIN_S: Final = 60.0  # a machine may have much else to do


def _status(rng: random.Random) -> Fault:
    sct, sc = rng.choice(((0, 0x06), (0, 0x22), (1, 0x80), (2, 0x81), (3, 0), (7, 1)))
    return Fault.status(rng.choice(COMMANDS), sct=sct, sc=sc, dnr=rng.random() < 0.5)


# What passes, or is gone with the fault.
PASSING: Final[tuple[Callable[[random.Random], Fault], ...]] = (
    _status,
    lambda rng: Fault.delay(rng.uniform(1e-4, 5e-3), rng.choice(COMMANDS)),
    lambda rng: Fault.hold(rng.choice(COMMANDS)),
    lambda rng: Fault.lose_interrupt(rng.choice(COMMANDS)),
    lambda rng: Fault.spurious_interrupt(rng.choice(COMMANDS)),
    lambda rng: Fault.early_interrupt(1e-3, rng.choice(COMMANDS)),
    lambda rng: Fault.bad_sqhd(rng.choice(COMMANDS)),
    *[lambda rng: Fault(rng.choice(EXTRA), rng.choice(COMMANDS), count=20)] * 3,
)
# What only a reset ends.
FATAL: Final[tuple[Callable[[random.Random], Fault], ...]] = (
    lambda _rng: Fault.cfs(count=1),
    lambda rng: Fault.stuck_phase(rng.choice(COMMANDS[1:3]), count=1),
    lambda rng: Fault.drop(rng.choice(COMMANDS[1:3]), count=rng.randint(1, 4)),
)


class Weather(threading.Thread):
    """Injects into one controller until it is told to stop; then all is well."""

    def __init__(
        self,
        target: Opened,
        reset: Callable[[], None],
        seed: int,
        give_up: Callable[[], None],
    ) -> None:
        super().__init__(daemon=True)
        self.give_up = give_up  # without resets nobody gets on
        self.target = target
        self.reset = reset
        self.random = random.Random(seed)
        self.over = threading.Event()
        self.hits: Counter[str] = Counter()
        self.resets = 0
        self.extra = 0  # unasked completions at most
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self._spell()
        except BaseException as error:  # noqa: BLE001
            self.error = error
            self.give_up()

    def stop(self) -> None:
        """Stop, and leave the controller live."""
        self.over.set()
        self.join()
        if self.error is not None:
            raise self.error
        self._repair()

    def _spell(self) -> None:
        rng = self.random
        if rng.random() < FATAL_SHARE:
            self._disaster()
            return
        faults = [rng.choice(PASSING)(rng)]
        if rng.random() < 0.3:
            faults.append(rng.choice(PASSING)(rng))
        if rng.random() < 0.2:
            faults.append(Fault.abort_refused())
        self.extra += sum(fault.count for fault in faults if fault.action in EXTRA)
        with ExitStack() as stack:
            handles = [stack.enter_context(inject(self.target, f)) for f in faults]
            self.over.wait(rng.uniform(1e-3, 15e-3))
        for handle in handles:
            self.hits[handle.fault.action] += handle.hits
        self._repair()  # a machine that was slow may have been taken for a hang
        self.over.wait(rng.uniform(0, 10e-3))

    def _disaster(self) -> None:
        rng = self.random
        if rng.random() < 0.3:  # out of the blue
            self._again()
            return
        with inject(self.target, rng.choice(FATAL)(rng)) as handle:
            end = time.monotonic() + RESET_WITHIN_S
            while self.target.state == "live" and not self.over.is_set():
                assert time.monotonic() < end, (
                    f"{handle} did not bring it down: {self.target.statistics()}, "
                    f"{self.target.quarantine}"
                )
                self.over.wait(2e-3)
        self.hits[handle.fault.action] += handle.hits
        self._again(stubborn=rng.random() < 0.2)

    def _repair(self) -> None:
        if self.target.state != "live":
            self._again()

    def _again(self, *, stubborn: bool = False) -> None:
        """Reset it; a stubborn one obeys only when it is told a second time."""
        if stubborn:
            action = self.random.choice(STUBBORN)
            with inject(self.target, Fault(action)):
                try:
                    self.reset()
                except BrokenError:
                    self.hits[action] += 1
        self.reset()
        self.resets += 1
        assert self.target.state == "live"
