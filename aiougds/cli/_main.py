"""The commands and their arguments; one place where failures become exit statuses."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from aiougds.cli import (
    _bench,
    _bind,
    _check,
    _copy,
    _demo,
    _info,
    _list,
    _store,
    _top,
    _trace,
)
from aiougds.cli._failures import FAILED, leaves, sentence, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMANDS: Final = (
    _demo,
    _info,
    _copy,
    _bench,
    _store,
    _top,
    _trace,
    _list,
    _bind,
    _check,
)
EPILOG: Final = """\
addresses:
  emu:PATH               an embedded controller over an existing file
  emu:PATH?size=1GiB     the same; the file is made if it is missing
  emu:?size=64MiB        in memory

exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted
"""


class _Version(argparse.Action):
    """Show the version; looked up only when asked for, since that takes a while."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        from importlib.metadata import version

        print(f"aiougds {version('aiougds')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    debug = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    debug.add_argument(
        "--debug", action="store_true", help="show a traceback for an error"
    )
    parser = argparse.ArgumentParser(
        prog="aiougds",
        description="Await reads from NVMe.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[debug],
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and exit"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands, [debug])
    return parser


def _report(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong in a line, and return the exit status for it."""
    parts = list(leaves(error))
    known = [status_of(part) for part in parts]
    if debug or None in known:
        raise error
    # A shared cause fails every task of a group in the same words: say it once.
    for text in dict.fromkeys(sentence(part) for part in parts):
        print(f"aiougds: error: {text}", file=sys.stderr)
    return max(status or FAILED for status in known)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; ``argv`` is without the program."""
    args = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        status = run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output went away. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (BaseExceptionGroup, KeyboardInterrupt, RuntimeError, OSError) as error:
        return _report(error, debug=getattr(args, "debug", False))
    return status
