"""``aiougds bench``: a single load, or with ``--suite`` the paper's experiments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from aiougds._options import MODES
from aiougds.cli._bench_job import Job, run_job
from aiougds.cli._common import Loop, add_nsid, add_serial, is_address
from aiougds.cli._failures import UsageError
from aiougds.cli._load import Pattern, Plan
from aiougds.cli._units import (
    count,
    filename,
    filepath,
    percent,
    positive_size,
    seconds,
)

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Callable, Iterable

T = TypeVar("T")
DESCRIPTION: Final = """\
Without --suite: read (or with --rw write and mixed also write) a namespace for a
while, and tell IOPS, bandwidth and latency.

With --suite: the experiments of the paper, beside what else moves blocks from Python
on this machine. Without an ADDRESS they run on an embedded controller over a new
temporary file. What cannot run is named, with its reason.

Writing destroys what is stored: a namespace that holds anything known is refused, and
so is every real device, unless --serial says that it is meant.
"""
EPILOG: Final = """\
suites:
  setup    fresh processes, until the first block is there     (paper, 4.1)
  sync     awaits by some tasks at once, sizes by tasks        (4.2)
  batch    a volume in batches, and what the first one costs   (4.3)
  stream   in the order of a GPU stream, and beside its work   (4.4)
  poll     polling against interrupts: latency and processor   (4.5)

peers (pip install 'aiougds[peers]'):
  to_thread, preadv, aiofiles, caio-aio, caio-uring, pyaio; with --device cufile, kvikio

examples:
  aiougds bench --suite all --quick
  aiougds bench --suite sync,batch --json run.json --plot figures
  aiougds bench emu:data?size=1GiB --suite sync --rw both --peers pyaio,to_thread
  aiougds bench /dev/ugds_drv0 --suite poll --peers none
  aiougds bench emu:data --size 64KiB --depth 8 --duration 10s
