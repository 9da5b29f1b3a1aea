"""How things are compared: by turns, round by round, with no collector in between."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

DEVICE_THREADS: Final = "ugds-emu"
THREAD_CLOCK: Final = 6  # clock_getcpuclockid(3): ~tid << 3, and this
LOOKS: Final = 20
LOOKED_APART_NS: Final = 50_000  # many times what reading the clocks takes


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Each name once a round, starting with another one in each."""
    for k in range(rounds if names else 0):
        shift = k % len(names)
        yield from names[shift:]
        yield from names[:shift]


@contextmanager
def no_gc() -> Generator[None]:
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


def device_clocks() -> tuple[int, ...]:
    """Return the clocks of the embedded controllers' own threads."""
    clocks: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(DEVICE_THREADS):
                clocks.append(~int(task.name) << 3 | THREAD_CLOCK)
        except OSError:  # it has ended
            continue
    return tuple(clocks)


def processor_ns(device: tuple[int, ...]) -> int:
    """Return the processor time of this process less that of the device's threads.

    These have to outlive what is measured. Clocks, not /proc: what that says of a
    running thread may be a tick old. Whoever lost the processor between the clocks,
    where the device's threads go on, looks again.
    """
    looks: list[tuple[int, int]] = []
    while len(looks) < LOOKS:
        before = sum(map(time.clock_gettime_ns, device))
        whole = time.process_time_ns()
        apart = sum(map(time.clock_gettime_ns, device)) - before
        looks.append((apart, whole - before - apart // 2))
        if apart < LOOKED_APART_NS:
            break
    return min(looks)[1]
