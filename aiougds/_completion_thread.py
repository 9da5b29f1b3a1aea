"""Waiting in a plain thread, without any event loop."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, cast

from aiougds._ffi import seconds_to_ns
from aiougds._home import Home, Line, Pump, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._ffi import Record


class _ThreadSignal:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        came = self._event.wait(timeout_s)
        self._event.clear()
        return came


class ThreadHome(Home):
    """A thread without a loop: waits block, so its coroutines never suspend."""

    __slots__ = ()

    async def wait(self, line: Line, token: int, keep: object) -> Record:
        slot: list[Record] = []
        try:
            line.waiters[token] = (slot, keep)
            while not slot:
                line.block()
        except BaseException:  # of a signal handler: KeyboardInterrupt or another
            if token in line.waiters:  # else it is a fork's child
                self._cancelled(line, token, slot)
            raise
        return slot[0]

    def finish(self, line: Line, token: int) -> None:
        slot: list[Record] = []
        line.waiters[token] = (slot, None)
        self._cancelled(line, token, slot)
        if slot:
            line.unclaimed(slot[0].status)

    def no_waiter(self, line: Line, record: Record) -> None:
        """What was dispatched before a handler raised is dispatched once more."""

    def _cancelled(self, line: Line, token: int, slot: list[Record]) -> None:
        line.cancel(token)
        while not slot and token in line.waiters:
            # Told to stop once more: it already does.
            with contextlib.suppress(BaseException):
                line.block()

    async def told(self, line: Line, token: int, timeout_s: float | None) -> None:
        slot: list[Record] = []
        entry = line.waiters[token] = (slot, None)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not slot:
                left = 0 if end is None else seconds_to_ns(end - time.monotonic())
                line.block(left)
                if end is not None and time.monotonic() >= end:
                    return
        finally:
            if line.waiters.get(token) is entry:
                del line.waiters[token]

    async def park(
        self, parked: list[object], pump: Pump, timeout_s: float | None
    ) -> None:
        pump.turn(timeout_s)

    def resolve(self, slot: object, record: Record) -> None:
        cast("list[Record]", slot).append(record)

    def signal(self) -> Signal:
        return _ThreadSignal()

    async def readable(self, fd: int) -> None:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.poll()

    def post(self, work: Callable[[], None]) -> bool:
        work()
        return True

    def forget(self) -> None:
        """In a fork's child: the channels are the parent's."""
        self.channels.clear()


class _ThreadLocal(threading.local):
    """Its ``owner`` dies with the thread."""

    depth = 0
    owner: _ThreadOwner | None = None


class _ThreadOwner:
    __slots__ = ("home", "pid")

    def __init__(self) -> None:
        self.home = ThreadHome()
        self.pid = os.getpid()

    def __del__(
        self,
        finalizing: Callable[[], bool] = sys.is_finalizing,
        getpid: Callable[[], int] = os.getpid,
    ) -> None:
        # At the end of the interpreter, and in a fork's child, other threads stand
        # still wherever they were, perhaps holding a channel's lock: touch nothing.
        if not finalizing() and getpid() == self.pid:
            self.home.end()


state: Final = _ThreadLocal()


def thread_home() -> ThreadHome:
    """Return the home of this thread."""
    owner = state.owner
    if owner is None:
        owner = state.owner = _ThreadOwner()
    return owner.home


def blocking_depth() -> int:
    """Return how many blocking calls this thread is inside of."""
    return state.depth
