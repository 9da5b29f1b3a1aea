"""What has to be measured in a fresh process: set-up, and the first batch of all.

``python -P -m aiougds.cli._suites.fresh JSON`` does one measurement and prints JSON.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from array import array
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from aiougds.cli._common import run_on
from aiougds.cli._suites.movers import Shape, our_mover
from aiougds.cli._suites.sides import (
    OurSide,
    Place,
    Side,
    own_namespace,
    several,
    side_named,
)

if TYPE_CHECKING:
    from aiougds import Namespace

MIB: Final = 1 << 20
FIRST_BYTES: Final = 4096
LONGEST_S: Final = 120
LEAST_BATCHES: Final = 4


class FreshError(RuntimeError):
    """The process failed; the text is its last line."""


def in_fresh_process(work: str, side: Side, place: Place, **more: object) -> Any:  # noqa: ANN401
    """Return what a function of this module measures in a process of its own."""
    spec = {"work": work, "side": side.name, "place": dataclasses.asdict(place), **more}
    return _run(["-m", __name__, json.dumps(spec)])


def import_ms(module: str) -> float:
    """Return how long a fresh interpreter takes to import a module."""
    code = (
        "import time; a = time.perf_counter(); "
        f"import {module}; print(1e3 * (time.perf_counter() - a))"
    )
    return float(_run(["-c", code]))


def _run(arguments: list[str]) -> Any:  # noqa: ANN401
    try:
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise FreshError(f"took more than {LONGEST_S} s") from exc
    if done.returncode:
        rows = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise FreshError(rows[-1])
    return json.loads(done.stdout)


# ---- in the fresh process ----


async def setup(side: Side, place: Place) -> Mapping[str, float]:
    """Return milliseconds of each stage until a first block was read."""
    shape = Shape(size=FIRST_BYTES)
    side.why_not(place)  # imports what it needs, which is no set-up
    start = perf_counter_ns()
    if not isinstance(side, OurSide):
        async with side.opened(place, None, shape) as mover:
            opened = registered = perf_counter_ns()
            await mover.steps(0).read(0)
            end = perf_counter_ns()
    else:
        async with own_namespace(place, side.mode) as ns:
            opened = perf_counter_ns()
            async with our_mover(
                ns, shape, writes=place.writes, device=place.device
            ) as mover:
                registered = perf_counter_ns()
                await mover.steps(0).read(0)
                end = perf_counter_ns()
    stages = {
        "open": opened - start,
        "register": registered - opened,
        "first_read": end - registered,
        "total": end - start,
    }
    return {name: value / 1e6 for name, value in stages.items()}


async def batches(
    side: Side, place: Place, *, size: int, batch: int, rw: str, total: int
) -> Mapping[str, float]:
    """Move ``total`` bytes in batches, one after another; the first one counts too."""
    shape = Shape(size=size, batch=batch)
    if isinstance(side, OurSide) and not several(place):
        async with own_namespace(place, side.mode) as ns:
            return await _batches(side, place, ns, shape, rw, total)
    return await _batches(side, place, None, shape, rw, total)


async def _batches(
    side: Side, place: Place, ns: Namespace | None, shape: Shape, rw: str, total: int
) -> Mapping[str, float]:
    count = max(LEAST_BATCHES, total // shape.share)
    places = place.span // shape.size
    where = [
        array("q", [k % places * shape.size for k in range(first, first + shape.batch)])
        for first in range(0, count * shape.batch, shape.batch)
    ]
    times: list[int] = []
    async with side.opened(place, ns, shape) as mover:
        steps = mover.steps(0)
        many = steps.write_many if rw == "write" else steps.read_many
        assert many is not None
        for offsets in where:
            start = perf_counter_ns()
            await many(offsets)
            times.append(perf_counter_ns() - start)
    first, *later = times
    return {
        "bandwidth": count * shape.share / MIB / (sum(times) / 1e9),
        "steady_bandwidth": (count - 1) * shape.share / MIB / (sum(later) / 1e9),
        "first": first / 1e3,
        "later": median(later) / 1e3,
    }


WORK: Final[dict[str, Callable[..., Awaitable[Mapping[str, float]]]]] = {
    "setup": setup,
    "batches": batches,
}


def main() -> int:
    """Do what the argument says."""
    spec = json.loads(sys.argv[1])
    work = WORK[spec.pop("work")]
    side = side_named(spec.pop("side"))
    place = Place(**spec.pop("place"))

    async def run() -> int:
        print(json.dumps(await work(side, place, **spec)))
        return 0

    return run_on(place.loop, run)


if __name__ == "__main__":
    sys.exit(main())
