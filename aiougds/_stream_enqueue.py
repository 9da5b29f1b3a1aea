"""Putting an operation on a stream: one call of C, or an unchanged stream."""

from __future__ import annotations

import errno
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, SupportsIndex

from aiougds._cells import Cell
from aiougds._errors import (
    BusyError,
    CapabilityError,
    ClosedError,
    GraphCaptureError,
    MemoryLayoutError,
    RangeError,
    UGDSError,
    WrongGPUError,
)
from aiougds._failure import NAMES, Request, past_end, refused, unaligned
from aiougds._ffi import NULL, ffi, lib, text
from aiougds._flight import Flight, Transfer
from aiougds._gpu.errors import gpu_error
from aiougds._gpu.streams import DEFAULT_STREAMS, stream_of
from aiougds._gpu.which import NAMES_OF, which_runtime
from aiougds._gpu_memory import GPUMemory
from aiougds._mapping import Mapping
from aiougds._order import recorded
from aiougds._stream_how import How, check_how, native_how
from aiougds._stream_op import StreamOperation
from aiougds._transfer import locate, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds._ffi import CData
    from aiougds._gpu.pointers import Pointer
    from aiougds._gpu.streams import StreamHandle, StreamLike
    from aiougds._streams import StreamLine
    from aiougds._transfer import Place, Window
    from aiougds._window import NamespaceWindow

READ: Final = lib.UGDS_OP_READ


class StreamItem(NamedTuple):
    """One transfer, as it was asked for."""

    op: int
    buf: object
    offset: SupportsIndex | Cell
    nbytes: SupportsIndex | Cell | None


class _Found(NamedTuple):
    """A transfer whose memory is known, and whose numbers are checked."""

    place: Place
    offset: int
    nbytes: int
    offset_cell: CData
    nbytes_cell: CData


def check(ns: NamespaceWindow, stream: StreamLike, item: StreamItem) -> None:
    """Raise what is wrong with a transfer, as far as it is known before its set is."""
    window = ns._checked()
    found = _find(window, item)
    handle = stream_of(stream)
    gpu = isinstance(found.place.memory, GPUMemory)
    if gpu or (handle.runtime is not None and handle.handle not in DEFAULT_STREAMS):
        _refuse_other_gpu(_line(window, handle, (found,)), found.place)
    _refuse_to_pin(window, found.place)


def _line(window: Window, handle: StreamHandle, found: Sequence[_Found]) -> StreamLine:
    near = _pointer(found)
    said = handle.runtime
    if said is None and near is not None:
        said = NAMES_OF[near.vendor]  # a raw handle is of the memory's runtime
    runtime, vendor = which_runtime(said, f"stream {handle.handle:#x}")
    if near is not None and near.vendor != vendor:
        near = None
    return window.device.streams.line(handle, runtime, vendor, near)


def _pointer(found: Sequence[_Found]) -> Pointer | None:
    """Return memory of a GPU, if any of it is."""
    for one in found:
        if isinstance(one.place.memory, GPUMemory):
            return one.place.memory.found[0]
    return None


def _find(window: Window, item: StreamItem) -> _Found:
    name = NAMES[item.op & 0xFF]
    place = locate(window.device, item.buf, item.op & 0xFF)
    offset_cell = nbytes_cell = NULL
    at, length = 0, place.nbytes
    if isinstance(item.offset, Cell):
        offset_cell = ffi.cast("uint64_t *", item.offset._host)
    else:
        at = whole(item.offset, "offset")
    if isinstance(item.nbytes, Cell):
        nbytes_cell = ffi.cast("uint64_t *", item.nbytes._host)
    elif item.nbytes is not None:
        length = whole(item.nbytes, "nbytes")
    if length > place.nbytes:
        raise RangeError(
            f"{name}: nbytes={length} is more than the {place.nbytes} bytes of memory"
        )
    if not length:
        raise RangeError(f"{name}: there are no bytes to move on the stream")
    if (at | length) % window.lba_bytes:
        raise unaligned(name, at, length, window.lba_bytes)
    if at + length > window.size and nbytes_cell == NULL:
        raise past_end(name, at, length, window.size, window.gone())
    if place.ptr & 3:
        request = _request(window, item.op, place, at, length)
        raise refused(window.device, -errno.EDOM, request)
    return _Found(place, at, length, offset_cell, nbytes_cell)


