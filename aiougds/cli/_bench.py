"""``aiougds bench``: IOPS, bandwidth and latency of a namespace, as fio tells them."""

from __future__ import annotations

import dataclasses
import resource
from typing import TYPE_CHECKING, Final, get_args

import aiougds
from aiougds._options import MODES
from aiougds.cli._common import Loop, add_nsid, add_output, add_serial, run_on
from aiougds.cli._console import Console
from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._guard import ALL_KINDS, guard, makes_it
from aiougds.cli._load import Direction, Pattern, Plan, run_load
from aiougds.cli._report import Report, direction, machine, show
from aiougds.cli._units import count, percent, positive_size, seconds

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Callable

    from aiougds import Mode, Namespace

DESCRIPTION: Final = """\
Read (or with --rw write and mixed also write) a namespace for a while, and tell IOPS,
bandwidth and latency. Writing destroys what is stored: a namespace that holds anything
known is refused, and so is every real device, unless --serial says that it is meant.
"""
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


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        parents=parents,
        help="measure IOPS, bandwidth and latency",
        description=DESCRIPTION,
    )
    parser.add_argument("address", metavar="ADDRESS")
    add: Callable[..., object] = parser.add_argument
    add("--size", type=positive_size, default=4096, help="bytes of one (4KiB)")
    add("--depth", type=count, default=1, help="operations at a time (1)")
    add("--batch", type=count, help="send this many at once with read_many")
    add("--mode", choices=MODES, default="adaptive", help="completion mode (adaptive)")
    add("--rw", choices=get_args(Direction), default="read", help="(read)")
    add("--mix", type=percent, default=70, help="per cent reads with --rw mixed (70)")
    add("--pattern", choices=get_args(Pattern), default="random", help="(random)")
    add("--span", type=positive_size, help="only the first bytes of the namespace")
    add("--duration", type=seconds, default=5.0, help="(5s)")
    add("--warmup", type=seconds, default=0.2, help="not counted (200ms)")
    add("--seed", type=int, default=1, help="of offsets and data (1)")
    loops = parser.add_mutually_exclusive_group()
    loops.add_argument("--loop", choices=get_args(Loop), default="asyncio")
    loops.add_argument("--uvloop", dest="loop", action="store_const", const="uvloop")
    add_nsid(parser)
    add_serial(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    job = Job(
        address=args.address,
        nsid=args.nsid,
        mode=args.mode,
        loop=args.loop,
        serial=args.serial,
        span=args.span,
    )
    plan = Plan(
        size=args.size,
        depth=args.depth,
        batch=args.batch or 0,
        rw=args.rw,
        mix=args.mix,
        pattern=args.pattern,
        span=0,
        duration_s=args.duration,
        warmup_s=args.warmup,
        seed=args.seed,
    )
    console = Console(quiet=args.output == "json")
    return run_on(job.loop, lambda: _bench(job, plan, console))


async def _bench(job: Job, plan: Plan, console: Console) -> int:
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
        report = Report(
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
            machine=machine(),
        )
    if console.quiet:
        console.json(dataclasses.asdict(report))
    else:
        show(console, report)
    return 0


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
