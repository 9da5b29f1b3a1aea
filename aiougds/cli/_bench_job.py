"""A single load: IOPS, bandwidth and latency of a namespace, as fio tells them."""

from __future__ import annotations

import dataclasses
import resource
from json import dumps
from typing import TYPE_CHECKING, Final

import aiougds
from aiougds.cli._common import Loop, run_on
from aiougds.cli._console import Console
from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._guard import ALL_KINDS, guard, makes_it
from aiougds.cli._load import Plan, run_load
from aiougds.cli._report import Report, direction, show
from aiougds.cli._suites.place import machine

if TYPE_CHECKING:
    from pathlib import Path

    from aiougds import Mode, Namespace

FACTS: Final = ("inline_completions", "wakeups", "stragglers", "doorbells", "commands")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where and how to run a plan."""

    address: str
    nsid: int | None
    mode: Mode
    loop: Loop
    serial: str | None
    span: int | None


def run_job(job: Job, plan: Plan, *, quiet: bool, json: Path | None) -> int:
    """Run a plan; the exit status."""
    console = Console(quiet=quiet)
    reports: list[Report] = []

    async def work() -> int:
        reports.append(await _bench(job, plan))
        return 0

    run_on(job.loop, work)
    told = dataclasses.asdict(reports[0])
    if json is not None:
        json.write_text(dumps(told, indent=2) + "\n", encoding="utf-8")
    if quiet:
        console.json(told)
    else:
        show(console, reports[0])
    return 0


async def _bench(job: Job, plan: Plan) -> Report:
    about = machine(job.loop)
    writes = plan.rw != "read"
    made = makes_it(job.address)
    opening = aiougds.open(
        job.address, nsid=job.nsid, mode=job.mode, readonly=not (writes or made)
    )
    async with opening as ns:
        plan = dataclasses.replace(plan, span=_span(job, plan, ns))
        if writes:
            await guard(ns, job.address, made=made, serial=job.serial, kinds=ALL_KINDS)
        before, cpu = _counters(ns), _cpu_s()
        workers, took = await run_load(ns, plan)
        cpu, after = _cpu_s() - cpu, _counters(ns)
        read = direction((worker.reads for worker in workers), plan, took)
        write = direction((worker.writes for worker in workers), plan, took)
        operations = sum(side.operations for side in (read, write) if side)
        if not operations:
            raise CommandError(
                f"not one operation began in the {plan.duration_s:g} s after the "
                "warm-up; give a longer --duration or a smaller --size"
            )
        return Report(
            address=job.address,
            transport=ns.controller.capabilities.transport,
            model=ns.controller.info.model,
            loop=job.loop,
            mode=job.mode,
            plan=plan,
            seconds=round(took, 3),
            read=read,
            write=write,
            cpu_us_per_operation=round(1e6 * cpu / operations, 3),
            controller={name: after[name] - before[name] for name in FACTS},
            machine=about,
        )


def _span(job: Job, plan: Plan, ns: Namespace) -> int:
    """Check sizes against the namespace; return the bytes that are used."""
    if plan.size % ns.lba_bytes:
        raise UsageError(
            f"--size {plan.size} is not a multiple of the block size of {job.address}, "
            f"{ns.lba_bytes}"
        )
    span = ns.size if job.span is None else job.span
    if not plan.size <= span <= ns.size:
        raise UsageError(
            f"--span {span} is outside {plan.size} (--size) .. {ns.size} (all of "
            f"{job.address})"
        )
    return span


def _counters(ns: Namespace) -> dict[str, int]:
    return dataclasses.asdict(ns.controller.statistics())


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
