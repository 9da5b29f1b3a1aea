"""A sink: where one event loop or thread is told of ends on GPU streams.

One for each home and controller, and one for each home that awaits GPU events. It
lives and ends like a channel: its eventfd is watched by the home's loop, or polled by
a thread without one. Waiting for something here never keeps it from going on.
"""

from __future__ import annotations

import select
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiougds._errors import ClosedError, UGDSError
from aiougds._ffi import NULL, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._ffi import CData
    from aiougds._home import Home

REAP: Final = 64
FAIRNESS: Final = 64  # ends found without waiting before the loop gets a turn
MOST_MS: Final = 1e9  # some days; whoever waits longer looks in between


class End(NamedTuple):
    """How something is: ``struct ugds_stream_result`` as Python integers."""

    token: int
    result: int
    status: int
    done: int
    offset: int
    nbytes: int
    state: int
    item: int
    gpu_code: int
    over: bool


def end_of(native: CData) -> End:
    """Return a result of C."""
    return End(
        native.token,
        native.result,
        native.status,
        native.done,
        native.offset,
        native.nbytes,
        native.state,
        native.item,
        native.gpu_code,
        bool(native.over),
    )


class Listener(Protocol):
    """Is told once, in the home's own thread."""

    def told(self, end: End) -> None: ...


class Owner(Protocol):
    """The controller that a sink belongs to, as far as the sink has to know."""

    def progress(self) -> None: ...


class Sink:
    """One home's ear at one controller, or at GPU events."""

    __slots__ = (
        "_budget",
        "_forget",
        "_listeners",
        "_lock",
        "_out",
        "_owner",
        "closed",
        "fd",
        "home",
        "key",
        "ptr",
    )

    def __init__(
        self,
        home: Home,
        key: int,
        ctrl: CData = NULL,
        owner: Owner | None = None,
        forget: Callable[[Sink], None] | None = None,
    ) -> None:
        ret = ffi.new("struct ugds_sink **")
        code = lib.ugds_sink_open(ctrl, ret)
        if code < 0:
            raise UGDSError(
                "no sink for the ends of stream operations can be opened", errno=-code
            )
        self.ptr: CData = ret[0]
        self.home = home
        self.key = key
        self.closed = False
        self._owner = owner
        self._forget = forget
        self._budget = FAIRNESS
        self._lock = threading.RLock()
        self._out = ffi.new("struct ugds_stream_result[]", REAP)
        self._listeners: dict[int, tuple[Listener, list[object]]] = {}
        self.fd = lib.ugds_sink_fd(self.ptr)
        home.watch(self.fd, self.reap)
        home.channels[key] = self

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._listeners)} listening"
        return f"<Sink {state}>"

    def is_here(self) -> bool:
        """Whether its event loop runs in this thread; False: perhaps all the same."""
        home = self.home
        return home.thread == get_ident() and home.running() and not self.closed

    # ---- listening ----

    def listen(self, token: int, listener: Listener) -> None:
        """Have a listener told; ask C for it next."""
        self._listeners.setdefault(token, (listener, []))

    def listens(self, token: int) -> bool:
        """Whether C will tell of it."""
        return token in self._listeners

    def hush(self, token: int) -> None:
        """Nobody wants to be told of it any more."""
        self._listeners.pop(token, None)

    async def wait(self, token: int, timeout_s: float | None) -> None:
        """Wait until somebody was told, the deadline, or a while: look again."""
        entry = self._listeners.get(token)
        if entry is not None:
            await self.home.park(entry[1], self, timeout_s)

    def look(self, line: CData, token: int) -> None:
        """Take what there is to be told; wait some microseconds for what is so near."""
        if lib.ugds_sink_spin(self.ptr, line, token):
            self.reap()

    async def taken(self) -> None:
        """An end was found without waiting: take a cancellation that is pending."""
        self._budget -= 1
        if self._budget > 0:
            await self.home.take_cancel()
        else:
            self._budget = FAIRNESS
            await self.home.breathe()

    def reap(self) -> None:
        """Take what there is to be told."""
        count = REAP
        told = False
        while count == REAP and not self.closed:
            count = lib.ugds_sink_reap(self.ptr, self._out, REAP)
            for i in range(count):
                end = end_of(self._out[i])
                entry = self._listeners.pop(end.token, None)
                if entry is not None:
                    told = True
                    entry[0].told(end)
                    self.home.wake(entry[1])
        if told and self._owner is not None:
            self._owner.progress()

    def turn(self, timeout_s: float | None) -> None:
        """Wait in this thread until there is something to be told, and take it."""
        with self._lock:
            if self.closed:
                raise ClosedError("it was closed while this thread waited")
            poller = select.poll()
            poller.register(self.fd, select.POLLIN)
            poller.poll(
                None if timeout_s is None else min(max(0, timeout_s * 1e3), MOST_MS)
            )
            self.reap()

    # ---- as a channel, for its home and its controller ----

    def follow(self) -> None:
        """It compares nothing with where the home is."""

    def reap_if_free(self) -> None:
        """As reap(), unless the owning thread is inside a call."""
        if self._lock.acquire(blocking=False):
            try:
                self.reap()
            finally:
                self._lock.release()

    def in_call(self) -> bool:
        """Whether another thread waits on it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        return True

    @property
    def waiters(self) -> list[object]:
        """Whoever waits on it now."""
        listeners = list(self._listeners.values())
        return [waiter for _listener, parked in listeners for waiter in parked]

    def unfinished(self) -> int:
        """Return nothing: what it listens to is counted where it is done."""
        return 0

    def retire(self) -> None:
        """Close it: the home is over, or the controller."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self.home.channels.pop(self.key, None)
            self.home.unwatch(self.fd)
            if self._forget is not None:
                self._forget(self)
            lib.ugds_sink_close(self.ptr)
            left = list(self._listeners.values())
            self._listeners.clear()
            if not self.home.idle():
                for _listener, parked in left:  # they see that it is closed
                    self.home.wake(parked)

    def forget(self) -> None:
        """In a fork's child: touch nothing."""
        self.closed = True
        self._lock = threading.RLock()
        self._listeners.clear()
