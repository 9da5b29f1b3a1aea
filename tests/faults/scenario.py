"""What a scenario says, and the default ways to strike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from helpers.matrix import LOOPS, Loop

from aiougds import OpenKeywords
from aiougds.testing import Action, Fault

if TYPE_CHECKING:
    from faults.case import Case

WEDGED: Final = ("ok", "ControllerWedgedError")
REMOVED: Final = ("ok", "DeviceRemovedError")
RESET: Final = "`await ctrl.reset()`"
REOPEN: Final = "nothing: close it with `force=True`, open what is there now"
HASTY: Final[OpenKeywords] = {"hang_timeout_s": 0.2}

Strike = Callable[["Case"], Awaitable[None]]
After = Literal["live", "wedged", "removed"]


async def nothing(_case: Case) -> None:
    """Let the fault do its work."""


async def clear(case: Case) -> None:
    """Once commands met the fault, end it."""
    await case.until(lambda: case.hits() > 0)
    case.clear()


async def give_up(case: Case) -> None:
    """Once commands met the fault, cancel whoever waits; then end it."""
    await case.until(lambda: case.hits() > 0)
    case.cancel()
    await case.until(lambda: case.workload_over)
    case.clear()


async def wait_it_out(case: Case) -> None:
    """End the fault when no operation is waited for any more."""
    await case.until(lambda: case.workload_over)
    case.clear()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """A fault, what it does, and what everybody may see of it."""

    name: str
    does: str
    """For the table: one clause."""
    faults: tuple[Fault, ...] = ()
    """On the struck blocks, but for commands that have none."""
    elsewhere: tuple[Fault, ...] = ()
    """As they are, on any command."""
    sees: tuple[str, ...]
    """What struck operations end with; each of these is seen in some case."""
    may: tuple[str, ...] = ()
    """What they may end with too, as it happens."""
    calm: tuple[str, ...] = ("ok",)
    """What the other items of the same calls may end with."""
    neighbours: tuple[str, ...] = ("ok",)
    after: After = "live"
    reason: str = ""
    """In ``state_reason``, if it is not live."""
    repair: str = "nothing"
    """For the table: what brings it back."""
    strike: Strike = nothing
    options: OpenKeywords = field(default_factory=OpenKeywords)
    emu: dict[str, object] = field(default_factory=dict)
    timeout_s: float | None = None
    """Of every operation."""
    loops: tuple[Loop, ...] = LOOPS
    mend: Strike | None = None
    """What repairs it, if it is neither nothing nor a reset."""
    loses: bool = False
    """Writes that succeeded and were not flushed may be gone."""
    unknown_cids: bool = False
    """Completions for commands that nobody sent are counted."""
    calls: tuple[str, ...] = ()
    """Functions of ``aiougds.testing`` that it calls."""
    acts: tuple[Action, ...] = ()
    """Actions that the strike injects."""
    core: bool = False
    """Run in every mode, on every loop, with stepping and without."""
    first: Callable[[Case], Awaitable[None]] | None = None
    """What is looked at before the workload starts."""

    @property
    def fatal(self) -> bool:
        """Whether the controller is down afterwards."""
        return self.after != "live"

    def __str__(self) -> str:
        return self.name
