"""How things are compared: by turns, round by round, with no collector in between."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

DEVICE_THREADS: Final = "ugds-emu"


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Each name once a round, starting with another one in each."""
    for k in range(rounds if names else 0):
        shift = k % len(names)
        yield from names[shift:]
        yield from names[:shift]


@contextmanager
def no_gc() -> Iterator[None]:
    """Without the collector, whose work would hit whoever runs just then."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of rounds, and how far apart they are."""

    median: float
    p5: float
    p95: float


def spread(values: Iterable[float]) -> Spread:
    """Return the spread of at least one value; percentiles are interpolated."""
    ordered = sorted(values)
    return Spread(
        round(statistics.median(ordered), 4),
        round(_between(ordered, 0.05), 4),
        round(_between(ordered, 0.95), 4),
    )


def _between(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    pairs = [*pairwise(ordered), (ordered[-1], ordered[-1])]
    first, second = pairs[low]
    return first + (second - first) * (place - low)


def processor_ns() -> int:
    """Return the processor time of this process's threads but the embedded device's.

    The kernel keeps it in nanoseconds. Threads that have ended are not counted, so
    what is compared has to outlive the comparison.
    """
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            if not (task / "comm").read_text().startswith(DEVICE_THREADS):
                total += int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):  # it has ended
            continue
    return total
