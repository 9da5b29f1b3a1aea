"""The cases are what they are said to be: every fault, every pair, the core in full."""

from __future__ import annotations

from itertools import combinations, product
from typing import get_args

import pytest
from faults.plan import COLUMNS, allowed, everywhere, plan, rest
from faults.scenarios import SCENARIOS
from faults.table import TABLE, render
from helpers.matrix import LOOPS, MODES
from helpers.pairwise import pairwise

from aiougds import testing

# What of aiougds.testing is not something that a device does.
TOOLS = {"Action", "EmulatorCounters", "Fault", "FaultHandle", "counters", "inject"}
CORE = {
    "status",
    "delay",
    "hold",
    "drop",
    "lose_interrupt",
    "dup_cqe",
    "removed",
    "cfs",
}


def acted() -> set[str]:
    by_faults = {f.action for s in SCENARIOS for f in (*s.faults, *s.elsewhere)}
    return by_faults | {action for s in SCENARIOS for action in s.acts}


def test_every_action_has_a_scenario() -> None:
    assert set(get_args(testing.Action)) - acted() == set()


def test_every_constructor_and_function_has_a_scenario() -> None:
    made = {
        name
        for name, value in vars(testing.Fault).items()
        if isinstance(value, classmethod) and not name.startswith("_")
    }
    assert "status" in made
    assert made - acted() == set()
    functions = set(testing.__all__) - TOOLS
    assert functions - {name for s in SCENARIOS for name in s.calls} == set()


def test_names_are_unique() -> None:
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS)


def test_the_core_runs_everywhere() -> None:
    full = [s for s in SCENARIOS if s.core]
    assert {f.action for s in full for f in s.faults} == CORE
    for scenario in full:
        assert scenario.loops == LOOPS
        assert len(plan()[scenario.name]) == len(LOOPS) * len(MODES) * 2
        assert rest(scenario) == []


def test_every_pair_is_there() -> None:
    """Counted anew, without what made the plan."""
    rows = [(s, *place) for s in SCENARIOS for place in plan()[s.name]]
    assert len(rows) == len(set(rows))
    for i, j in combinations(range(4), 2):
        have = {(row[i], row[j]) for row in rows}
        for a, b in product(COLUMNS[i], COLUMNS[j]):
            possible = any(
                allowed(row) for row in product(*COLUMNS) if (row[i], row[j]) == (a, b)
            )
            assert possible == ((a, b) in have), (a, b)


def test_plan_and_rest_are_everything() -> None:
    for scenario in SCENARIOS:
        both = [*plan()[scenario.name], *rest(scenario)]
        assert sorted(both) == sorted(everywhere(scenario))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 2), (5, 4, 3, 2), (1, 1, 7)])
def test_covering_arrays(sizes: tuple[int, ...]) -> None:
    rows = pairwise([range(size) for size in sizes])
    for i, j in combinations(range(len(sizes)), 2):
        have = {(row[i], row[j]) for row in rows}
        assert have == set(product(range(sizes[i]), range(sizes[j])))
    largest = sorted(sizes)[-2:]
    assert len(rows) <= largest[0] * largest[1] * 1.5


def test_the_page_tells_what_the_scenarios_do() -> None:
    counts = {name: len(places) for name, places in plan().items()}
    assert TABLE.read_text(encoding="utf-8") == render(counts), (
        "run: pytest tests/faults --write-fault-table"
    )