def _request(window: Window, op: int, place: Place, at: int, length: int) -> Request:
    return Request(
        op,
        at,
        length,
        place.memory.nbytes,
        place.buf_off,
        window.lba_bytes,
        window.size,
    )


def enqueue(
    ns: NamespaceWindow, stream: StreamLike, items: Sequence[StreamItem], how: How
) -> StreamOperation:
    """Put transfers on a stream as one operation."""
    window = ns._checked()
    while True:
        try:
            return _enqueue_all(ns, window, stream, items, how)
        except _ReplacedError as replaced:  # a stream that was destroyed had its handle
            window.device.streams.retire(replaced.line)


class _ReplacedError(Exception):
    def __init__(self, line: StreamLine) -> None:
        super().__init__(line.name)
        self.line = line


def _enqueue_all(
    ns: NamespaceWindow,
    window: Window,
    stream: StreamLike,
    items: Sequence[StreamItem],
    how: How,
) -> StreamOperation:
    check_how(how, window.device)
    found = [_find(window, item) for item in items]
    reads_late = any(
        item.op & 0xFF == READ and one.nbytes_cell != NULL
        for item, one in zip(items, found, strict=True)
    )
    handle = stream_of(stream)
    line = _line(window, handle, found)
    line.sweep()
    for one in found:
        _refuse_other_gpu(line, one.place)
    pinned: list[Mapping] = []
    flight: Flight | None = None
    with ExitStack() as events:
        producers = _producers(items, found, handle, line.vendor, events)
        flags = lib.UGDS_SOP_KEEP if reads_late else 0
        native = native_how(how, flags, line.runtime, producers)
        try:
            places = [_reachable(window, one.place, pinned) for one in found]
            transfers = [
                Transfer(
                    item.op,
                    one.offset,
                    one.nbytes,
                    place.buf_off,
                    place.memory.nbytes,
                    (_cell(item.offset), _cell(item.nbytes)),
                )
                for item, one, place in zip(items, found, places, strict=True)
            ]
            # ``after`` need not live on: the stream waits for it already.
            keep = (ns, stream, items, places, how.status)
            bufs = [item.buf for item in items]
            flight = Flight(line, window, transfers, how.timeout_s, keep, bufs, pinned)
            flight.stalls = how.on_error == "stall"
            with how.status.serving(flight) if how.status else nullcontext():
                _enqueue(flight, _array(transfers, found, places), native)
        except BaseException:
            if flight is None or not flight.token:  # else the stream has some of it
                for mapping in pinned:
                    mapping.release()
            raise
    flight.watch_here()
    return StreamOperation(flight)


def _producers(
    items: Sequence[StreamItem],
    found: Sequence[_Found],
    handle: StreamHandle,
    vendor: int,
    events: ExitStack,
) -> list[int]:
    """Return events behind the streams that objects name themselves.

    ``__cuda_array_interface__`` does: its memory is ready when that stream is.
    """
    made: dict[int, int] = {}
    for item, one in zip(items, found, strict=True):
        memory = one.place.memory
        if not isinstance(memory, GPUMemory) or memory.found[0].vendor != vendor:
            continue  # of another GPU: refused
        named = memory.stream
        if named is None or named == handle.handle or named in made:
            continue
        what = NAMES[item.op & 0xFF]
        _, made[named] = events.enter_context(recorded(named, memory, what))
    return list(made.values())


def _cell(value: object) -> Cell | None:
    return value if isinstance(value, Cell) else None


