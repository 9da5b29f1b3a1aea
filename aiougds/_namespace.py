"""A namespace: bytes on a device that one reads and writes."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Final, Literal, Self, SupportsIndex

from aiougds._bulk import read_or_write_many
from aiougds._errors import ControllerBusyError, RangeError
from aiougds._failure import Request, ended, last_record
from aiougds._ffi import PENDING, lib, seconds_to_ns
from aiougds._namespace_commands import NamespaceCommands
from aiougds._options import EDGES, one_of
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._policy import ASK, Said
from aiougds._quick import start_many
from aiougds._registration import Registration
from aiougds._stream_calls import StreamCalls
from aiougds._transfer import transfer, whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Buffer

    from aiougds._batch import Batch
    from aiougds._buffer import ForeignMemory
    from aiougds._completed import AsCompleted
    from aiougds._errors import UGDSError
    from aiougds._ffi import Record
    from aiougds._gpu.streams import After
    from aiougds._options import Edges, IoClass, Mode, PolicyName
    from aiougds._policy import Policy

READ: Final = lib.UGDS_OP_READ
WRITE: Final = lib.UGDS_OP_WRITE
FUA: Final = lib.UGDS_F_FUA
_rw: Final = lib.ugds_rw


def _is_positive(timeout_s: object) -> bool:
    """Whether it is a time limit; what is none is put in words the slow way."""
    return isinstance(timeout_s, (int, float)) and timeout_s > 0


class Namespace(NamespaceCommands, StreamCalls):
    """A namespace, or a region of one: byte-addressed, in whole blocks.

    Made by :func:`aiougds.open`, :meth:`Controller.namespace` and :meth:`region`.
    It may be used from any event loop and thread.

    What is awaited of it, :meth:`read` describes for all: cancelled, it goes on until
    the device has let go, at most ``cancel_grace_s``, and then raises; NVMeError is
    what the controller answered, BrokenError that it does not answer any more.
    """

    __slots__ = ()

    # ---- one transfer ----

    async def read(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
        edges: Edges = "refuse",
        jit: bool = True,
        stream: object = None,
        after: After | None = None,
    ) -> int:
        """Read ``nbytes`` (default: as many as ``buf`` has) into ``buf``.

        ``offset`` and length are whole blocks; with ``edges="bounce"`` any bytes.
        Memory that is not registered is pinned for the time of the call, or refused
        with ``jit=False``. Returns the bytes read; zero-length reads send nothing.
        ``policy``, ``mode`` and ``io_class`` say how it is awaited and scheduled, as of
        :meth:`using`.

        With ``stream``, a GPU stream (of torch, CuPy, cuda.core, or its handle), it
        starts when what is queued there now has ended: that work may still use the old
        bytes. What is queued after the return sees the new ones. With ``after``, one
        GPU event or several, it starts when they are reached.

        Awaits the completion of all commands (NVM command set, clause 3.2.4), or none
        when it can end inside the call. Cancelled, it goes on until the device has let
        go of ``buf``, at most ``cancel_grace_s``, and then raises. After ``timeout_s``
        it raises OperationTimeoutError; the bytes of ``buf`` stay busy until the
        device has answered. Raises AlignmentError, RangeError, ReadOnlyError,
        NotMappedError, ClosedError before anything is sent, NVMeError for what the
        controller answered, BrokenError when it does not answer any more.
        """
        kind = type(buf)
        channel = self._channel
        plain = policy is None and mode is None and io_class is None
        op = self._read_op if plain else ASK
        # get_running_loop() makes a system call (getpid) each time, this does not
        if (
            (kind is RegistrationSlice or kind is Registration)
            and channel.thread == get_ident()
            and channel.running()
            and nbytes is None
            and stream is None
            and after is None
            and edges in EDGES
            and (timeout_s is None or _is_positive(timeout_s))
        ):
            # typed: whatever is no slice raises AttributeError, and goes the long way
            part: RegistrationSlice = buf  # type: ignore[assignment]
            reg = part._reg
            if reg._device is self._device:
                if op < 0:
                    size = part.nbytes
                    op = READ | self._asked(
                        "read", offset, size, policy, mode, io_class
                    )
                # typed: C refuses an offset that is no number
                try:
                    result = _rw(
                        channel.ptr,
                        self._ptr,
                        reg._handle,
                        part._start,
                        part.nbytes,
                        offset,  # type: ignore[arg-type]
                        op,
                    )
                except (TypeError, OverflowError):
                    result = -1  # put in words below
                if result >= PENDING:
                    result -= PENDING
                    if timeout_s is not None:
                        lib.ugds_op_deadline(
                            channel.ptr, result, seconds_to_ns(timeout_s)
                        )
                    record = await channel.home.wait(channel, result, reg)
                    if record[1] >= 0:
                        return record[1]
                    raise self.failed(record, READ, buf, offset, timeout_s)
                if result >= 0:
                    channel.budget -= 1
                    if channel.budget <= 0:
                        await channel.breathe()
                    return result
                failed = last_record(channel, result)
                if failed is not None:
                    raise self.failed(failed, READ, buf, offset, timeout_s)
        one_of("edges", edges, EDGES)
        self._here()
        if op < 0:
            length = getattr(buf, "nbytes", None) if nbytes is None else nbytes
            op = READ | self._asked("read", offset, length, policy, mode, io_class)
        return await transfer(
            self._window,
            buf,
            op,
            offset,
            nbytes,
            timeout_s,
            bounce_edges=edges == "bounce",
            jit=jit,
            stream=stream,
            after=after,
        )

    async def write(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        fua: bool = False,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
        jit: bool = True,
        stream: object = None,
        after: After | None = None,
    ) -> int:
        """Write ``nbytes`` (default: as many as ``buf`` has) from ``buf``.

        With ``fua`` the bytes are on the medium when it returns (Force Unit Access);
        otherwise :meth:`flush` puts them there. Whole blocks only. With ``stream``, it
        starts when what is queued there now, which makes the bytes, has ended.
        Everything else is as of :meth:`read`; after a cancel or timeout the bytes may
        or may not have been written (NVM command set, clause 3.2.6).
        """
        kind = type(buf)
        channel = self._channel
        base = WRITE | FUA if fua else WRITE
        plain = policy is None and mode is None and io_class is None
        op = base | self._flags if plain else ASK
        # get_running_loop() makes a system call (getpid) each time, this does not
        if (
            (kind is RegistrationSlice or kind is Registration)
            and channel.thread == get_ident()
            and channel.running()
            and nbytes is None
            and stream is None
            and after is None
            and (timeout_s is None or _is_positive(timeout_s))
        ):
            # typed: as in read
            part: RegistrationSlice = buf  # type: ignore[assignment]
            reg = part._reg
            if reg._device is self._device:
                if op < 0:
                    size = part.nbytes
                    op = base | self._asked(
                        "write", offset, size, policy, mode, io_class
                    )
                # typed: C refuses an offset that is no number
                try:
                    result = _rw(
                        channel.ptr,
                        self._ptr,
                        reg._handle,
                        part._start,
                        part.nbytes,
                        offset,  # type: ignore[arg-type]
                        op,
                    )
                except (TypeError, OverflowError):
                    result = -1
                if result >= PENDING:
                    result -= PENDING
                    if timeout_s is not None:
                        lib.ugds_op_deadline(
                            channel.ptr, result, seconds_to_ns(timeout_s)
                        )
                    record = await channel.home.wait(channel, result, reg)
                    if record[1] >= 0:
                        return record[1]
                    raise self.failed(record, base, buf, offset, timeout_s)
                if result >= 0:
                    channel.budget -= 1
                    if channel.budget <= 0:
                        await channel.breathe()
                    return result
                failed = last_record(channel, result)
                if failed is not None:
                    raise self.failed(failed, base, buf, offset, timeout_s)
        self._here()
        if op < 0:
            length = getattr(buf, "nbytes", None) if nbytes is None else nbytes
            op = base | self._asked("write", offset, length, policy, mode, io_class)
        return await transfer(
            self._window,
            buf,
            op,
            offset,
            nbytes,
            timeout_s,
            jit=jit,
            stream=stream,
            after=after,
        )

    def failed(
        self,
        record: Record,
        op: int,
        buf: object,
        offset: SupportsIndex,
        timeout_s: float | None,
    ) -> UGDSError:
        """Return the exception for an operation on registered memory that failed."""
        assert isinstance(buf, (PinnedMemory, RegistrationSlice))
        request = Request(
            op,
            int(offset),
            buf.nbytes,
            buf._reg.nbytes,
            buf._start,
            self.lba_bytes,
            self.size,
        )
        return ended(self._device, record, request, timeout_s)

    async def compare(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
        jit: bool = True,
    ) -> int:
        """Have the controller compare stored bytes with ``buf``.

        Returns the bytes compared; raises CompareError when they differ and
        CapabilityError where the controller lacks Compare (NVM command set, clause
        3.2.1). Everything else is as of :meth:`read`.
        """
        said = Said(policy, mode, io_class)
        flags = self._planned("compare", said, offset, nbytes)
        op = lib.UGDS_OP_COMPARE | flags
        return await transfer(self._window, buf, op, offset, nbytes, timeout_s, jit=jit)

    # ---- many at once ----

    async def read_many(
        self,
        requests: Iterable[tuple[PinnedMemory | RegistrationSlice, int]]
        | PinnedMemory
        | RegistrationSlice,
        *,
        offsets: Buffer | None = None,
        nbytes: int | None = None,
        buf_offsets: Buffer | None = None,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
        stream: object = None,
        after: After | None = None,
    ) -> list[int]:
        """Read many ranges with one submission, one doorbell and one wait.

        As the paper's batch (uGDS paper, 3.2), of any length.

        Either ``requests`` are pairs of registered memory and offset; or it is one
        registration, and ``offsets`` (int64) say where each ``nbytes`` come from and
        ``buf_offsets`` (int64, default ``i * nbytes``) where in it they go.

        Returns the bytes of each item. All items are checked before the first is
        sent: a bad one raises what it would raise alone, with its index in a note.
        When items fail at the device, BatchError has a result for every one.
        Cancelling, ``timeout_s``, ``stream`` and ``after`` are as of :meth:`read`.
        """
        args = (requests, offsets, nbytes, buf_offsets, timeout_s)
        channel = self._channel
        plain = policy is None and mode is None and io_class is None
        op = self._read_op if plain else ASK
        here = channel.thread == get_ident() and channel.running()
        if not here:
            self._here()
        if op < 0:
            op = READ | self._asked("read_many", None, None, policy, mode, io_class)
        if here and stream is None and after is None:
            done = start_many(channel, self._window, op, *args)
            return done if isinstance(done, list) else await done
        return await read_or_write_many(self._window, op, *args, stream, after)

    async def write_many(
        self,
        requests: Iterable[tuple[PinnedMemory | RegistrationSlice, int]]
        | PinnedMemory
        | RegistrationSlice,
        *,
        offsets: Buffer | None = None,
        nbytes: int | None = None,
        buf_offsets: Buffer | None = None,
        fua: bool = False,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
        stream: object = None,
        after: After | None = None,
    ) -> list[int]:
        """Write many ranges; as :meth:`read_many`."""
        args = (requests, offsets, nbytes, buf_offsets, timeout_s)
        channel = self._channel
        base = WRITE | FUA if fua else WRITE
        plain = policy is None and mode is None and io_class is None
        op = base | self._flags if plain else ASK
        here = channel.thread == get_ident() and channel.running()
        if not here:
            self._here()
        if op < 0:
            op = base | self._asked("write_many", None, None, policy, mode, io_class)
        if here and stream is None and after is None:
            done = start_many(channel, self._window, op, *args)
            return done if isinstance(done, list) else await done
        return await read_or_write_many(self._window, op, *args, stream, after)

    def batch(self, capacity: int = 128) -> Batch:
        """Return a reusable context for up to ``capacity`` operations at a time.

        It belongs to the event loop that first submits with it (uGDS paper, 3.2).
        """
        from aiougds._batch import Batch

        return Batch(self, capacity)

    def as_completed(
        self,
        requests: Iterable[tuple[PinnedMemory | RegistrationSlice, int]],
        *,
        op: Literal["read", "write"] = "read",
        capacity: int = 128,
        timeout_s: float | None = None,
    ) -> AsCompleted:
        """Start many transfers and take their results in the order they end.

        An async context manager; inside, iterate over ``(index, result)``, where a
        result is the bytes moved or the exception that the item failed with. ``op``
        says which way; at most ``capacity`` are at the device at a time. Leaving
        early cancels what is left and waits until the device let go of it.
        """
        from aiougds._completed import AsCompleted

        one_of("op", op, ("read", "write"))
        code = READ if op == "read" else WRITE
        return AsCompleted(self, code, requests, capacity, timeout_s)

    # ---- regions ----

    def region(
        self, offset: SupportsIndex, nbytes: SupportsIndex, readonly: bool | None = None
    ) -> Namespace:
        """Return the bytes ``[offset, offset + nbytes)`` as a namespace of their own.

        Offsets inside count from its start; its bounds are enforced in C.
        ``readonly`` is inherited unless given; it cannot be lifted.
        """
        window = self._checked()
        at, length = whole(offset, "offset"), whole(nbytes, "nbytes")
        window.check_range("region", at, length)
        if not length:
            raise RangeError("region: nbytes=0: a region has at least one block")
        part = Namespace(
            self._controller,
            self.nsid,
            base=self._base + at,
            nbytes=length,
            readonly=self.readonly or bool(readonly),
        )
        part._do(self._how)
        return part

    async def __aenter__(self) -> Self:
        self._checked()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self.aclose()
        except ControllerBusyError:
            if self._owner:
                self._device.linger()
            raise
