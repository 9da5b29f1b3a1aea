"""The GPU streams that one controller has operations on, and their end."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from errno import EBUSY
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from aiougds._completion import current_home
from aiougds._errors import CapabilityError, ClosedError, WrongLoopError
from aiougds._ffi import ffi, lib, text
from aiougds._flight import Flight
from aiougds._gpu.errors import gpu_error
from aiougds._gpu.streams import DEFAULT_STREAMS, PER_THREAD
from aiougds._gpu.which import stream_place
from aiougds._options import max_connections
from aiougds._sink import Sink

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._gpu.pointers import Pointer
    from aiougds._gpu.streams import Runtime, StreamHandle
    from aiougds._home import Home

MANY: Final = 64  # operations that are let go of at once; what they used is held


class StreamLine:
    """A GPU stream as one controller uses it: C's part, and what is on its way."""

    __slots__ = (
        "closed",
        "ctx",
        "device",
        "flights",
        "handle",
        "minder",
        "ptr",
        "released",
        "runtime",
        "sink",
        "sweep_at",
        "vendor",
    )

    def __init__(
        self,
        ptr: CData,
        handle: int,
        runtime: Runtime,
        vendor: int,
        device: int,
        ctx: int,
    ) -> None:
        self.ptr = ptr
        self.handle = handle
        self.closed = False
        self.runtime: Runtime = runtime
        self.vendor = vendor
        self.device = device
        self.ctx = ctx
        self.sink: Sink | None = None  # of whoever enqueued last
        self.flights: deque[Flight] = deque()  # in the order of the stream
        self.sweep_at = MANY  # flights
        self.minder: Flight | None = None  # whose end is told for those that are quiet
        # Destructors only leave a note here: they do not talk to the runtime.
        self.released: deque[int] = deque()

    @property
    def name(self) -> str:
        """Name its stream, for sentences."""
        return f"{self.runtime} stream {self.handle:#x}"

    def info(self) -> CData:
        """Return ``struct ugds_stream_info`` of this moment."""
        info = ffi.new("struct ugds_stream_info *")
        lib.ugds_stream_info(self.ptr, info)  # all zero once it is closed
        return info

    def sweep(self) -> None:
        """Let go of what operations used that are over, up to the first that is not."""
        if self.closed:
            return
        while self.released:
            try:
                lib.ugds_stream_release(self.ptr, self.released.popleft())
            except IndexError:  # another thread sweeps too
                break
        while self.flights:
            if self._sweep_unwatched():
                continue
            try:
                flight = self.flights[0]
            except IndexError:
                break
            end = flight.end
            if (end is None or not end.over) and not flight.is_over():
                break
            try:
                self.flights.remove(flight)
            except ValueError:
                continue
            flight.land()
        self.sweep_at = len(self.flights) + MANY

    def is_minded(self) -> bool:
        """Whether a loop will be told of something, and sweep."""
        minder = self.minder
        return minder is not None and minder.sink is not None and not minder.sink.closed

    def mind(self, told: Flight) -> None:
        """One was told of: it is the last of what is left that is told of next."""
        if self.minder is not told:
            return
        self.minder = None
        with suppress(IndexError, ClosedError):
            last = self.flights[-1]
            if last.sink is None and told.sink is not None and not told.sink.closed:
                self.minder = last
                last.watch_lazily(told.sink)

    def _sweep_unwatched(self) -> bool:
        """Let go of the first that nobody looks at and that went well, many at once.

        False: there was no such one, or not all of those looked at are over.
        """
        first = [*takewhile(Flight.is_unwatched, [*islice(self.flights, MANY)])]
        if not first:
            return False
        tokens = ffi.new("uint64_t[]", [flight.token for flight in first])
        over = lib.ugds_stream_reap(self.ptr, tokens, len(first))
        for flight in first[:over]:
            with suppress(ValueError):
                self.flights.remove(flight)
            flight.vanish()
        return over == len(first)


