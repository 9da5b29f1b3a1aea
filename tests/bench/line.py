"""A line of the table, and how two things are compared: in turns, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

from aiougds.cli._suites.turns import no_gc, turns

__all__ = [
    "Duel", "Line", "async_duel", "duel", "judge", "most_line", "no_gc", "ratio_line",
    "turns",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured; ``ratio`` is peer / ours, so that more is better."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    bar: str
    met: bool
    unit: str
    note: str = ""

    def record(self) -> dict[str, object]:
        """Return it as JSON wants it."""
        return {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Duel:
    """Medians of each contestant, and of the rounds' ratios to the first."""

    median: dict[str, float]
    ratio: dict[str, float]


def judge(samples: dict[str, list[float]]) -> Duel:
    """Compare each contestant with the first, round by round."""
    ours = next(iter(samples.values()))
    return Duel(
        {name: statistics.median(values) for name, values in samples.items()},
        {
            name: statistics.median(
                [peer / own for peer, own in zip(values, ours, strict=True)]
            )
            for name, values in samples.items()
        },
    )


def duel(contestants: dict[str, Callable[[], float]], rounds: int) -> Duel:
    """Run plain functions in turns; each returns its cost per item."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():  # warm
        run()
    with no_gc():
        for name in turns(list(contestants), rounds):
            samples[name].append(contestants[name]())
    return judge(samples)


async def async_duel(
    contestants: dict[str, Callable[[], Awaitable[float]]], rounds: int
) -> Duel:
    """Run coroutine functions in turns, on the running loop."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():  # warm
        await run()
    with no_gc():
        for name in turns(list(contestants), rounds):
            samples[name].append(await contestants[name]())
    return judge(samples)


def ratio_line(
    name: str,
    fight: Duel,
    peer: str,
    least: float,
    unit: str = "us",
    note: str = "",
) -> Line:
    """Return a line that is met when the peer takes ``least`` times as long."""
    ours = next(iter(fight.median))
    ratio = fight.ratio[peer]
    return Line(
        name,
        fight.median[ours],
        fight.median[peer],
        ratio,
        f"{least:g}x faster",
        ratio >= least,
        unit,
        note,
    )


def most_line(
    name: str,
    ours: float,
    most: float,
    unit: str,
    note: str = "",
    peer: float | None = None,
) -> Line:
    """Return a line that is met at ``most`` or less."""
    ratio = peer / ours if peer is not None and ours else None
    return Line(
        name, ours, peer, ratio, f"<= {most:.4g} {unit}", ours <= most, unit, note
    )
