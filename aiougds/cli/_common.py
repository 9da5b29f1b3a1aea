"""Arguments that several commands share, and how they start an event loop."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from aiougds._open import TRANSPORTS
from aiougds.cli._failures import UsageError
from aiougds.cli._units import folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Loop = Literal["asyncio", "uvloop", "trio"]


def is_address(text: str) -> bool:
    """Whether it is the address of a controller, and not the path of a file."""
    return text.startswith(tuple(TRANSPORTS))


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``-o json``."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="for people, or JSON with stable keys",
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="-o json"
    )


def add_nsid(parser: argparse.ArgumentParser) -> None:
    """Add ``--nsid``."""
    parser.add_argument(
        "--nsid", type=int, metavar="ID", help="namespace (default: the lowest usable)"
    )


def add_serial(parser: argparse.ArgumentParser) -> None:
    """Add ``--serial``."""
    parser.add_argument(
        "--serial",
        metavar="SERIAL",
        help="the controller's serial number: write whatever is stored there",
    )


def add_sysroot(parser: argparse.ArgumentParser) -> None:
    """Add ``--sysroot``."""
    parser.add_argument(
        "--sysroot",
        type=folder,
        default=Path("/"),
        metavar="DIR",
        help="look at the sys, proc, dev, run of this folder; nothing is changed there",
    )


def run_on(loop: Loop, main: Callable[[], Awaitable[int]]) -> int:
    """Run an async command. Ctrl-C cancels it, and it drains before it ends."""
    run = partial(anyio.run, main)
    try:
        if loop == "trio":
            return run(backend="trio")
        return run(backend="asyncio", backend_options={"use_uvloop": loop == "uvloop"})
    except ImportError as exc:
        raise UsageError(
            f"{loop} is not installed: pip install 'aiougds[{loop}]' ({exc})"
        ) from exc
    except LookupError as exc:
        raise UsageError(
            f"{loop} is not installed: pip install 'aiougds[{loop}]'"
        ) from exc
