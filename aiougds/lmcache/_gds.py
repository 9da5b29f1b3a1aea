"""The backend of LMCache's GDS L1 tier."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from aiougds._errors import UGDSError
from aiougds.lmcache._slab import Slab, Tensor
from aiougds.lmcache._slab_place import SlabPlace

if TYPE_CHECKING:
    from typing import ClassVar

    from aiougds._stream_op import StreamOperation

    # LMCache's own, as far as they are relied on (0.5.6, 0.5.7).
    class GDSBackend:
        """The base class of backends."""

        name: ClassVar[str]

    class GDSHandle:
        """The base class of slabs."""

        def __init__(self, path: str) -> None: ...

    class Submission:
        """A transfer that is under way."""

        result: ctypes.c_int64

        def __init__(self, size: int, file_offset: int, buf_offset: int) -> None: ...

    def new_raw_stream() -> int: ...

else:
    from lmcache.v1.gpu_connector.gds_backends.base import (
        GDSBackend,
        GDSHandle,
        Submission,
    )

    def new_raw_stream() -> int:
        """Return a stream of LMCache's device; it lives with the process."""
        from lmcache import torch_dev

        stream = torch_dev.Stream()
        _streams.append(stream)
        return stream.cuda_stream


_streams: list[object] = []


class OperationSubmission(Submission):
    """A transfer that says truly how it ended."""

    __slots__ = ("_operation",)

    def __init__(
        self, operation: StreamOperation, size: int, file_offset: int, buf_offset: int
    ) -> None:
        super().__init__(size, file_offset, buf_offset)
        self._operation = operation

    @property
    def bytes_done(self) -> int:
        """Bytes moved; negative: the errno of its failure; 0 while it is under way."""
        state = self._operation.state
        if state == "done":
            self.result.value = self._operation.bytes_done
        elif state in ("failed", "cancelled", "stalled"):
            self.result.value = -_errno_of(self._operation)
        return self.result.value


class SlabHandle(GDSHandle):
    """A slab, as LMCache uses it."""

    def __init__(self, slab: Slab) -> None:
        super().__init__(slab.place.address)
        self.slab = slab
        self._closed = False

    def read_async(
        self,
        buf_base: int,
        size: int,
        file_offset: int,
        buf_offset: int,
        raw_stream: int,
    ) -> OperationSubmission:
        """Read when the stream comes to it; no kernel comes behind a failure."""
        operation = self.slab.read(
            buf_base, size, offset=file_offset, start=buf_offset, stream=raw_stream
        )
        return OperationSubmission(operation, size, file_offset, buf_offset)

    def write_async(
        self,
        buf_base: int,
        size: int,
        file_offset: int,
        buf_offset: int,
        raw_stream: int,
    ) -> OperationSubmission:
        """Write when the stream comes to it."""
        operation = self.slab.write(
            buf_base, size, offset=file_offset, start=buf_offset, stream=raw_stream
        )
        return OperationSubmission(operation, size, file_offset, buf_offset)

    def close(self) -> None:
        """Close the slab."""
        if not self._closed:
            self._closed = True
            self.slab.close()


class Backend(GDSBackend):
    """Opens a slab, and registers LMCache's staging buffers with it."""

    name = "aiougds"

    def __init__(self) -> None:
        self._slab: Slab | None = None

    def open_slab(self, location: str, size: int, direct_io: bool) -> SlabHandle:
        """Open ``PLACE#option=value&...``; there is no page cache of ours to avoid."""
        place = SlabPlace.parse(location, size)
        self._slab = Slab(place, size, new_stream=new_raw_stream)
        return SlabHandle(self._slab)

    def register_buffer(self, buf: Tensor) -> None:
        """Register a region of the staging buffer."""
        self._opened().register(buf)

    def deregister_buffer(self, buf: Tensor) -> None:
        """Let go of it."""
        self._opened().deregister(buf.data_ptr())

    def register_stream(self, raw_stream: int) -> None:
        """Nothing is to be done: a stream is known from its first transfer on."""

    def deregister_stream(self, raw_stream: int) -> None:
        """Let no later read join a group of this stream."""
        self._opened().end_group(raw_stream)

    def _opened(self) -> Slab:
        if self._slab is None:
            raise RuntimeError("open_slab() comes first")
        return self._slab


def _errno_of(operation: StreamOperation) -> int:
    try:
        operation.wait(0)
    except UGDSError as error:
        return error.errno or 5
    except TimeoutError:
        return 5
    return 5
