"""What a behaviour is given beside the address: options, and a device that can wait."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, Unpack

import aiougds
from aiougds import Controller, Mode, Namespace, OpenKeywords


class Device(Protocol):
    """What can be done to the device from outside."""

    def hold_next_read(self, ns: Namespace) -> AbstractContextManager[None]:
        """Keep the next read command from completing, up to the end of ``with``."""

    def slow(self, ns: Namespace) -> AbstractContextManager[None]:
        """Let read commands take a good while, up to the end of ``with``."""

    def warn(self, ns: Namespace) -> AbstractContextManager[None]:
        """Have the controller report a SMART warning; it is over after ``with``."""

    def clean(self, ns: Namespace) -> None:
        """Raise when the device saw an access that it should not have."""


@dataclass(frozen=True, slots=True)
class Tools:
    """How the address is opened, and what can be done to the device behind it."""

    device: Device
    mode: Mode = "adaptive"

    def open(
        self, address: str, **options: Unpack[OpenKeywords]
    ) -> AbstractAsyncContextManager[Namespace]:
        """Open the first namespace, in the mode that is looked at."""
        options.setdefault("mode", self.mode)
        return aiougds.open(address, **options)

    def open_controller(
        self, address: str, **options: Unpack[OpenKeywords]
    ) -> AbstractAsyncContextManager[Controller]:
        """Open the controller."""
        options.setdefault("mode", self.mode)
        return aiougds.open_controller(address, **options)


def noise(seed: int, nbytes: int) -> bytes:
    """Return the same bytes for the same seed."""
    return Random(seed).randbytes(nbytes)


def idle(ns: Namespace) -> None:
    """Assert that nothing was left behind."""
    stats = ns.controller.statistics()
    assert stats.inflight == stats.quarantined == stats.unknown_cids == 0, stats
    assert not ns.controller.quarantine


async def refused(kind: type[Exception], work: Any) -> Exception:  # noqa: ANN401
    """Await what has to raise, and return the exception."""
    try:
        result = await work
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised, but {result!r} returned")
