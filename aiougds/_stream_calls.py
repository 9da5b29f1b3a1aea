"""Reads and writes in the order of a GPU stream, as calls of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, SupportsIndex

from aiougds._ffi import lib
from aiougds._gpu.streams import stream_of
from aiougds._policy import ASK, Said
from aiougds._stream_enqueue import StreamItem, enqueue
from aiougds._stream_group import StreamGroup
from aiougds._stream_how import How, check_how
from aiougds._stream_quick import enqueue_quickly
from aiougds._window import NamespaceWindow

if TYPE_CHECKING:
    from aiougds._buffer import ForeignMemory
    from aiougds._cells import Cell, StatusCell
    from aiougds._gpu.streams import After, StreamLike
    from aiougds._options import IoClass, Mode, PolicyName
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._policy import Policy
    from aiougds._stream_op import StreamOperation

OnError = Literal["raise", "stall"]
"""``stall``: after a failure the stream waits for ``resume()`` or ``fail()``."""
StreamOrder = Literal["memops", "callback"]
"""How the stream waits: words in memory, or a host function that blocks it."""

READ: Final = lib.UGDS_OP_READ
WRITE: Final = lib.UGDS_OP_WRITE
FUA: Final = lib.UGDS_F_FUA


class StreamCalls(NamespaceWindow):
    """What a namespace offers in the order of a stream. None of it waits."""

    __slots__ = ()

    def read_on(
        self,
        stream: StreamLike,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex | Cell,
        nbytes: SupportsIndex | Cell | None = None,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        after: After | None = None,
        timeout_s: float | None = None,
        on_error: OnError = "raise",
        order: StreamOrder = "memops",
        status: StatusCell | None = None,
    ) -> StreamOperation:
        """Read into ``buf`` when a GPU stream comes to it; the stream waits for that.

        What was queued on the stream before is over when the read begins, what is
        queued behind sees its bytes (uGDS paper, 3.3, but no callback holds a thread).
        Returns at once; await the operation, or not.

        ``stream`` is one of torch, CuPy, Numba or cuda.core, a HIP stream, or a raw
        handle (0: the legacy default stream). ``offset`` and ``nbytes`` may be cells
        that earlier kernels write; then the length of ``buf`` is the most. ``after``:
        events that it comes behind too. ``timeout_s`` counts from when the stream came
        to it, and fails the operation; the stream still waits until the device has
        answered. With ``on_error="stall"`` the stream waits after a failure until
        ``resume()`` or ``fail()``. ``order="callback"`` uses a host function of the
        runtime in place of memory operations. ``status`` is written before the stream
        goes on, for kernels that look. ``policy``, ``mode`` and ``io_class`` are as of
        :meth:`using`: how long the executor stays awake for it, and what goes before
        what at the device.

        Raises before anything is queued: AlignmentError, RangeError, ReadOnlyError,
        NotMappedError, ClosedError as :meth:`read`; ArgumentTypeError for what is no
        stream or event; GraphCaptureError on a stream that is capturing a graph;
        CapabilityError where the device cannot order that way; BusyError when too many
        operations wait; GPUError for what the runtime answered. Awaiting it raises
        what :meth:`read` raises, and OperationWithdrawnError after ``cancel()``.
        """
        flags = self._stream_flags
        # one by one: tuples of them take longer to make and compare than this call has
        if (
            flags != ASK
            and nbytes is None
            and policy is None
            and mode is None
            and io_class is None
            and after is None
            and timeout_s is None
            and status is None
            and on_error == "raise"
            and order == "memops"
        ):
            done = enqueue_quickly(self, stream, READ | flags, buf, offset)
            if done is not None:
                return done
        op = READ | self._planned_on_stream(
            "read_on", Said(policy, mode, io_class), offset, nbytes
        )
        item = StreamItem(op, buf, offset, nbytes)
        how = How(after, timeout_s, on_error, order, status)
        return enqueue(self, stream, (item,), how)

    def write_on(
        self,
        stream: StreamLike,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex | Cell,
        nbytes: SupportsIndex | Cell | None = None,
        fua: bool = False,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        after: After | None = None,
        timeout_s: float | None = None,
        on_error: OnError = "raise",
        order: StreamOrder = "memops",
        status: StatusCell | None = None,
    ) -> StreamOperation:
        """Write ``buf`` when a GPU stream comes to it; the stream waits for that.

        What was queued before has made the bytes, what is queued behind may change
        them. Everything else is as of :meth:`read_on`, and ``fua`` as of
        :meth:`write`.
        """
        op = WRITE | FUA if fua else WRITE
        flags = self._stream_flags
        # one by one: tuples of them take longer to make and compare than this call has
        if (
            flags != ASK
            and nbytes is None
            and policy is None
            and mode is None
            and io_class is None
            and after is None
            and timeout_s is None
            and status is None
            and on_error == "raise"
            and order == "memops"
        ):
            done = enqueue_quickly(self, stream, op | flags, buf, offset)
            if done is not None:
                return done
        op |= self._planned_on_stream(
            "write_on", Said(policy, mode, io_class), offset, nbytes
        )
        item = StreamItem(op, buf, offset, nbytes)
        how = How(after, timeout_s, on_error, order, status)
        return enqueue(self, stream, (item,), how)

    def on_stream(
        self,
        stream: StreamLike,
        *,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        after: After | None = None,
        timeout_s: float | None = None,
        on_error: OnError = "raise",
        order: StreamOrder = "memops",
        status: StatusCell | None = None,
    ) -> StreamGroup:
        """Return a set of transfers, ordered on a stream as a whole and free inside.

        ``with ns.on_stream(stream) as group:`` collects ``group.read(...)`` and
        ``group.write(...)``; leaving the block queues all of them as one operation,
        ``group.operation``, or nothing when it raises. Arguments are as of
        :meth:`read_on`, and what is wrong with them is raised here; what is wrong with
        a transfer is raised where it is added, and what only the stream knows when the
        block is left (a capture, too many that wait).
        """
        device = self._ready()
        how = How(after, timeout_s, on_error, order, status)
        flags = self._planned_on_stream("on_stream", Said(policy, mode, io_class))
        stream_of(stream)
        check_how(how, device)
        return StreamGroup(self, stream, how, flags)
