"""Which scenario runs where: the core everywhere, the others pairwise."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final, cast

from faults.scenario import Scenario
from faults.scenarios import SCENARIOS
from helpers.matrix import LOOPS, MODES, Place
from helpers.pairwise import Row, pairwise

STEPS: Final = (True, False)
COLUMNS: Final = (SCENARIOS, LOOPS, MODES, STEPS)


def allowed(row: Row) -> bool:
    """Whether the scenario can be had on that loop."""
    return row[1] in cast("Scenario", row[0]).loops


def everywhere(scenario: Scenario) -> list[Place]:
    """Return all places for a scenario."""
    return [Place(*cell) for cell in product(scenario.loops, MODES, STEPS)]


@cache
def plan() -> dict[str, list[Place]]:
    """Return the places of each scenario, by its name."""
    full = [
        (scenario, *place)
        for scenario in SCENARIOS
        if scenario.core
        for place in everywhere(scenario)
    ]
    places: dict[str, list[Place]] = {scenario.name: [] for scenario in SCENARIOS}
    for scenario, *cell in (*full, *pairwise(COLUMNS, allowed, full)):
        places[cast("Scenario", scenario).name].append(Place(*cell))  # type: ignore[arg-type]
    return places


def rest(scenario: Scenario) -> list[Place]:
    """Return the places where the plan leaves a scenario out."""
    taken = set(plan()[scenario.name])
    return [place for place in everywhere(scenario) if place not in taken]
