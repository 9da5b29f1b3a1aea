"""What came of the wish that completions share interrupts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiougds._ffi import ffi, lib
from aiougds._status import status_name

if TYPE_CHECKING:
    from aiougds._device import Device


class Coalescing(NamedTuple):
    """Interrupts that completions share."""

    commands: int  # 1: they do not
    wait_us: float
    pairs: int
    reason: str  # why not, if it was asked for


def coalescing(device: Device) -> Coalescing:
    """Read what came of ``coalesce_commands``."""
    found = ffi.new("struct ugds_coalescing *")
    lib.ugds_ctrl_coalescing(device.ptr, found)
    if found.pairs:
        commands, units = (found.coalesce & 0xFF) + 1, found.coalesce >> 8
        return Coalescing(commands, 100.0 * units, found.pairs, "")
    reason = ""
    if found.status:
        status = f"{status_name(found.status)} (status {found.status:#x})"
        reason = f"the controller refused it: {status}"
    elif device.options.coalesce_commands > 1:
        reason = "no interrupt vector is for deep queue pairs alone"
    return Coalescing(1, 0.0, 0, reason)
