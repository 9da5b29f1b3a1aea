"""One operation on a GPU stream, from its enqueue until nothing of it is outstanding.

What the user holds (the operation, its event) and what the controller keeps (until the
stream has passed it) share a flight. It ends for its user when C says how it ended, or
that it stalls; it is over when the device and the stream need its memory no more.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds._completion import current_home
from aiougds._errors import (
    AlignmentError,
    ClosedError,
    OperationWithdrawnError,
    RangeError,
    UGDSError,
    WrongLoopError,
)
from aiougds._failure import Request, ended, gone
from aiougds._ffi import Record, ffi, lib
from aiougds._gpu.errors import gpu_error
from aiougds._sink import End, end_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds._cells import Cell
    from aiougds._ffi import CData
    from aiougds._home import Home
    from aiougds._mapping import Mapping
    from aiougds._sink import Sink
    from aiougds._streams import StreamLine
    from aiougds._transfer import Window

WAITING: Final = lib.UGDS_SOP_WAITING
RUNNING: Final = lib.UGDS_SOP_RUNNING
DONE: Final = lib.UGDS_SOP_DONE
CANCELLED: Final = lib.UGDS_SOP_CANCELLED
FAILED: Final = lib.UGDS_SOP_FAILED
STALLED: Final = lib.UGDS_SOP_STALLED

_log: Final = logging.getLogger("aiougds.stream")


class Transfer(NamedTuple):
    """One transfer of an operation, as it was asked for."""

    op: int
    offset: int  # with a cell: what it held when it was enqueued means nothing
    nbytes: int
    buf_off: int
    buf_bytes: int
    cells: tuple[Cell | None, Cell | None]  # offset and length, late-bound


class Flight:
    """The state that an operation, its event and its controller share."""

    __slots__ = (
        "__weakref__",
        "_end",
        "_event",
        "_failing",
        "_left",
        "_refused",
        "_seen",
        "_started",
        "_token",
        "buffers",
        "events",
        "home",
        "keep",
        "line",
        "pinned",
        "sink",
        "stalls",
        "timeout_s",
        "transfers",
        "window",
    )

    def __init__(
        self,
        line: StreamLine,
        window: Window,
        transfers: Sequence[Transfer],
        timeout_s: float | None,
        keep: object,
        buffers: Sequence[object],
        pinned: Sequence[Mapping] = (),
    ) -> None:
        self._token = self._event = 0
        self._started: CData | None = None
        self.line = line
        self.window = window
        self.transfers = transfers
        self.timeout_s = timeout_s
        self.keep = keep
        self.buffers = buffers
        self.pinned = pinned  # just in time
        self.home: Home | None = None  # the loop that it was enqueued on
        self.sink: Sink | None = None  # the last that listens
        self._end: End | None = None
        self._failing = False  # fail() was called
        self._refused = False
        self._seen = False
        self._left = False
        self.events = 0  # objects of its event
        self.stalls = False  # when it fails, until somebody decides

    @property
    def token(self) -> int:
        """C's name of it; 0 before it is enqueued."""
        if not self._token and self._started is not None:
            self._token = self._started.token
        return self._token

    @property
    def event(self) -> int:
        """The event that is recorded behind it."""
        if not self._event and self._started is not None:
            self._event = self._started.event
        return self._event

    def beginning(self, started: CData) -> None:
        """C is about to write its token, which is known whatever is raised then."""
        self._started = started

    def begun(self, token: int, event: int) -> None:
        """It was enqueued."""
        self._token = token
        self._event = event

    # ---- how it is ----

    def look(self) -> End | None:
        """Return how C says that it is; None when it does not know it any more."""
        native = ffi.new("struct ugds_stream_result *")
        if not self.token or self.window.device.ended:
            return self._end
        if lib.ugds_stream_state(self.line.ptr, self.token, native) < 0:
            return self._end
        return end_of(native)

    def is_over(self) -> bool:
        """Whether its memory is needed no more; also when it was never enqueued."""
        if not self.token:
            return self._refused
        if self._end is not None and self._end.over:
            return True
        if (
            self._end is None
            and self is not self.line.minder  # told of some time: ask
            and not self.line.closed
            and self._is_listened_to()
        ):
            return False  # its loop will be told
        end = self.look()
        if end is None or not end.over:
            return self.window.device.ended
        if self._end is None or self._end.state == STALLED:
            self._note(end)  # it is a sweep that asks: no other one inside
        return True

    def is_unwatched(self) -> bool:
        """Whether a good end of it is nobody's business."""
        return self._left and not self.events and self._end is None

    def vanish(self) -> None:
        """It went well, and C has released it: its event is another operation's now."""
        if self.sink is not None:
            self.sink.hush(self._token)
        if self.line.minder is self:
            self.line.minder = None
        self._started = None
        self._token = 0
        self._refused = True
        self.land()

    def _is_listened_to(self) -> bool:
        sink = self.sink
        return self.home is not None and sink is not None and not sink.closed

    def has_passed(self) -> bool:
        """Whether its stream has passed it, and the device let go, told of or not."""
        if not self.token:
            return self._refused
        end = self.look()
        return end is None or end.over or self.window.device.ended

    @property
    def end(self) -> End | None:
        """How it ended for its user, or stalls; None: it has not."""
        return self._end

    def refuse(self) -> None:
        """It was not enqueued."""
        self._refused = True

    # ---- its end ----

    def watch(self, sink: Sink, *, lazily: bool = False) -> None:
        """Have a sink told of its end; ``lazily``: nobody waits for it."""
        self.sink = sink
        sink.listen(self.token, self)
        code = lib.ugds_stream_watch(self.line.ptr, self.token, sink.ptr, int(lazily))
        if code < 0:
            sink.hush(self.token)
            device = self.window.device
            raise device.refusal() or ClosedError("the stream was closed meanwhile")

    def watch_here(self) -> None:
        """Have the loop that runs here told of its end, if one does."""
        try:
            home = current_home()
        except WrongLoopError:
            return
        self.watch_lazily(self.window.device.streams.sink(home))

    def watch_lazily(self, sink: Sink) -> None:
        """As :meth:`watch`, of a loop that is here, and while nobody waits."""
        self.home = sink.home
        self.watch(sink, lazily=True)

    def told(self, end: End) -> None:
        """Note how it ended; also from another thread, and more than once."""
        self._note(end)
        if end.over:
            self.line.sweep()
            self.line.mind(self)

    def _note(self, end: End) -> None:
        if end.state == STALLED:
            now = self.look()
            if self._failing or now is None or now.state != STALLED:
                return  # it was decided meanwhile, and this is told late
        if self._end is None or self._end.state == STALLED:
            self._end = end
        if self._left:
            self.report()

    def uses(self, memory: object) -> bool:
        """Whether one of its transfers is to or from a registration."""
        return any(getattr(buf, "_reg", None) is memory for buf in self.buffers)

    def decide(self, *, again: bool) -> bool:
        """Try again what stalls, or let the stream pass; False: it does not stall."""
        call = lib.ugds_stream_resume if again else lib.ugds_stream_fail
        if self.window.device.ended:
            return False
        self._hear()
        # In this order: its end may be told before the call returns.
        before, self._end = self._end, None
        self._failing = not again
        if not call(self.line.ptr, self.token):
            self._failing = False
            self._restore(before)
            return False
        self._seen = not again
        return True

    def _hear(self) -> None:
        """Take what was told already: later it would look like news."""
        sink = self.sink
        if sink is None or sink.closed:
            return
        with contextlib.suppress(WrongLoopError):
            if sink.home is current_home():
                sink.reap()

    def _restore(self, before: End | None) -> None:
        if self._end is None:
            self._end = before

    def result(self) -> int:
        """Return the bytes moved, or raise what it ended with."""
        end = self._end
        assert end is not None
        self._seen = True
        if end.state == DONE:
            return end.result
        raise self._error(end)

    def _error(self, end: End) -> UGDSError:
        device = self.window.device
        if end.state == CANCELLED:
            return OperationWithdrawnError(
                "the operation was withdrawn by cancel() before its stream came to it; "
                "nothing was sent, and the stream passes it"
            )
        request = self._as_it_ran(end)
        error: UGDSError
        if end.gpu_code:
            what = f"{request.name} of {request.nbytes} bytes on a stream"
            error = gpu_error(self.line.vendor, end.gpu_code, what)
        elif (decision := self._bad_decision(end, request)) is not None:
            error = decision
        else:
            record = Record(end.token, end.result, end.status, end.done)
            error = ended(device, record, request, self.timeout_s)
        if len(self.transfers) > 1:
            error.add_note(f"transfer {end.item} of the set of {len(self.transfers)}")
        return error

    def _cells(self, index: int) -> tuple[Cell | None, Cell | None]:
        return self.transfers[min(index, len(self.transfers) - 1)].cells

    def _bad_decision(self, end: End, request: Request) -> UGDSError | None:
        """Return what is wrong with what the stream had put into cells, if that is."""
        at, length = self._cells(end.item)
        if (at is None and length is None) or end.status:  # a command was sent
            return None
        offset, nbytes, lba = request.offset, request.nbytes, request.lba_bytes
        most = self.transfers[end.item].nbytes
        match -end.result:
            case errno.EINVAL:
                what, value = ("offset", offset) if offset % lba else ("length", nbytes)
                error: UGDSError = AlignmentError(
                    f"{request.name}: the late-bound {what} {value} is not a multiple "
                    f"of the block size {lba}; nothing was sent"
                )
            case errno.EFAULT:
                error = RangeError(
                    f"{request.name}: the late-bound length {nbytes} is more than the "
                    f"{most} bytes of memory; nothing was sent"
                )
            case errno.ERANGE:
                error = RangeError(
                    f"{request.name}: the late-bound {nbytes} bytes at offset {offset} "
                    f"end at {offset + nbytes}, past the end of the namespace or "
                    f"region at {request.size}; nothing was sent"
                )
            case errno.ENXIO:
                error = gone(request.name)
            case _:
                return None
        return error

    def _as_it_ran(self, end: End) -> Request:
        """Return its failed transfer with the numbers that cells had when it began."""
        request = self.request(end.item)
        if any(cell is not None for cell in self._cells(end.item)):
            return request._replace(offset=end.offset, nbytes=end.nbytes)
        return request

    def request(self, index: int) -> Request:
        """Return one of its transfers, as failures are described."""
        transfer = self.transfers[min(index, len(self.transfers) - 1)]
        window = self.window
        return Request(
            transfer.op,
            transfer.offset,
            transfer.nbytes,
            transfer.buf_bytes,
            transfer.buf_off,
            window.lba_bytes,
            window.size if window.life else 0,
        )

    def land(self) -> None:
        """Let go of what it used."""
        self.keep = None
        self.buffers = ()
        pinned, self.pinned = self.pinned, ()
        for mapping in pinned:
            mapping.release()

    # ---- its user ----

    def leave(self) -> None:
        """Its user is gone: what goes wrong is logged, and nothing stalls for him.

        Of a destructor: it waits for nothing, and talks to no runtime.
        """
        self._left = True
        if self.stalls:
            lib.ugds_stream_leave(self.line.ptr, self.token)
        if self._end is not None:
            self.report()

    def report(self) -> None:
        """Log a failure that nobody has looked at, once."""
        end = self._end
        if self._seen or end is None or end.state in (DONE, CANCELLED):
            return
        self._seen = True
        error = self._error(end)
        _log.error(
            "an operation on a GPU stream failed, and nobody awaited it: %s: %s",
            type(error).__name__,
            error,
        )

    def __del__(self) -> None:
        token = self.token
        if token:
            # A destructor does not talk to the runtime: the next sweep does.
            self.line.released.append(token)