class _Thread:
    """A thread, as long as it runs. Its identifier may be another's after that."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        self.number = next(_numbers)
        _threads[self.number] = self


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()


_numbers: Final = count(1)
_threads: Final[WeakValueDictionary[int, _Thread]] = WeakValueDictionary()
_here: Final = _Local()


class _Key(NamedTuple):
    vendor: int
    handle: int
    device: int
    ctx: int
    thread: int  # whose default stream it is; 0: not one of a thread


class Streams:
    """All of a controller's, by what they are."""

    __slots__ = ("_device", "_known", "_lines", "_lock", "_retired")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._lines: dict[_Key, StreamLine] = {}
        self._known: dict[tuple[object, ...], StreamLine] = {}
        # Of streams that nobody can name any more; something of them may not be over.
        self._retired: list[StreamLine] = []

    # ---- use ----

    def known(self, key: tuple[Runtime | None, int, int]) -> StreamLine | None:
        """Return the line that such a stream had the last time, unasked.

        Not of default streams, which are whatever is current. A handle that is another
        stream's now is refused by the runtime, or by C while something of the old one
        is not over, and then looked up by :meth:`line`.
        """
        line = self._known.get(key)
        return None if line is None or line.closed else line

    def line(
        self, stream: StreamHandle, runtime: Runtime, vendor: int, near: Pointer | None
    ) -> StreamLine:
        """Return the stream's line, made at its first operation.

        ``near``: the memory, whose default stream a bare 0, 1 or 2 is. Making it takes
        pinned memory, and so a while.
        """
        device, ctx = stream_place(stream, vendor, near)
        thread = _here.thread.number if stream.handle == PER_THREAD else 0
        key = _Key(vendor, stream.handle, device, ctx, thread)
        line = self._lines.get(key)
        if line is None:
            with self._lock:
                line = self._lines.get(key)
                if line is None:
                    self._let_go()
                    ptr = self._open(stream.handle, vendor, device, ctx)
                    line = StreamLine(ptr, stream.handle, runtime, vendor, device, ctx)
                    self._lines[key] = line
        if stream.runtime is not None and stream.handle not in DEFAULT_STREAMS:
            self._known[stream[:3]] = line
        return line

    def retire(self, line: StreamLine) -> None:
        """Its stream was destroyed, and another one has its handle."""
        with self._lock:
            self._forget_line(line)

    def _forget_line(self, line: StreamLine) -> None:
        for names in (self._lines, self._known):
            for name, known in list(names.items()):
                if known is line:
                    # typed: either of two dicts, by its own key
                    del names[name]  # type: ignore[arg-type]
        if line not in self._retired:
            self._retired.append(line)

    def _let_go(self) -> None:
        """Close what nobody can name any more, and nothing of which is outstanding."""
        for key, line in list(self._lines.items()):
            if key.thread and key.thread not in _threads:
                self._forget_line(line)
        for line in list(self._retired):
            line.sweep()
            if not line.info().waiting:
                self._end(line, force=False)

    def _open(self, handle: int, vendor: int, device: int, ctx: int) -> CData:
        native = ffi.new("struct ugds_stream_params *")
        native.vendor, native.device, native.ctx = vendor, device, ctx
        native.stream = handle
        native.connections = max_connections() if vendor == lib.UGDS_GPU_CUDA else 0
        ret, err = ffi.new("struct ugds_stream **"), ffi.new("struct ugds_error *")
        code = lib.ugds_stream_open(self._device.ptr, native, ret, err)
        if code < 0:
            words = text(err.text) or "the stream cannot be used"
            if err.status:
                raise gpu_error(vendor, err.status, words)
            raise self._device.refusal() or CapabilityError(words, errno=-code)
        # Freed when nobody can call with it any more: flights hold their line.
        return ffi.gc(ret[0], lib.ugds_stream_free)

    def sink(self, home: Home) -> Sink:
        """Return where a home is told of the ends of this controller's operations."""
        device = self._device
        key = -id(device)  # beside the home's channel
        found = home.channels.get(key)
        if isinstance(found, Sink) and not found.closed:
            return found
        with device.lock:
            device.check_open()
            sink = Sink(home, key, device.ptr, device, device.forget_channel)
            device.channels[id(sink)] = sink
        return sink

    def sink_here(self) -> Sink | None:
        """Return the sink of the loop that runs here, if one does."""
        try:
            return self.sink(current_home())
        except WrongLoopError:
            return None

    def sweep(self) -> None:
        """Let go of what operations used that are over."""
        for line in self._all():
            line.sweep()

    def unfinished(self) -> int:
        """Return operations that are not over."""
        self.sweep()
        return sum(line.info().waiting for line in self._all())

    def fail_stalls(self, memory: object) -> None:
        """Let streams pass what stalls over a registration that is being closed."""
        for line in self._all():
            for flight in list(line.flights):
                if flight.uses(memory):
                    flight.decide(again=False)

    def rings(self) -> int:
        """Return staging rings that are kept for the next operations."""
        infos = [line.info() for line in self._all()]
        spare = max((int(info.spare) for info in infos), default=0)
        return spare + sum(int(info.staged) for info in infos)

    # ---- the end ----

    def close(self, *, force: bool) -> bool:
        """Close what is idle; False: something is not over yet.

        What stalls is failed first; with ``force`` whatever has not ended is. What is
        closed is made again if its stream is used again after all.
        """
        with self._lock:
            for line in self._all():
                self._end(line, force=force)
            return not self._all()

    def _all(self) -> list[StreamLine]:
        return [*list(self._lines.values()), *self._retired]

    def _end(self, line: StreamLine, *, force: bool) -> None:
        if lib.ugds_stream_close(line.ptr, int(force)) == -EBUSY:
            return
        line.sweep()
        line.closed = True
        while line.flights:  # their loops were not told yet, or ended
            flight = line.flights.popleft()
            flight.is_over()  # and notes how it ended
            flight.land()
        self._forget_line(line)
        self._retired.remove(line)  # C frees it with the last that knows it

    def forget(self) -> None:
        """In a fork's child: the streams are the parent's."""
        self._lock = threading.RLock()
        for line in self._all():
            line.closed = True
        self._lines.clear()
        self._known.clear()
        self._retired.clear()
