"""Reads and writes in the order of a GPU stream, of the blocking interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:
    from aiougds._buffer import ForeignMemory
    from aiougds._cells import Cell, StatusCell
    from aiougds._gpu.streams import After, StreamLike
    from aiougds._namespace import Namespace as AsyncNamespace
    from aiougds._options import IoClass, Mode, PolicyName
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._policy import Policy
    from aiougds._stream_calls import OnError, StreamOrder
    from aiougds._stream_group import StreamGroup
    from aiougds._stream_op import StreamOperation


class StreamCalls:
    """What a namespace offers in the order of a stream; wait with ``operation.wait()``.

    None of these calls blocks.
    """

    __slots__ = ()

    _ns: AsyncNamespace

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
        """Read when a stream comes to it; as :meth:`aiougds.Namespace.read_on`."""
        return self._ns.read_on(
            stream,
            buf,
            offset=offset,
            nbytes=nbytes,
            policy=policy,
            mode=mode,
            io_class=io_class,
            after=after,
            timeout_s=timeout_s,
            on_error=on_error,
            order=order,
            status=status,
        )

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
        """Write when a stream comes to it; as :meth:`aiougds.Namespace.write_on`."""
        return self._ns.write_on(
            stream,
            buf,
            offset=offset,
            nbytes=nbytes,
            fua=fua,
            policy=policy,
            mode=mode,
            io_class=io_class,
            after=after,
            timeout_s=timeout_s,
            on_error=on_error,
            order=order,
            status=status,
        )

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
        """Return a set of transfers; as :meth:`aiougds.Namespace.on_stream`."""
        return self._ns.on_stream(
            stream,
            policy=policy,
            mode=mode,
            io_class=io_class,
            after=after,
            timeout_s=timeout_s,
            on_error=on_error,
            order=order,
            status=status,
        )
