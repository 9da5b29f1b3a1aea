"""The limbo: memory that nobody uses any more but that the device may still touch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from aiougds._mapping import LostWindow, Stray

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._home import Signal
    from aiougds._mapping import Keeps


class Limbo:
    """What a controller was left with, and who waits for the end of something."""

    __slots__ = ("limbo", "observers")

    def __init__(self) -> None:
        self.limbo: deque[Stray | LostWindow] = deque()
        self.observers: list[Signal] = []

    def strand(self, keep: object) -> None:
        """Keep what an operation used until the device is done with its memory."""
        if keep is None:
            return
        for mapping in cast("Keeps", keep).mappings_on(cast("Device", self)):
            self.limbo.append(Stray(mapping, keep, unmap=False))

    def sweep_limbo(self) -> None:
        """Let go of the memory that the device is done with."""
        for _ in range(len(self.limbo)):
            try:
                stray = self.limbo.popleft()
            except IndexError:  # another thread sweeps too
                return
            if not stray.over():
                self.limbo.append(stray)

    def left_busy(self, ptr: int, nbytes: int) -> bool:
        """Whether the device may still touch a range that nobody holds any more."""
        return any(
            isinstance(stray, Stray)
            and stray.unmap
            and stray.mapping.memory.found_by_address
            and stray.mapping.memory.ptr < ptr + nbytes
            and ptr < stray.mapping.memory.ptr + stray.mapping.memory.nbytes
            for stray in tuple(self.limbo)
        )

    def progress(self) -> None:
        """Completions were taken: tell whoever waits for the end of something."""
        if self.limbo:
            self.sweep_limbo()
        for signal in tuple(self.observers):
            signal.set()
