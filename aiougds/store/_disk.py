"""One device of a store: its handles, and memory of our own to write and read with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import (
    ClosedError,
    ControllerWedgedError,
    OperationTimeoutError,
    RangeBusyError,
)
from aiougds.store._layout import BLOCK

if TYPE_CHECKING:
    from aiougds._home import Home
    from aiougds._namespace import Namespace
    from aiougds._pinned import RegistrationSlice
    from aiougds._registration import Registration
    from aiougds._transfer import Clock
    from aiougds.store._layout import Superblock

LOOK_S: Final = 0.02
BLOCKS: Final = 1024  # of headers and tails: operations in flight, about


class Alone:
    """What waits in a thread without a loop: nothing else could end the wait."""

    __slots__ = ()

    def turn(self, timeout_s: float | None) -> None:
        """Say so, instead of waiting for ever."""
        raise RangeBusyError(
            "nothing is left to wait for: all slots are pinned or given up; unpin "
            "some, or give the device time to answer"
        )


ALONE: Final = Alone()


class Disk:
    """A namespace as the store uses it."""

    __slots__ = (
        "_blocks", "_resets", "_stuck", "_views", "_waiting", "closed", "command_bytes",
        "extra", "fua", "gets", "home", "ns", "puts", "store", "superblock",
        "yielding",
    )  # fmt: skip

    def __init__(
        self,
        ns: Namespace,
        puts: Namespace,
        yielding: Namespace,
        gets: Namespace,
        superblock: Superblock,
        arena: Registration,
        home: Home,
    ) -> None:
        self.ns = ns
        self.puts = puts
        self.yielding = yielding
        """What puts go through while somebody reads: reads go before writes."""
        self.gets = gets
        self.superblock = superblock
        self.store = superblock.uuid[:8]
        self.home = home
        # Without a volatile cache what has completed is durable.
        self.fua = ns.controller.capabilities.volatile_write_cache
        self.command_bytes: int = ns._device.info().max_transfer
        count = arena.nbytes // BLOCK
        view = arena.view
        self._views = [view[i * BLOCK : (i + 1) * BLOCK] for i in range(count)]
        self._blocks = [
            (arena[i * BLOCK : (i + 1) * BLOCK], self._views[i])
            for i in reversed(range(count))
        ]
        self._resets = ns._device.stats().resets
        self.closed = False
        self.extra: list[Registration] = []
        self._waiting: list[object] = []
        self._stuck: list[tuple[RegistrationSlice, memoryview]] = []

    async def block(self, clock: Clock) -> tuple[RegistrationSlice, memoryview]:
        """Take a block of our memory; waits while there is none.

        Only without one in hand: who holds one takes :meth:`another`.
        """
        while not self._blocks:
            if self.closed:
                raise ClosedError("the store was closed meanwhile; open it again")
            if clock.over():
                raise OperationTimeoutError(
                    "no memory for headers and tails was free within timeout_s"
                )
            if self._stuck and not self.is_stuck():
                self._blocks += self._stuck
                self._stuck.clear()
                continue
            left = clock.left()
            if self._stuck:  # nobody tells when the device has answered
                left = LOOK_S if left is None else min(left, LOOK_S)
            await self.home.park(self._waiting, ALONE, left)
        return self._blocks.pop()

    async def another(self) -> tuple[RegistrationSlice, memoryview]:
        """Return one more block, which stays."""
        reg = await self.ns.allocate(BLOCK)
        self.extra.append(reg)
        return reg[:BLOCK], reg.view

    def close(self) -> None:
        """Have whoever waits find that it is over."""
        self.closed = True
        self.home.wake(self._waiting)

    async def wait(self, parked: list[object], clock: Clock) -> None:
        """Wait there until somebody wakes it."""
        if clock.over():
            raise OperationTimeoutError(
                "another put of the same key did not end within timeout_s"
            )
        await self.home.park(parked, ALONE, clock.left())

    def try_block(self) -> tuple[RegistrationSlice, memoryview] | None:
        """Take a block, if there is one."""
        return self._blocks.pop() if self._blocks else None

    def give(
        self, block: tuple[RegistrationSlice, memoryview], *, stuck: bool = False
    ) -> None:
        """Give one back; ``stuck``: the device may still touch it."""
        if stuck:
            self._stuck.append(block)
            return
        self._blocks.append(block)
        if self._waiting:
            self.home.wake(self._waiting)

    def is_stuck(self) -> bool:
        """Whether the device may still do something that was given up."""
        device = self.puts._device
        return not device.ended and any(
            device.is_stuck(handle._ptr)
            for handle in (self.puts, self.yielding, self.ns)
        )

    def check_power(self) -> None:
        """Raise when a volatile cache may have lost what was written before a flush.

        Whoever resets a controller does not say whether its power had gone.
        """
        if self.fua and self.ns._device.stats().resets != self._resets:
            raise ControllerWedgedError(
                "the controller was reset, and what its cache held may be lost"
            )
