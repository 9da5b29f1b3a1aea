"""How an operation is ordered on a stream: what was said of it, checked, and for C."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from aiougds._cells import StatusCell
from aiougds._errors import ArgumentTypeError, CapabilityError, WrongGPUError
from aiougds._ffi import ffi, lib, seconds_to_ns
from aiougds._gpu.streams import event_of
from aiougds._options import one_of
from aiougds._transfer import check_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._gpu.streams import After, EventHandle, EventLike, Runtime


class How(NamedTuple):
    """How an operation is ordered, and what becomes of its failure."""

    after: After | None
    timeout_s: float | None
    on_error: str
    order: str
    status: StatusCell | None


def check_how(how: How, device: Device) -> None:
    """Raise what is wrong with it, as far as it is known without a stream."""
    check_timeout(how.timeout_s)
    one_of("on_error", how.on_error, ("raise", "stall"))
    one_of("order", how.order, ("memops", "callback"))
    if how.status is not None and not isinstance(how.status, StatusCell):
        raise ArgumentTypeError(f"status={how.status!r}: a StatusCell is needed")
    _events(how)
    if how.order == "callback" and not device.info().caps & lib.UGDS_CAP_DIRECT:
        raise CapabilityError(
            'order="callback" is refused on the embedded controller: it moves the data '
            "with copies of the stream, and no call of the GPU runtime is allowed "
            "inside a host function; leave order out"
        )


def native_how(
    how: How, flags: int, runtime: Runtime, producers: Sequence[int]
) -> tuple[CData, object]:
    """Return it as C wants it, and what that points to."""
    native = ffi.new("struct ugds_stream_how *")
    native.flags = flags
    if how.on_error == "stall":
        native.flags |= lib.UGDS_SOP_STALL
    if how.order == "callback":
        native.flags |= lib.UGDS_SOP_CALLBACK
    if how.timeout_s is not None:
        native.timeout_ns = seconds_to_ns(how.timeout_s)
    if how.status is not None:
        native.cell = ffi.cast("struct ugds_stream_cell *", how.status._host)
    handles = [*producers, *(_of(event, runtime) for event in _events(how))]
    events = ffi.new("uint64_t[]", handles)
    if handles:
        native.after, native.nr_after = events, len(events)
    return native, events


def _events(how: How) -> list[EventHandle]:
    if how.after is None:
        return []
    several = how.after if isinstance(how.after, (list, tuple)) else (how.after,)
    return [event_of(event) for event in cast("Sequence[EventLike]", several)]


def _of(event: EventHandle, runtime: Runtime) -> int:
    """Return its raw handle; a runtime takes another's for a pointer of its own."""
    if event.runtime not in (None, runtime):
        raise WrongGPUError(
            f"after: the event {event.handle:#x} is of {event.runtime}, and the stream "
            f"of {runtime}, which cannot wait for it: await aiougds.gpu_event(event) "
            "before the call"
        )
    return event.handle
