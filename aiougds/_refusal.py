"""Why a controller takes no more work, in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiougds._errors import (
    ClosedError,
    ControllerWedgedError,
    DeviceRemovedError,
    ForkedError,
    MemoryRevokedError,
    UGDSError,
)
from aiougds._ffi import lib, text

if TYPE_CHECKING:
    from aiougds._device import Device


def refusal(device: Device) -> UGDSError | None:
    """Return why nothing can be submitted now, if so."""
    address = device.address
    if device.forked:
        return ForkedError(
            f"{address} was opened by the parent of this process, which still drives "
            "it; open it in the child under another address"
        )
    if device.ended:
        return ClosedError(f"{address} is closed; open it again")
    if device.closing:
        return ClosedError(f"{address} is being closed")
    info = device.info()
    reason = text(info.reason) or "no reason was given"
    if info.state == lib.UGDS_STATE_WEDGED:
        ago = (time.monotonic_ns() - info.state_since_ns) / 1e9
        kind = MemoryRevokedError if info.revoked else ControllerWedgedError
        return kind(
            f"{address} has been wedged for {ago:.1f} s: {reason}; await "
            "controller.reset()"
        )
    if info.state == lib.UGDS_STATE_RESETTING:
        return ControllerWedgedError(
            f"{address} is being reset; try again when reset() has returned"
        )
    if info.state == lib.UGDS_STATE_REMOVED:
        return DeviceRemovedError(f"{address} was removed: {reason}")
    if info.state == lib.UGDS_STATE_CLOSED:  # at this moment, by another thread
        return ClosedError(f"{address} is closed; open it again")
    return None
