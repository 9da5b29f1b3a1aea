"""Asynchronous events of a controller (NVMe base, clause 5.2)."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from aiougds._completion import current_home
from aiougds._errors import BusyError
from aiougds._ffi import ffi, lib

if TYPE_CHECKING:
    from aiougds._device import Device

TYPES: Final = {
    0: "error",
    1: "smart",
    2: "notice",
    6: "io-command-set",
    7: "vendor",
}
DETAILS: Final = {
    (0, 0): "write to an invalid doorbell register",
    (0, 1): "invalid doorbell value",
    (0, 2): "diagnostic failure",
    (0, 3): "persistent internal error",
    (0, 4): "transient internal error",
    (0, 5): "firmware image load error",
    (1, 0): "reliability is degraded",
    (1, 1): "temperature threshold crossed",
    (1, 2): "spare is below its threshold",
    (2, 0): "namespace attributes changed",
    (2, 1): "firmware activation starts",
    (2, 2): "telemetry log changed",
    (2, 3): "asymmetric namespace access changed",
}
ROOM: Final = 64


@dataclass(frozen=True, slots=True)
class Event:
    """One asynchronous event."""

    type: str
    """``error``, ``smart``, ``notice``, ``io-command-set`` or ``vendor``."""
    info: int
    """Asynchronous Event Information: which one of its type."""
    log_page: int
    """The log page that says more."""
    text: str
    """What happened, in words."""
    dw0: int
    """Dword 0 of its completion."""


def decode(dw0: int) -> Event:
    """Take dword 0 of an asynchronous event's completion apart."""
    kind, info = dw0 & 0x7, (dw0 >> 8) & 0xFF
    name = TYPES.get(kind, f"reserved-{kind}")
    words = DETAILS.get((kind, info), f"{name} event {info:#04x}")
    return Event(name, info, (dw0 >> 16) & 0xFF, words, dw0)


class Events:
    """Async iterator over the events of a controller; one at a time may wait."""

    __slots__ = ("_device", "_ready", "_waiting")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._ready: deque[Event] = deque()
        self._waiting = False

    def __repr__(self) -> str:
        state = "closed" if self._device.ended else f"{len(self._ready)} ready"
        waiting = ", awaited" if self._waiting else ""
        return f"<Events of {self._device.address}, {state}{waiting}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event; StopAsyncIteration when the controller is closed.

        Cancelling it loses no event.
        """
        device = self._device
        if self._waiting:
            raise BusyError("another task waits for the events of this controller")
        self._waiting = True
        try:
            while not self._ready:
                if device.ended:
                    if device.forked:
                        device.check_open()
                    raise StopAsyncIteration
                array = ffi.new("uint32_t[]", ROOM)
                count = lib.ugds_ctrl_events(device.ptr, array, ROOM)
                self._ready.extend(decode(array[i]) for i in range(max(0, count)))
                if self._ready:
                    break
                await self._wait()
        finally:
            self._waiting = False
        return self._ready.popleft()

    async def _wait(self) -> None:
        device = self._device
        if device.event_fd < 0:
            # Our own number for it: closing the controller closes only its own.
            number = lib.ugds_ctrl_event_fd(device.ptr)
            if number < 0:
                return  # closed at this moment
            device.event_fd = os.dup(number)
            os.set_blocking(device.event_fd, False)
        await current_home().readable(device.event_fd)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(device.event_fd)
