"""The page of faults: what the scenarios say, and in how many cases it was so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from faults.scenario import Scenario
from faults.scenarios import SCENARIOS
from helpers.matrix import LOOPS, MODES

TABLE: Final = Path(__file__).parent.parent.parent / "docs" / "reference" / "faults.md"

HEAD: Final = """\
# Faults survived

Written by the tests (`pytest tests/faults --write-fault-table`); a test checks that it
is what they do. Do not edit it.

Platform: the embedded controller. Completion modes: {modes}.
Loops: {loops} (`blocking`: threads of `aiougds.blocking`,
without a loop). Stepping: on and off. Scenarios marked * ran in every combination of
the three, the others such that every pair of values occurs: {total} cases.

In each case there are, at the same time: single reads and writes, one of several
commands, memory pinned just in time, a batch, `read_many`, `write_many`, arrays of
offsets, `as_completed`, a flush; and a neighbour on other blocks and other memory. The
fault strikes some of the blocks. Then:

- every operation has ended, once, with what the table says; none hangs;
- operations on other blocks, also in the same call, and the neighbour noticed
  nothing, unless the controller as a whole is down;
- every block holds what was there, or what was written; a write that succeeded is
  there, and what was read is right;
- the controller saw no access outside a mapping;
- all of it runs once more without a fault, after the repair where one is needed;
- no command is in flight, no memory pinned or in quarantine, no channel, descriptor
  or thread left over.
"""


def _words(words: tuple[str, ...]) -> str:
    return ", ".join("success" if word == "ok" else f"`{word}`" for word in words)


def _caller(scenario: Scenario) -> str:
    """Say what the caller of an operation that is struck sees."""
    names = tuple(
        "CancelledError" if word == "cancelled" else word for word in scenario.sees
    )
    told = _words(names)
    return f"{told}; or {_words(scenario.may)}" if scenario.may else told


def _row(scenario: Scenario, count: int) -> str:
    star = "\\*" if scenario.core else ""
    cells = (
        f"{scenario.name}{star}",
        scenario.does,
        _caller(scenario),
        scenario.after,
        scenario.repair,
        str(count),
    )
    return f"| {' | '.join(cells)} |"


def render(counts: Mapping[str, int]) -> str:
    """Return the page; ``counts`` has the number of cases of every scenario."""
    missing = [s.name for s in SCENARIOS if s.name not in counts]
    if missing:
        raise ValueError(f"not all scenarios were run and survived: {missing}")
    head = HEAD.format(
        modes=", ".join(MODES),
        loops=", ".join(LOOPS),
        total=sum(counts.values()),
    )
    columns = (
        "fault",
        "what the device does",
        "what the caller sees",
        "the controller is then",
        "what brings it back",
        "cases",
    )
    table = [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join(['---'] * len(columns))} |",
        *(_row(scenario, counts[scenario.name]) for scenario in SCENARIOS),
    ]
    return head + "\n" + "\n".join(table) + "\n"
