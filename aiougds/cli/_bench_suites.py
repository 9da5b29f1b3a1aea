"""The arguments of ``aiougds bench --suite``, checked and made into settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from aiougds._options import MODES, suggest
from aiougds.cli._failures import UsageError
from aiougds.cli._suites.measure import Pace
from aiougds.cli._suites.settings import FULL, QUICK, Grid, Rw, Settings
from aiougds.cli._suites.sides import PEERS
from aiougds.cli._suites.suites import BY_NAME
from aiougds.cli._units import count, positive_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

T = TypeVar("T", bound=str)
NAMES: Final = tuple(peer.name for peer in PEERS)
DIRECTIONS: Final[dict[str, tuple[Rw, ...]]] = {
    "read": ("read",),
    "write": ("write",),
    "both": ("read", "write"),
}


def settings_of(args: argparse.Namespace, json: Path | None) -> Settings:
    """Return what was asked for; UsageError for what is not known."""
    return Settings(
        address=args.address,
        nsid=args.nsid,
        serial=args.serial,
        loop=args.loop,
        suites=some("--suite", args.suite, tuple(BY_NAME)),
        peers=() if args.peers == "none" else some("--peers", args.peers, NAMES),
        modes=None if args.modes is None else some("--modes", args.modes, MODES),
        grid=_grid(args),
        rw=DIRECTIONS[args.rw],
        span=args.span,
        device=args.device,
        peer_path=args.peer_path,
        pace=Pace(
            repeat=args.repeat or (3 if args.quick else 5),
            duration_s=0.1 if args.duration is None else args.duration,
            warmup_s=0.05 if args.warmup is None else args.warmup,
        ),
        seed=args.seed,
        json=json,
        csv=args.csv,
        plot=args.plot,
        compare=args.compare,
    )


def _grid(args: argparse.Namespace) -> Grid:
    grid = QUICK if args.quick else FULL
    if args.sizes is not None:
        sizes = _numbers("--sizes", args.sizes, positive_size)
        grid = replace(
            grid,
            sync_sizes=sizes,
            batch_sizes=sizes,
            stream_sizes=sizes,
            poll_sizes=sizes,
        )
    if args.tasks is not None:
        grid = replace(grid, tasks=_numbers("--tasks", args.tasks, count))
    if args.batches is not None:
        grid = replace(grid, batches=_numbers("--batches", args.batches, count))
    return grid if args.total is None else replace(grid, total=args.total)


def some(option: str, text: str | None, known: Sequence[T]) -> tuple[T, ...]:
    """Return the names of a list, in the order of ``known``; all without one."""
    if text is None or text == "all":
        return tuple(known)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: {name!r} is not known; {suggest(name, known)}")
    return tuple(name for name in known if name in names)


def _numbers(option: str, text: str, read: Callable[[str], int]) -> tuple[int, ...]:
    try:
        return tuple(sorted({read(word.strip()) for word in text.split(",")}))
    except argparse.ArgumentTypeError as exc:
        raise UsageError(f"{option}: {exc}") from None
