"""Cutting the power of an embedded controller (``aiougds.testing.power_cut``)."""

from __future__ import annotations

import os
from errno import ENODEV, ENXIO, EOPNOTSUPP
from typing import TYPE_CHECKING

from aiougds._errors import CapabilityError, DeviceRemovedError, OptionError, UGDSError
from aiougds._ffi import NULL, ffi, lib

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._pinned import OnDevice

__all__ = ["check_power", "power_cut"]

SEED_MOST = (1 << 64) - 1


def check_power(device: Device, code: int) -> None:
    """Raise what the answer to a request for a power cut means."""
    if code >= 0:
        return
    if code == -EOPNOTSUPP:
        raise CapabilityError(
            f"{device.address}: a power cut needs the embedded controller (emu:)"
        )
    if code == -ENXIO:
        raise CapabilityError(
            f"{device.address}: nothing would be lost, for nothing is remembered of "
            "what is written; add volatile=1 to the address"
        )
    if code == -ENODEV:
        raise DeviceRemovedError(
            f"{device.address}: there is no power to be cut, it is off already"
        )
    raise UGDSError(
        f"{device.address}: the power cut was not done as it should: "
        f"{os.strerror(-code)}; what is stored proves nothing",
        errno=-code,
    )


def power_cut(
    target: OnDevice, *, seed: int | None = None, stays_off: bool = False
) -> None:
    """Cut the power of an embedded controller that was opened with ``volatile=1``.

    What is on its way never completes. What was written since it was last made durable
    (by Flush, by FUA, by write zeroes with FUA, by switching the write cache off, or by
    a normal shutdown) is kept or lost, in pieces and in any order, as ``seed`` chooses;
    without one the seeds are those that ``seed=`` of the address started. See
    docs/concepts/power.md.

    Power comes back at once. To the host the controller is one that was just switched
    on (CC.EN and CSTS.RDY are 0): its state is "wedged", operations in flight end with
    ControllerWedgedError, and ``await controller.reset()`` brings it back, over a file
    or in memory. With ``stays_off`` registers read all ones: its state is "removed",
    operations end with DeviceRemovedError, and there is nothing to reset; close it
    (``force=True`` if operations were in flight) and open the same file anew.

    Returns when the controller's state says so. Raises CapabilityError without
    ``volatile``, DeviceRemovedError if the power is off already.
    """
    device = target._device
    device.check_open()
    native = NULL
    if seed is not None:
        if type(seed) is not int or not 0 <= seed <= SEED_MOST:
            raise OptionError(f"seed={seed!r} is not an integer in 0 .. 2**64 - 1")
        native = ffi.new("uint64_t *", seed)
    check_power(device, lib.ugds_emu_power_cut(device.ptr, native, stays_off))
