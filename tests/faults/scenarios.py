"""Every fault that the embedded controller can be told to produce."""

from __future__ import annotations

from typing import Final

from faults import on_commands, on_controller
from faults.scenario import Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *on_commands.SCENARIOS,
    *on_controller.SCENARIOS,
)
