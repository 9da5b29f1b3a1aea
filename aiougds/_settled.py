"""Waiting until the device has let go of what was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds._errors import MemoryTypeError, OperationTimeoutError
from aiougds._ffi import lib
from aiougds._options import check_wait
from aiougds._transfer import locate

if TYPE_CHECKING:
    from aiougds._buffer import ForeignMemory
    from aiougds._device import Device
    from aiougds._pinned import PinnedMemory, RegistrationSlice

_RUNNING = (lib.UGDS_STATE_LIVE, lib.UGDS_STATE_RESETTING)


async def settled(
    device: Device,
    buf: ForeignMemory | PinnedMemory | RegistrationSlice | None,
    timeout_s: float | None,
) -> None:
    """Wait until no given-up command may touch the memory, or any at all."""
    device.check_open()
    check_wait(timeout_s)
    what, handle, start, nbytes = "memory", 0, 0, 0
    if buf is not None:
        place = locate(device, buf, lib.UGDS_OP_WRITE)
        if not place.handle:
            raise MemoryTypeError(
                f"{type(buf).__name__} that is not registered: what was pinned for a "
                "call has no name; leave it out to wait for all that was given up"
            )
        handle, start, nbytes = place.handle, place.buf_off, place.nbytes
        what = f"{nbytes} bytes of {place.keep!r}"

    def done() -> bool:
        return not device.may_touch(handle, start, nbytes)

    def stuck() -> bool:  # nothing but a reset, which is not under way, ends it
        return not device.ended and device.info().state not in _RUNNING

    while not await device.until(done, stuck, timeout_s):
        error = device.refusal()
        if error is not None:
            raise error
        if timeout_s is not None:
            raise OperationTimeoutError(
                f"the device did not let go of {what} within timeout_s={timeout_s:g}: "
                "a command that was given up has not come back; wait on, or reset the "
                "controller"
            )
        # It was stuck, and is reset by now: wait on.