def _refuse_other_gpu(line: StreamLine, place: Place) -> None:
    memory = place.memory
    if not isinstance(memory, GPUMemory):
        return
    of = memory.found[0]
    if (of.vendor, of.device) != (line.vendor, line.device):
        raise WrongGPUError(
            f"{memory.what}, and the stream {line.handle:#x} is of "
            f"{line.runtime}:{line.device}: use a stream of the memory's GPU"
        )


def _refuse_to_pin(window: Window, place: Place) -> None:
    if not place.handle and not window.device.info().caps & lib.UGDS_CAP_MAP_INLINE:
        raise MemoryLayoutError(
            "the memory is not registered, and pinning it takes a system call, for "
            "which a call that puts something on a stream does not wait: use "
            "ns.register()"
        )


def _reachable(window: Window, place: Place, pinned: list[Mapping]) -> Place:
    """Return memory that is mapped; pin it just in time where that takes no wait."""
    if place.handle:
        return place
    device, memory = window.device, place.memory
    _refuse_to_pin(window, place)
    if device.limbo:
        device.sweep_limbo()
        if device.left_busy(memory.ptr, memory.nbytes):
            request = _request(window, READ, place, 0, memory.nbytes)
            raise device.refusal() or refused(device, -errno.EBUSY, request)
    mapping = Mapping(device, memory)
    pinned.append(mapping)
    device.jit_pins += 1
    return place._replace(handle=mapping.handle, keep=mapping)


def _array(
    transfers: Sequence[Transfer], found: Sequence[_Found], places: Sequence[Place]
) -> CData:
    array = ffi.new("struct ugds_stream_item[]", len(found))
    for i, (transfer, one, place) in enumerate(
        zip(transfers, found, places, strict=True)
    ):
        native = array[i]
        native.map = place.handle
        native.buf_off, native.nbytes = place.buf_off, one.nbytes
        native.offset, native.op = one.offset, transfer.op
        native.gpu_addr = place.ptr if isinstance(place.memory, GPUMemory) else 0
        native.offset_cell, native.nbytes_cell = one.offset_cell, one.nbytes_cell
    return array


def _enqueue(flight: Flight, array: CData, how: tuple[CData, object]) -> None:
    line, window = flight.line, flight.window
    err = ffi.new("struct ugds_error *")
    started = ffi.new("struct ugds_stream_started *")
    flight.beginning(started)
    # Noted before the call: a signal's handler may raise behind it.
    line.flights.append(flight)
    try:
        code = lib.ugds_stream_enqueue(
            line.ptr,
            window.ptr,
            array,
            len(flight.transfers),
            how[0],
            started,
            err,
        )
    finally:
        if not flight.token:
            flight.refuse()
    if code == -errno.EIDRM:
        raise _ReplacedError(line)
    if code < 0:
        raise _refusal(flight, started, code, text(err.text))


def _refusal(flight: Flight, started: CData, code: int, words: str) -> UGDSError:
    device, number = flight.window.device, -code
    index = min(int(started.item), len(flight.transfers) - 1)
    request = flight.request(index)
    error: UGDSError | None = None
    if started.gpu_code:
        what = f"{request.name} on a stream could not be queued"
        return gpu_error(flight.line.vendor, started.gpu_code, what, number)
    if number == errno.ESHUTDOWN:
        return device.refusal() or ClosedError("the stream was closed meanwhile")
    if words and number in _REFUSALS:
        return _REFUSALS[number](f"{request.name}: {words}")
    error = refused(device, code, request)
    if len(flight.transfers) > 1:
        error.add_note(f"transfer {index} of the set of {len(flight.transfers)}")
    return error


_REFUSALS: Final[dict[int, type[UGDSError]]] = {
    errno.EPERM: GraphCaptureError,
    errno.EAGAIN: BusyError,
    errno.ENOBUFS: BusyError,
    errno.E2BIG: RangeError,
    errno.EOPNOTSUPP: CapabilityError,
}
