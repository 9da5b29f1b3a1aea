"""GPU events: the one behind a stream operation, and awaiting anybody's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from aiougds._blocking_base import run
from aiougds._completion import current_home
from aiougds._errors import ClosedError, WrongGPUError
from aiougds._ffi import ffi, lib
from aiougds._gpu.errors import gpu_error
from aiougds._gpu.streams import EventHandle, event_of, stream_of
from aiougds._gpu.which import current_place, which_runtime
from aiougds._options import check_wait
from aiougds._sink import Sink

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiougds._flight import Flight
    from aiougds._gpu.streams import EventLike, Runtime, StreamLike
    from aiougds._home import Home
    from aiougds._sink import End

_KEY: Final = 0  # of a home's sink for events, beside its channels


class _Reached:
    """Is told when an event is reached."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: End | None = None

    def told(self, end: End) -> None:
        self.end = end


class GPUEvent:
    """Waits for a GPU event. Made by :func:`aiougds.gpu_event`.

    Awaitable any number of times, from any loop; cancelling an await leaves the event
    alone. It keeps the event's object alive.
    """

    __slots__ = ("_ctx", "_device", "_event", "_runtime", "_vendor")

    def __init__(self, event: EventHandle) -> None:
        self._event = event
        self._runtime: Runtime
        self._runtime, self._vendor = which_runtime(
            event.runtime, f"event {event.handle:#x}"
        )
        self._device, self._ctx = event.device, 0
        if event.device < 0:
            self._device, self._ctx = current_place(self._vendor)

    def __await__(self) -> Generator[object, None, None]:
        return self._await().__await__()

    async def _await(self) -> None:
        await self.reached(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block this thread until the event is reached; False: not within the time.

        Refused inside a running event loop, which it would stop: await it there.
        ``timeout_s=0`` looks once. Raises GPUError when the work before it failed.
        """
        check_wait(timeout_s)
        return run(lambda: self.reached(timeout_s))

    @property
    def done(self) -> bool:
        """Whether all work before the event is over. Raises GPUError if it failed."""
        code = ffi.new("int *")
        found = lib.ugds_gpu_event_query(
            self._vendor, self._device, self._ctx, self._event.handle, code
        )
        if found < 0:
            raise gpu_error(self._vendor, code[0], f"{self!r}", -found)
        return bool(found)

    async def reached(self, timeout_s: float | None) -> bool:
        """Wait for it; False: not within the time. Raises GPUError if it failed."""
        place = (self._vendor, self._device, self._ctx, self._event.handle)
        return await event_reached(*place, repr(self), timeout_s)

    def __repr__(self) -> str:
        return f"<GPUEvent {self._runtime} {self._event.handle:#x}>"


async def event_reached(
    vendor: int, device: int, ctx: int, event: int, what: str, timeout_s: float | None
) -> bool:
    """Wait for an event; False: not within the time. Behind it nobody looks at it."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    home = current_home()
    sink = _sink(home)
    token, code = ffi.new("uint64_t *"), ffi.new("int *")
    found = lib.ugds_sink_event(sink.ptr, vendor, device, ctx, event, token, code)
    if found < 0:
        raise gpu_error(vendor, code[0], what, -found)
    if found:
        await home.take_cancel()
        return True
    told = _Reached()
    sink.listen(token[0], told)
    try:
        while (end := told.end) is None:
            left = None if end_s is None else end_s - time.monotonic()
            if left is not None and left <= 0:
                return False
            if sink.closed:
                raise ClosedError("the loop that awaited the event is over")
            await sink.wait(token[0], left)
    finally:
        if told.end is None and not sink.closed:
            sink.hush(token[0])
            lib.ugds_sink_event_drop(sink.ptr, token[0])
    if end.result < 0:
        raise gpu_error(vendor, end.gpu_code, what, -end.result)
    return True


def gpu_event(event: EventLike) -> GPUEvent:
    """Return what waits for a CUDA or HIP event: ``await aiougds.gpu_event(event)``.

    ``event`` is one of torch, CuPy, Numba, cuda.core or the bindings, the event of an
    operation, or a raw handle. Awaits until all work that the event was recorded
    behind is over, without a thread for each. Raises GPUError when that work failed,
    ArgumentTypeError for what is no event.
    """
    return GPUEvent(event_of(event))


def _sink(home: Home) -> Sink:
    found = home.channels.get(_KEY)
    if isinstance(found, Sink) and not found.closed:
        return found
    return Sink(home, _KEY)


class StreamEvent:
    """The CUDA or HIP event behind an operation. Made by ``operation.event``.

    It is recorded at once, so other streams can be made to wait for it right away:
    ``torch_stream.wait_event(op.event)``, ``cupy_stream.wait_event(op.event)``,
    ``op.event.wait(any_stream)``. Its raw handle is ``int(op.event)``. The handle is
    its own as long as this object, or the operation, is alive.
    """

    __slots__ = ("_flight",)

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        flight.events += 1

    def __del__(self) -> None:
        flight = getattr(self, "_flight", None)
        if flight is not None:
            flight.events -= 1

    @property
    def handle(self) -> int:
        """The raw ``CUevent`` or ``hipEvent_t``."""
        return self._flight.event

    ptr = handle  # as of CuPy
    cuda_event = handle  # as of torch

    def __int__(self) -> int:
        return self.handle

    @property
    def runtime(self) -> Literal["cuda", "hip"]:
        """``cuda`` or ``hip``."""
        return self._flight.line.runtime

    @property
    def device(self) -> int:
        """The ordinal of its GPU."""
        return self._flight.line.device

    def __aiougds_event__(self) -> EventHandle:
        return EventHandle(self.runtime, self.handle, self.device, self)

    def query(self) -> bool:
        """Whether the stream has passed the operation. Raises GPUError if it failed."""
        line = self._flight.line
        code = ffi.new("int *")
        found = lib.ugds_gpu_event_query(
            line.vendor, line.device, line.ctx, self.handle, code
        )
        if found < 0:
            raise gpu_error(line.vendor, code[0], f"{self!r}", -found)
        return bool(found)

    def wait(self, stream: StreamLike) -> None:
        """Make a stream wait until the stream of the operation has passed it.

        Returns at once: it is the stream that waits, as with ``torch.cuda.Event``.
        """
        line = self._flight.line
        target = stream_of(stream)
        if target.runtime not in (None, line.runtime):
            raise WrongGPUError(
                f"stream {target.handle:#x} is of {target.runtime}, and {self!r} of "
                f"{line.runtime}: no stream waits for an event of another runtime; "
                "await the event"
            )
        code = ffi.new("int *")
        failed = lib.ugds_gpu_stream_wait_event(
            line.vendor, line.device, line.ctx, target.handle, self.handle, code
        )
        if failed < 0:
            what = f"stream {target.handle:#x} that is to wait for {self!r}"
            raise gpu_error(line.vendor, code[0], what, -failed)

    def synchronize(self) -> None:
        """Block this thread until the stream has passed the operation.

        Refused inside a running event loop: await the event there.
        """
        GPUEvent(self.__aiougds_event__()).wait()

    def __await__(self) -> Generator[object, None, None]:
        return GPUEvent(self.__aiougds_event__()).__await__()

    def __repr__(self) -> str:
        end = self._flight.look()
        ahead = "passed" if end is None or end.over else "not passed"
        return f"<StreamEvent {self.runtime} {self.handle:#x}, {ahead}>"