"""
JOB: Final[dict[str, object]] = {
    "size": 4096,
    "depth": 1,
    "batch": 0,
    "mode": "adaptive",
    "mix": 70,
    "pattern": "random",
}
OF_SUITES: Final = (
    "batches", "compare", "csv", "device", "modes", "peer_path", "peers", "plot",
    "quick", "repeat", "sizes", "tasks", "total",
)  # fmt: skip


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        parents=parents,
        help="measure IOPS, bandwidth and latency; the paper's experiments",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="of a controller")
    _add_shared(parser)
    _add_job(parser.add_argument_group("a single load").add_argument)
    _add_suites(parser.add_argument_group("suites").add_argument)
    parser.set_defaults(run=run)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rw", choices=("read", "write", "mixed", "both"), default="read",
        help="mixed: of a single load; both: of suites (read)")  # fmt: skip
    add("--span", type=positive_size, help="only the first bytes of the namespace")
    add("--duration", type=seconds, help="of a load (5s), or of a round (100ms)")
    add("--warmup", type=seconds, help="not counted (200ms; of suites 50ms)")
    add("--seed", type=int, default=1, help="of offsets and data (1)")
    loops = parser.add_mutually_exclusive_group()
    loops.add_argument("--loop", choices=get_args(Loop), default="asyncio",
        help="the event loop (asyncio)")  # fmt: skip
    loops.add_argument("--uvloop", dest="loop", action="store_const", const="uvloop",
        help="--loop uvloop")  # fmt: skip
    add_nsid(parser)
    add_serial(parser)
    add("-o", "--output", choices=("text", "json"), default="text",
        help="for people, or JSON with stable keys")  # fmt: skip
    add("--json", nargs="?", const="-", type=filename, metavar="FILE",
        help="write the JSON to a file; without one it is -o json")  # fmt: skip


def _add_job(add: Callable[..., object]) -> None:
    add("--size", type=positive_size, help="bytes of one (4KiB)")
    add("--depth", type=count, help="operations at a time (1)")
    add("--batch", type=count, help="send this many at once with read_many")
    add("--mode", choices=MODES, help="completion mode (adaptive)")
    add("--mix", type=percent, help="per cent reads with --rw mixed (70)")
    add("--pattern", choices=get_args(Pattern), help="(random)")


def _add_suites(add: Callable[..., object]) -> None:
    add("--suite", metavar="NAME,...", help="which, or all; see below")
    add("--quick", action="store_true", default=None, help="small grids")
    add("--repeat", type=count, help="rounds, or processes, of each (5)")
    add("--modes", metavar="MODE,...", help="our completion modes (all of them, where "
        "that takes no fresh processes)")  # fmt: skip
    add("--peers", metavar="NAME,...", help="which, all or none (all)")
    add("--sizes", metavar="SIZE,...", help="of sync, batch, stream and poll")
    add("--tasks", metavar="N,...", help="of sync: how many at once")
    add("--batches", metavar="N,...", help="of batch: how many in one")
    add("--total", type=positive_size, help="of batch: bytes in all (16MiB)")
    add("--device", metavar="GPU", help="into memory of a GPU, such as cuda:0")
    add("--peer-path", metavar="PATH", help="file or block device that peers read "
        "(the file of the embedded controller)")  # fmt: skip
    add("--csv", type=filepath, metavar="FILE", help="write a line for each figure")
    add("--plot", type=filepath, metavar="DIR", help="draw figures like the paper's")
    add("--compare", type=filepath, metavar="OLD.json", help="beside an earlier --json")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.json not in (None, "-") and is_address(args.json):
        raise UsageError(
            f"--json takes the name of a file, and {args.json} is an address: put "
            "--json behind it"
        )
    quiet = args.output == "json" or args.json == "-"
    json = Path(args.json) if args.json not in (None, "-") else None
    for path in (json, args.csv):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.absolute().parent}")
    if args.suite is None:
        return _job(args, quiet=quiet, json=json)
    return _suites(args, quiet=quiet, json=json)


def _job(args: argparse.Namespace, *, quiet: bool, json: Path | None) -> int:
    given = _given(args, OF_SUITES)
    if given:
        raise UsageError(f"{given} is of suites: name one with --suite")
    if args.address is None:
        raise UsageError(
            "an ADDRESS is missing: name what to measure, or an experiment with "
            "--suite, which makes a file of its own"
        )
    if args.rw == "both":
        raise UsageError("--rw both is of suites; a single load has --rw mixed")
    job = Job(
        address=args.address,
        nsid=args.nsid,
        mode=_or(args.mode, JOB["mode"]),
        loop=args.loop,
        serial=args.serial,
        span=args.span,
    )
    plan = Plan(
        size=_or(args.size, JOB["size"]),
        depth=_or(args.depth, JOB["depth"]),
        batch=_or(args.batch, JOB["batch"]),
        rw=args.rw,
        mix=_or(args.mix, JOB["mix"]),
        pattern=_or(args.pattern, JOB["pattern"]),
        span=0,
        duration_s=_or(args.duration, 5.0),
        warmup_s=_or(args.warmup, 0.2),
        seed=args.seed,
    )
    return run_job(job, plan, quiet=quiet, json=json)


def _suites(args: argparse.Namespace, *, quiet: bool, json: Path | None) -> int:
    given = _given(args, JOB)
    if given:
        raise UsageError(
            f"{given} is of a single load; suites have --sizes, --tasks, --batches "
            "and --modes"
        )
    if args.rw == "mixed":
        raise UsageError("--rw mixed is of a single load; suites have --rw both")
    # Only here: a single load needs nothing of it.
    from aiougds.cli._bench_suites import settings_of
    from aiougds.cli._suites.run import run_suites

    return run_suites(settings_of(args, json), quiet=quiet)


def _given(args: argparse.Namespace, names: Iterable[str]) -> str:
    """Return the first of the options that was given; "" for none."""
    found = (name for name in names if getattr(args, name) is not None)
    return next((f"--{name.replace('_', '-')}" for name in found), "")


def _or(value: T | None, default: Any) -> T:  # noqa: ANN401
    return default if value is None else value
