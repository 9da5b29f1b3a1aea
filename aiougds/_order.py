"""The order between a GPU stream and an awaited transfer: ``stream=``.

A transfer that is given a stream begins when all work that was queued on it before the
call has ended: a write moves what that work made, a read overwrites nothing that it
still needs. What is queued after the await has returned sees what was read. The stream
itself never waits (``read_on`` and ``write_on`` are for that), and neither does the
event loop.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aiougds._completion import current_home
from aiougds._errors import GraphCaptureError, OperationTimeoutError
from aiougds._ffi import ffi, lib
from aiougds._gpu import pointers
from aiougds._gpu.errors import gpu_error
from aiougds._gpu.runtime import to_load, unavailable
from aiougds._gpu.streams import event_of, stream_of
from aiougds._gpu.which import stream_place
from aiougds._gpu_memory import GPUMemory
from aiougds._stream_event import event_reached, gpu_event

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from aiougds._buffer import Memory
    from aiougds._gpu.streams import (
        After,
        EventHandle,
        EventLike,
        Runtime,
        StreamHandle,
    )
    from aiougds._transfer import Clock

# An idle stream takes some microseconds to come to an event; another thread takes more.
_SPIN_S: Final = 20e-6


class _Place(NamedTuple):
    vendor: int
    device: int
    ctx: int


def wanted(stream: object, memory: Memory) -> object:
    """Return the stream to be ordered behind: given, or named by the object itself."""
    if stream is None and isinstance(memory, GPUMemory):
        return memory.stream
    return stream


async def begin(
    after: After | None, stream: object, memory: Memory, what: str, clock: Clock
) -> float | None:
    """Wait for what a transfer comes behind; return what is left of its time."""
    if after is not None:
        await _runtimes_of([event_of(event) for event in _several(after)])
        await _behind_events(after, what, clock)
    if stream is not None:
        await _runtimes_of([stream_of(stream)])
        await _behind(stream, memory, what, clock)
    return clock.left()


def _several(after: After) -> Sequence[EventLike]:
    several = after if isinstance(after, (list, tuple)) else (after,)
    return cast("Sequence[EventLike]", several)


async def _runtimes_of(handles: Sequence[StreamHandle | EventHandle]) -> None:
    """Load the runtimes that they are of in a thread: packages are imported for it.

    What is wrong with them is told by whoever needs them.
    """
    names: set[Runtime] = set()
    for handle in handles:
        names.update(to_load(handle.runtime))
    if names:
        await current_home().off_loop(lambda: [unavailable(name) for name in names])


async def _behind_events(after: After, what: str, clock: Clock) -> None:
    """Wait until events are reached; as :func:`_behind`."""
    for event in _several(after):
        if not await gpu_event(event).reached(clock.left()):
            raise OperationTimeoutError(
                f"{what} was never sent: an event that it comes behind was not reached "
                "in time"
            )


async def _behind(stream: object, memory: Memory, what: str, clock: Clock) -> None:
    """Wait until the work that is queued on a stream has ended.

    OperationTimeoutError on the deadline; the runtime's failure where that work, or
    the stream, has failed. Cancelled, it ends at once: nothing was sent.
    """
    with recorded(stream, memory, what) as (place, event):
        await _reached(place, event, what, clock)


@contextmanager
def recorded(
    stream: object, memory: Memory, what: str
) -> Generator[tuple[_Place, int]]:
    """Make an event behind the work that is queued on a stream; where, and its handle.

    What waits for it on another stream needs it no longer than the call.
    """
    handle = stream_of(stream)
    place = _place(handle, memory)
    event, code = ffi.new("uint64_t *"), ffi.new("int *")
    capturing = lib.ugds_gpu_stream_capturing(
        place.vendor, place.device, place.ctx, handle.handle, code
    )
    if capturing > 0:
        raise GraphCaptureError(
            f"{what}: the stream is being captured into a graph, which has no moment "
            "to wait for; use it outside the capture"
        )
    result = capturing
    if result == 0:
        result = lib.ugds_gpu_event_record(*place, handle.handle, event, code)
    if result < 0:
        raise gpu_error(place.vendor, code[0], f"{what}: its stream", -result)
    try:
        yield place, int(event[0])
    finally:
        lib.ugds_gpu_event_free(*place, int(event[0]), code)


async def _reached(place: _Place, event: int, what: str, clock: Clock) -> None:
    code = ffi.new("int *")
    tried = f"{what}: the work on its stream"
    until = time.monotonic() + _SPIN_S
    result = 0
    while result == 0 and time.monotonic() < until:
        result = lib.ugds_gpu_event_query(*place, event, code)
    if result < 0:
        raise gpu_error(place.vendor, code[0], tried, -result)
    if result == 0 and not await event_reached(*place, event, tried, clock.left()):
        raise OperationTimeoutError(
            f"{what} was never sent: the work on its stream did not end in time"
        )


def _place(handle: StreamHandle, memory: Memory) -> _Place:
    """Return where a stream lives."""
    first = memory.found[0] if isinstance(memory, GPUMemory) else None
    runtime = handle.runtime
    if runtime is None and first is None:
        # A bare handle beside host memory: of the runtime that pinned it.
        first = pointers.of_loaded(memory.ptr) if memory.host else None
    if runtime is not None:
        vendor = pointers.usable((runtime,))[0]
    elif first is not None:
        vendor = first.vendor
    else:
        vendor = pointers.usable(pointers.BOTH)[0]
    if first is not None and first.vendor != vendor:
        first = None
    return _Place(vendor, *stream_place(handle, vendor, first))
