"""A shape, measured: everybody is opened, warmed, and then has rounds by turns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiougds.cli._latency import Distribution
from aiougds.cli._load import Plan, Worker, work
from aiougds.cli._suites.record import Cell, cell
from aiougds.cli._suites.turns import device_clocks, no_gc, processor_ns, turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds import Namespace
    from aiougds.cli._suites.sides import Place, Side

MIB: Final = 1 << 20
PEER_FAILURES: Final = (OSError, RuntimeError, ValueError, ExceptionGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long, and how often."""

    repeat: int
    duration_s: float
    warmup_s: float


async def one_round(workers: list[Worker], plan: Plan) -> Mapping[str, float]:
    """Have the workers work for a while; return what they did."""
    for worker in workers:
        worker.clear()
    device = device_clocks()
    before = processor_ns(device)
    took_s = await work(workers, 0, plan.duration_s)
    cpu_ns = processor_ns(device) - before
    found = Distribution(
        worker.writes if plan.rw == "write" else worker.reads for worker in workers
    )
    operations = found.n * max(1, plan.batch)
    return {
        "bandwidth": operations * plan.size / took_s / MIB,
        "latency": found.mean / 1e3,
        "p50": found.percentile(50) / 1e3,
        "p99": found.percentile(99) / 1e3,
        "cpu": cpu_ns / 1e3 / operations,
        "cpu_share": cpu_ns / took_s / 1e7,
    }


async def compare(
    sides: Sequence[Side],
    place: Place,
    ns: Namespace,
    plan: Plan,
    pace: Pace,
    failed: dict[str, str],
) -> list[Cell]:
    """Return the cells of a shape. A peer that fails is put into ``failed``."""
    crews: dict[str, list[Worker]] = {}
    rounds: dict[str, list[Mapping[str, float]]] = {}
    by_name = {side.name: side for side in sides if side.name not in failed}

    def spare(side: Side, exc: Exception) -> None:
        if side.ours:
            raise exc
        failed[side.name] = why(exc)
        rounds.pop(side.name, None)

    async with AsyncExitStack() as stack:
        for name, side in by_name.items():
            try:
                mover = await stack.enter_async_context(
                    side.opened(place, ns, plan.shape)
                )
                crew = [Worker(mover, plan, number) for number in range(plan.depth)]
                await work(crew, 0, pace.warmup_s)
                crews[name] = crew
            except PEER_FAILURES as exc:
                spare(side, exc)
        with no_gc():
            for name in turns(list(crews), pace.repeat):
                try:
                    if name not in failed:
                        found = await one_round(crews[name], plan)
                        rounds.setdefault(name, []).append(found)
                except PEER_FAILURES as exc:
                    spare(by_name[name], exc)
    shape = {"size": plan.size, "tasks": plan.depth, "batch": plan.batch}
    return [
        cell(name, plan.rw, rounds[name], **shape) for name in crews if name in rounds
    ]


def why(exc: BaseException) -> str:
    """Return the first failure of a peer in a line."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return f"failed: {type(exc).__name__}: {' '.join(str(exc).split())}"
