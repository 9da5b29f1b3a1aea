"""Every fault, in every completion mode, on every loop, with stepping and without.

One outcome for each operation, and one that is allowed; no leak, no hang; the data
as it was or as it was written; neighbours as if nothing had happened, unless the whole
controller is down; no access outside a mapping.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from faults.conftest import Results
from faults.plan import plan, rest
from faults.runner import belongings, run_cases
from faults.scenario import Scenario
from faults.scenarios import SCENARIOS
from helpers.matrix import Place

each = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


def survive(
    scenario: Scenario, places: list[Place], folder: Path
) -> tuple[set[str], int]:
    """Run it there; returns how struck operations ended, and in how many cases."""
    gc.collect()
    before = belongings()
    ends = run_cases(scenario, places, folder)
    gc.collect()
    assert belongings() == before
    assert set(ends) == set(places)
    return set().union(*(end.struck for end in ends.values())), len(ends)


@pytest.mark.timeout(120)
@each
def test_survived(scenario: Scenario, tmp_path: Path, results: Results) -> None:
    places = plan()[scenario.name]
    seen, count = survive(scenario, places, tmp_path)
    assert seen >= set(scenario.sees), "an outcome that the table tells did not come"
    results[scenario.name] = count


@pytest.mark.long
@pytest.mark.timeout(300)
@each
def test_survived_wherever_else(scenario: Scenario, tmp_path: Path) -> None:
    survive(scenario, rest(scenario), tmp_path)
