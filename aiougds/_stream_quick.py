"""The usual way onto a stream: one plain transfer of registered memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._ffi import ffi, lib, new_tuple
from aiougds._flight import Flight, Transfer
from aiougds._gpu.streams import key_of
from aiougds._gpu_memory import GPUMemory
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._stream_op import StreamOperation

if TYPE_CHECKING:
    from aiougds._gpu.streams import StreamLike
    from aiougds._window import NamespaceWindow

_NO_CELLS: Final = (None, None)
_rw: Final = lib.ugds_stream_rw


def enqueue_quickly(
    ns: NamespaceWindow, stream: StreamLike, op: int, buf: object, offset: object
) -> StreamOperation | None:
    """Enqueue what needs no second look; None: the slow way does it, or says why not.

    Streams wait for whatever is done before the one call of C: what can be done behind
    it is.
    """
    window, device = ns._window, ns._device
    if ns._closed or device.ended or device.closing:
        return None
    if type(offset) is not int or not isinstance(
        buf, (RegistrationSlice, PinnedMemory)
    ):
        return None
    reg = buf._reg
    line = device.streams.known(key_of(stream))
    memory = reg._memory
    if line is None or memory is None or reg._device is not device:
        return None
    start, nbytes = buf._start, buf.nbytes
    address = 0
    if isinstance(memory, GPUMemory):
        of = memory.found[0]
        if of.vendor != line.vendor or of.device != line.device or memory.stream:
            return None
        address = memory.ptr + start
    started = ffi.new("struct ugds_stream_started *")
    code = token = 0
    flight: Flight | None = None
    try:
        code = _rw(
            line.ptr,
            window.ptr,
            reg._handle,
            start,
            nbytes,
            offset,
            address,
            op,
            started,
        )
    except OverflowError:
        return None
    finally:
        # A signal's handler may raise behind the call: what was begun is noted.
        token = started.token
        if token:
            whole = (op, offset, nbytes, start, memory.nbytes, _NO_CELLS)
            one = new_tuple(Transfer, whole)
            flight = Flight(line, window, (one,), None, (ns, stream), (buf,))
            flight.begun(token, started.event)
            line.flights.append(flight)
            if len(line.flights) > line.sweep_at:
                line.sweep()
    if code < 0 or flight is None:
        return None
    if code and line.is_minded():  # it is swept with an earlier one
        return StreamOperation(flight)
    sink = line.sink
    if sink is None or not sink.is_here():
        sink = line.sink = device.streams.sink_here()
    if sink is not None:
        if code:
            line.minder = flight
        flight.watch_lazily(sink)
    return StreamOperation(flight)
