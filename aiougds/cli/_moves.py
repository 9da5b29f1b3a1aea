"""What ``bind`` and ``unbind`` found and did, for people and for programs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds.cli._console import Console
    from aiougds.cli._host.binding import Step
    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.obstacles import Obstacle

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Report:
    """A move: what stands in the way, what it takes, and what came of it."""

    action: str
    function: Function  # as it was
    obstacles: tuple[Obstacle, ...] = ()
    named: bool = False  # the user said the serial number
    steps: Sequence[Step] = ()
    after: Function | None = None  # as it is, when it was done
    note: str = ""  # why there is nothing to do

    def overridden(self, item: Obstacle) -> bool:
        """Whether the serial number removes this one."""
        return self.named and item.overridable and self.action == "bind"

    @property
    def blocking(self) -> list[Obstacle]:
        """What is left in the way."""
        return [item for item in self.obstacles if not self.overridden(item)]

    @property
    def allowed(self) -> bool:
        """Whether nothing is in the way."""
        return not self.blocking

    def finished(self, after: Function) -> Report:
        """Return the report of the move when it is done."""
        return dataclasses.replace(self, after=after)

    def refusal(self) -> str:
        """Return the one line of a refusal."""
        first, *more = self.blocking
        rest = f" (and {len(more)} more)" if more else ""
        text = f"{self.function.address} was not changed: {first}{rest}; {first.remedy}"
        if self.action == "bind" and all(item.overridable for item in self.blocking):
            text += f", or, to bind it all the same: --serial {self.function.serial}"
        return text


def show(console: Console, report: Report) -> None:
    """Print it."""
    if console.quiet:
        console.json(describe(report))
        return
    function = report.function
    size = function.nbytes
    facts = [
        function.model or "model not known",
        f"serial {function.serial}" if function.serial else "serial not known",
        *([] if size is None else [as_bytes(size)]),
        f"with {function.driver}" if function.driver else "with no driver",
    ]
    console.line(f"{function.address}: {', '.join(facts)}", style="bold")
    for item in report.obstacles:
        overridden = " (overridden by --serial)" if report.overridden(item) else ""
        console.line(f"  {item}{overridden}")
        if not overridden:
            console.line(f"      {item.remedy}")
    if report.note:
        console.line(f"  nothing to do: {report.note}")
    elif report.after is not None:
        node = f" as {report.after.node}" if report.after.node else ""
        console.line(f"  now with {report.after.driver}{node}")
    elif report.allowed:
        console.line("  this would be done, with --yes:")
        for step in report.steps:
            console.line(f"      {step}")


def describe(report: Report) -> dict[str, object]:
    """Return it for programs."""
    function, after = report.function, report.after
    return {
        "schema": SCHEMA,
        "action": report.action,
        "address": function.address,
        "model": function.model,
        "serial": function.serial,
        "allowed": report.allowed,
        "done": after is not None,
        "note": report.note,
        "obstacles": [
            {
                "kind": item.kind,
                "device": item.device,
                "holder": item.holder,
                "remedy": item.remedy,
                "overridable": item.overridable and report.action == "bind",
                "overridden": report.overridden(item),
            }
            for item in report.obstacles
        ],
        "steps": [{"path": step.path, "value": step.value} for step in report.steps],
        "driver_before": function.driver,
        "driver": (after or function).driver,
        "node": (after or function).node,
    }
