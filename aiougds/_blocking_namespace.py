"""The namespace of the blocking interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Self, SupportsIndex

from aiougds._blocking_base import AsCompleted, Batch, Registration, operate, run
from aiougds._blocking_controller import ControllerCalls
from aiougds._blocking_stream import StreamCalls
from aiougds._channel import Channel
from aiougds._completion import refuse_inside_loop, run_blocking
from aiougds._completion_thread import thread_home
from aiougds._errors import UGDSError
from aiougds._failure import last_record
from aiougds._ffi import PENDING, lib
from aiougds._options import EDGES
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._registration import allocate, register, register_dmabuf

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Buffer

    from aiougds._buffer import ForeignMemory, GPUDevice
    from aiougds._gpu.streams import After
    from aiougds._namespace import Namespace as AsyncNamespace
    from aiougds._options import Edges, IoClass, Mode, PolicyName
    from aiougds._policy import Policy

READ: Final = lib.UGDS_OP_READ
WRITE: Final = lib.UGDS_OP_WRITE
FUA: Final = lib.UGDS_F_FUA
_rw: Final = lib.ugds_rw


class Controller(ControllerCalls):
    """An open controller; as :class:`aiougds.Controller`."""

    __slots__ = ()

    def namespace(
        self, nsid: int | None = None, *, readonly: bool = False
    ) -> Namespace:
        """Return a namespace; None: the lowest one that can be used."""
        return Namespace(self._controller.namespace(nsid, readonly=readonly))


class Namespace(StreamCalls):
    """A namespace, or a region of one; as :class:`aiougds.Namespace`."""

    __slots__ = ("_controller", "_device", "_ns")

    def __init__(self, ns: AsyncNamespace) -> None:
        self._ns = ns
        self._device = ns._device
        self._controller = Controller(ns.controller)

    # ---- what it is ----

    @property
    def nsid(self) -> int:
        """Namespace identifier."""
        return self._ns.nsid

    @property
    def size(self) -> int:
        """Bytes."""
        return self._ns.size

    @property
    def lba_bytes(self) -> int:
        """Bytes of a block."""
        return self._ns.lba_bytes

    @property
    def readonly(self) -> bool:
        """Whether writing is refused."""
        return self._ns.readonly

    @property
    def controller(self) -> Controller:
        """The controller it belongs to."""
        return self._controller

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._ns.closed

    # ---- transfers ----

    def _quick(self, buf: object, offset: SupportsIndex, op: int) -> int | None:
        """Run it when it is the usual kind; None: nothing was sent."""
        device = self._device
        channel = thread_home().channels.get(id(device))
        if not isinstance(channel, Channel) or not isinstance(
            buf, (RegistrationSlice, PinnedMemory)
        ):
            return None
        refuse_inside_loop()
        reg = buf._reg
        with channel.lock:
            if channel.closed or device.closing or reg._device is not device:
                return None
            if device.limbo:
                channel.reap()
            try:
                try:
                    result = _rw(
                        channel.ptr,
                        self._ns._ptr,
                        reg._handle,
                        buf._start,
                        buf.nbytes,
                        # typed: C refuses what is no number
                        offset,  # type: ignore[arg-type]
                        op,
                    )
                except (TypeError, OverflowError):
                    return None
                if result >= PENDING:
                    wait = channel.home.wait(channel, result - PENDING, reg)
                    record = run_blocking(wait)
                    if record.result < 0:
                        raise self._ns.failed(record, op, buf, offset, None)
                    return record.result
            except UGDSError:
                raise
            except BaseException:
                channel.settle()  # as in operate()
                raise
            if result < 0:
                failed = last_record(channel, result)
                if failed is not None:
                    raise self._ns.failed(failed, op, buf, offset, None)
                return None
        return result

    def read(
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
        """Read into ``buf``; as :meth:`aiougds.Namespace.read`."""
        flags = self._ns._named(policy, mode, io_class)
        plain = nbytes is None and timeout_s is None and edges in EDGES
        if plain and flags >= 0 and stream is None and after is None:
            done = self._quick(buf, offset, READ | flags)
            if done is not None:
                return done
        return operate(
            self._device,
            lambda: self._ns.read(
                buf,
                offset=offset,
                nbytes=nbytes,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
                edges=edges,
                jit=jit,
                stream=stream,
                after=after,
            ),
        )

    def write(
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
        """Write from ``buf``; as :meth:`aiougds.Namespace.write`."""
        flags = self._ns._named(policy, mode, io_class)
        plain = nbytes is None and timeout_s is None
        if plain and flags >= 0 and stream is None and after is None:
            op = WRITE | FUA if fua else WRITE
            done = self._quick(buf, offset, op | flags)
            if done is not None:
                return done
        return operate(
            self._device,
            lambda: self._ns.write(
                buf,
                offset=offset,
                nbytes=nbytes,
                fua=fua,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
                jit=jit,
                stream=stream,
                after=after,
            ),
        )

    def compare(
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
        """Compare with ``buf``; as :meth:`aiougds.Namespace.compare`."""
        return operate(
            self._device,
            lambda: self._ns.compare(
                buf,
                offset=offset,
                nbytes=nbytes,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
                jit=jit,
            ),
        )

    def flush(
        self,
        *,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Put everything that was written before onto the medium."""
        operate(
            self._device,
            lambda: self._ns.flush(
                policy=policy, mode=mode, io_class=io_class, timeout_s=timeout_s
            ),
        )

    def write_zeroes(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        fua: bool = False,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Write zeroes without moving them."""
        return operate(
            self._device,
            lambda: self._ns.write_zeroes(
                offset=offset,
                nbytes=nbytes,
                fua=fua,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
            ),
        )

    def deallocate(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Tell the controller that the blocks hold nothing."""
        return operate(
            self._device,
            lambda: self._ns.deallocate(
                offset=offset,
                nbytes=nbytes,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
            ),
        )

    def verify(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Have the controller check that the blocks can be read."""
        return operate(
            self._device,
            lambda: self._ns.verify(
                offset=offset,
                nbytes=nbytes,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
            ),
        )

    def read_many(
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
        """Read many ranges at once; as :meth:`aiougds.Namespace.read_many`."""
        return operate(
            self._device,
            lambda: self._ns.read_many(
                requests,
                offsets=offsets,
                nbytes=nbytes,
                buf_offsets=buf_offsets,
                policy=policy,
                mode=mode,
                io_class=io_class,
                timeout_s=timeout_s,
                stream=stream,
                after=after,
            ),
        )

    def write_many(
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
        """Write many ranges at once; as :meth:`aiougds.Namespace.write_many`."""
        return operate(
            self._device,
            lambda: self._ns.write_many(
                requests,
                offsets=offsets,
                nbytes=nbytes,
                buf_offsets=buf_offsets,
                policy=policy,
                mode=mode,
                io_class=io_class,
                fua=fua,
                timeout_s=timeout_s,
                stream=stream,
                after=after,
            ),
        )

    def batch(self, capacity: int = 128) -> Batch:
        """Return a reusable batch; as :meth:`aiougds.Namespace.batch`."""
        return Batch(self._ns.batch(capacity), self._device)

    def as_completed(
        self,
        requests: Iterable[tuple[PinnedMemory | RegistrationSlice, int]],
        *,
        op: Literal["read", "write"] = "read",
        capacity: int = 128,
        timeout_s: float | None = None,
    ) -> AsCompleted:
        """Take results in the order they end; use it in ``with``, then iterate.

        The rest is as of :meth:`aiougds.Namespace.as_completed`.
        """
        inner = self._ns.as_completed(
            requests, op=op, capacity=capacity, timeout_s=timeout_s
        )
        return AsCompleted(inner, self._device)

    # ---- memory, regions, the end ----

    def register(self, buf: ForeignMemory, *, cached: bool = False) -> Registration:
        """Register an object's memory; as :meth:`aiougds.Namespace.register`."""
        return register(Registration, buf, self._device, cached=cached)

    def register_dmabuf(
        self,
        fd: int,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        require_peer: bool = False,
    ) -> Registration:
        """Register a dma-buf; as :meth:`aiougds.Namespace.register_dmabuf`."""
        return register_dmabuf(
            Registration, fd, offset, nbytes, self._device, require_peer=require_peer
        )

    def allocate(self, nbytes: int, *, device: GPUDevice | None = None) -> Registration:
        """Return fresh registered memory; as :meth:`aiougds.Namespace.allocate`."""
        return allocate(Registration, nbytes, self._device, device)

    def region(
        self, offset: SupportsIndex, nbytes: SupportsIndex, readonly: bool | None = None
    ) -> Namespace:
        """Return a part of it as a namespace of its own."""
        return Namespace(self._ns.region(offset, nbytes, readonly))

    def using(
        self,
        *,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
    ) -> Namespace:
        """Return another handle of it; as :meth:`aiougds.Namespace.using`."""
        return Namespace(self._ns.using(policy=policy, mode=mode, io_class=io_class))

    def close(self, timeout_s: float | None = None) -> None:
        """Close it; as :meth:`aiougds.Namespace.aclose`."""
        run(lambda: self._ns.aclose(timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        run(lambda: self._ns.__aexit__(exc_type, exc, tb))

    def __repr__(self) -> str:
        return f"<blocking {self._ns!r}>"
