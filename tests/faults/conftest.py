"""Keeps what the cases have shown, and writes the table on request."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from faults.table import TABLE, render
from helpers.matrix import LOOPS, Place
from helpers.world import World

Results: TypeAlias = dict[str, int]
_results = pytest.StashKey[Results]()


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Results:
    """How many cases of each scenario were survived in this run."""
    return pytestconfig.stash.setdefault(_results, {})


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """What a loop makes once for the whole process is not a leak."""

    async def nothing() -> None:
        pass

    for loop in LOOPS:
        World(Place(loop, "adaptive", True)).run(nothing())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-fault-table"):
        shown = session.config.stash.get(_results, {})
        TABLE.write_text(render(shown), encoding="utf-8")
