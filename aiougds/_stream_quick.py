"""The usual way onto a stream: one plain transfer of registered memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._ffi import NULL, lib
from aiougds._flight import Flight, Transfer
from aiougds._gpu.streams import key_of
from aiougds._gpu_memory import GPUMemory
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._stream_op import StreamOperation

if TYPE_CHECKING:
    from aiougds._gpu.streams import StreamLike
    from aiougds._window import NamespaceWindow

_NO_CELLS: Final = (None, None)


def enqueue_quickly(
    ns: NamespaceWindow, stream: StreamLike, op: int, buf: object, offset: object
) -> StreamOperation | None:
    """Enqueue what needs no second look; None: the slow way does it, or says why not.

    One call of C, and nothing is made that C does not need; streams wait for what it
    takes.
    """
    window = ns._checked()
    if type(offset) is not int or not isinstance(
        buf, (RegistrationSlice, PinnedMemory)
    ):
        return None
    reg, device = buf._reg, window.device
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
    line.sweep()
    sink = device.streams.sink_here()
    one = Transfer(op, offset, nbytes, start, memory.nbytes, _NO_CELLS)
    flight = Flight(line, window, (one,), None, (ns, stream), (buf,))
    started = flight.started
    # Noted before the call: a signal's handler may raise behind it.
    line.flights.append(flight)
    try:
        code = lib.ugds_stream_rw(
            line.ptr,
            window.ptr,
            reg._handle,
            start,
            nbytes,
            offset,
            address,
            op,
            NULL if sink is None else sink.ptr,
            started,
        )
    except OverflowError:
        return None
    finally:
        token = started.token
        if not token:
            flight.refuse()
    if code < 0:
        return None
    if sink is None:
        pass
    elif code:
        flight.watch_here()
    else:
        flight.watched(sink, token)
    return StreamOperation(flight)
