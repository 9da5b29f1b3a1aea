"""What read_on, write_on and a set on a stream return."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from aiougds._blocking_base import run
from aiougds._completion import current_home
from aiougds._errors import ClosedError
from aiougds._ffi import lib
from aiougds._flight import CANCELLED, DONE, FAILED, RUNNING, STALLED, WAITING
from aiougds._options import check_wait
from aiougds._stream_event import StreamEvent

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiougds._flight import Flight
    from aiougds._gpu.streams import EventHandle

StreamState = Literal["waiting", "running", "done", "cancelled", "failed", "stalled"]

_STATES: Final[dict[int, StreamState]] = {
    WAITING: "waiting",
    RUNNING: "running",
    DONE: "done",
    CANCELLED: "cancelled",
    FAILED: "failed",
    STALLED: "stalled",
}


class StreamOperation:
    """A transfer, or a set of them, in the order of a GPU stream.

    Made by ``ns.read_on``, ``ns.write_on`` and ``ns.on_stream``; it is on its way when
    they return. Await it any number of times, or not at all: it goes on, and a failure
    that nobody looks at is logged. Its result is the number of bytes moved. Cancelling
    an await does not withdraw it; :meth:`cancel` does.

    It holds its namespace, registered memory, buffer and cells until the stream has
    passed it.
    """

    __slots__ = ("_event", "_flight")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._event: StreamEvent | None = None

    # ---- its end ----

    def __await__(self) -> Generator[object, None, int]:
        return self._await().__await__()

    async def _await(self) -> int:
        await self._settled(None)
        return self._flight.result()

    def wait(self, timeout_s: float | None = None) -> int:
        """Block this thread until it ends, and return the bytes moved.

        Raises what awaiting it raises, and TimeoutError when it has not ended within
        ``timeout_s`` (0: look once): it goes on then. Refused inside a running event
        loop.
        """
        check_wait(timeout_s)

        async def work() -> int:
            if not await self._settled(timeout_s):
                raise TimeoutError(f"{self!r} has not ended within {timeout_s} s")
            return self._flight.result()

        return run(work)

    async def _settled(self, timeout_s: float | None) -> bool:
        """Wait until it ends or stalls; False: not within the time."""
        flight = self._flight
        home = current_home()
        if flight.end is not None:
            await home.take_cancel()
            return True
        device = flight.window.device
        may_spin = True  # where that was allowed, and may help: C knows
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while flight.end is None:
            if device.ended:
                raise device.refusal() or ClosedError(f"{device.address} is closed")
            sink = device.streams.sink(home)
            if not sink.listens(flight.token):
                flight.watch(sink)
            if may_spin:
                may_spin = False
                sink.look(flight.line.ptr, flight.token)
                if flight.end is not None:
                    await sink.taken()
                    return True
            left = None if end_s is None else end_s - time.monotonic()
            if left is not None and left <= 0:
                sink.reap()  # it may have ended, and nobody was told yet
                return flight.end is not None
            await sink.wait(flight.token, left)
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended: done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def state(self) -> StreamState:
        """How it is now.

        ``waiting`` until the stream comes to it, ``running``, ``stalled`` when it
        failed and its stream waits for :meth:`resume` or :meth:`fail`, and in the end
        ``done``, ``failed`` or ``cancelled``.
        """
        end = self._flight.look()
        return "failed" if end is None else _STATES[end.state]

    @property
    def bytes_done(self) -> int:
        """Bytes moved so far, as far as it is known."""
        end = self._flight.look()
        return 0 if end is None else end.done

    # ---- its order ----

    @property
    def event(self) -> StreamEvent:
        """The CUDA or HIP event that was recorded behind it."""
        if self._event is None:
            self._event = StreamEvent(self._flight)
        return self._event

    def __aiougds_event__(self) -> EventHandle:
        return self.event.__aiougds_event__()

    # ---- deciding ----

    def cancel(self) -> bool:
        """Withdraw it, if its stream has not come to it; False: it is too late.

        Nothing is sent then, awaiting it raises OperationWithdrawnError, and the stream
        passes it when it comes there. After that the device may be writing: it goes on
        to its end.
        """
        flight = self._flight
        if flight.window.device.ended:
            return False
        return bool(lib.ugds_stream_cancel(flight.line.ptr, flight.token))

    def resume(self) -> bool:
        """Try again what failed (``on_error="stall"``); False: it does not stall.

        ``timeout_s`` begins anew. Await it again for how that ends.
        """
        flight = self._flight
        if not flight.decide(again=True):
            return False
        flight.watch_here()
        return True

    def fail(self) -> bool:
        """Let its stream pass it as failed; False: it does not stall."""
        return self._flight.decide(again=False)

    def __repr__(self) -> str:
        flight = self._flight
        nbytes = sum(transfer.nbytes for transfer in flight.transfers)
        what = (
            f"{len(flight.transfers)} transfers"
            if len(flight.transfers) > 1
            else (
                "read" if flight.transfers[0].op & 0xFF == lib.UGDS_OP_READ else "write"
            )
        )
        return (
            f"<StreamOperation {what} of {nbytes} bytes on {flight.line.name}, "
            f"{self.state}>"
        )

    def __del__(self) -> None:
        flight = getattr(self, "_flight", None)
        if flight is not None:
            flight.leave()
