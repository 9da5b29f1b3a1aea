"""What a command fails with, and the exit status and sentence that it becomes.

0 is success, 1 a failure, 2 a wrong use of the command line, 130 an interrupt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from aiougds._errors import AddressError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class CommandError(RuntimeError):
    """A command cannot go on; the text is one sentence for the user."""

    status = FAILED


class UsageError(CommandError):
    """The arguments do not fit together."""

    status = USAGE


class RefusedError(CommandError):
    """Writing was refused, since it might destroy somebody's data."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Walk the exceptions that an exception group holds, however deep."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from leaves(inner)
    else:
        yield error


def status_of(error: BaseException) -> int | None:
    """Return the exit status for an exception that is no defect of the program."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, CommandError):
        return error.status
    if isinstance(error, AddressError | OptionError):
        return USAGE
    if isinstance(error, OSError):
        return FAILED
    return None


def sentence(error: BaseException) -> str:
    """Return the exception as one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if type(error).__module__ == "builtins" and isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return name + (error.strerror or str(error))
    return " ".join(str(error).split())
