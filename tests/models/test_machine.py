"""Random histories of everything at once, against the reference model.

``AIOUGDS_SOAK_S`` says for how many seconds the long ones run.
"""

from __future__ import annotations

import os
import time
from typing import Final

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test
from models.faults import Machine
from models.homes import Loops, Threads

SOAK_S: Final = float(os.environ.get("AIOUGDS_SOAK_S", "300"))
SHARES: Final = {"loops": 0.7, "threads": 0.3}


class OnLoops(Machine):
    """On two event loops, held by the machine and moved a step at a time."""

    make_homes = Loops


class OnThreads(Machine):
    """On the blocking interface."""

    make_homes = Threads


MACHINES: Final[dict[str, type[Machine]]] = {"loops": OnLoops, "threads": OnThreads}
LONG: Final = settings(
    max_examples=50,
    stateful_step_count=80,
    derandomize=False,  # by the seed
    database=None,
    report_multiple_bugs=False,
)


@pytest.mark.soak
@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("home", "examples"), [("loops", 40), ("threads", 30)])
def test_histories(home: str, examples: int) -> None:
    short = settings(
        max_examples=examples, stateful_step_count=40, report_multiple_bugs=False
    )
    run_state_machine_as_test(MACHINES[home], settings=short)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("home", MACHINES)
def test_long_histories(home: str) -> None:
    """Other ones in each round; what failed says its seed."""
    end = time.monotonic() + SOAK_S * SHARES[home]
    rounds = 0
    while time.monotonic() < end:
        rounds += 1
        print(f"seed {rounds}", flush=True)
        run_state_machine_as_test(seed(rounds)(MACHINES[home]), settings=LONG)
    assert rounds
