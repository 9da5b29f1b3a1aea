"""A set of transfers on a stream: ordered as a whole, free inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, SupportsIndex

from aiougds._errors import ArgumentError, ClosedError
from aiougds._ffi import lib
from aiougds._stream_enqueue import StreamItem, check, enqueue

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from aiougds._buffer import ForeignMemory
    from aiougds._cells import Cell
    from aiougds._gpu.streams import StreamLike
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._stream_how import How
    from aiougds._stream_op import StreamOperation
    from aiougds._window import NamespaceWindow

READ: Final = lib.UGDS_OP_READ
WRITE: Final = lib.UGDS_OP_WRITE
FUA: Final = lib.UGDS_F_FUA


class StreamGroup:
    """Transfers that become one operation. Made by ``ns.on_stream``."""

    __slots__ = ("_flags", "_how", "_items", "_ns", "_operation", "_state", "_stream")

    def __init__(
        self, ns: NamespaceWindow, stream: StreamLike, how: How, flags: int
    ) -> None:
        self._ns = ns
        self._stream = stream
        self._how = how
        self._flags = flags  # how all of it is scheduled and waited for
        self._items: list[StreamItem] = []
        self._operation: StreamOperation | None = None
        self._state = "new"

    def read(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex | Cell,
        nbytes: SupportsIndex | Cell | None = None,
    ) -> None:
        """Add a read; what is wrong with it is raised here."""
        self._add(StreamItem(READ | self._flags, buf, offset, nbytes))

    def write(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex | Cell,
        nbytes: SupportsIndex | Cell | None = None,
        fua: bool = False,
    ) -> None:
        """Add a write; what is wrong with it is raised here."""
        op = WRITE | FUA if fua else WRITE
        self._add(StreamItem(op | self._flags, buf, offset, nbytes))

    def _add(self, item: StreamItem) -> None:
        if self._state != "open":
            raise ClosedError(
                "transfers are added inside `with ns.on_stream(...) as group:`; make "
                "another set for more"
            )
        check(self._ns, self._stream, item)
        self._items.append(item)

    @property
    def operation(self) -> StreamOperation:
        """The operation that leaving the ``with`` block queued.

        Raises ArgumentError before that, and when the set has no transfers.
        """
        if self._operation is None:
            raise ArgumentError(
                "the set has no transfers, so nothing was queued"
                if self._state == "queued"
                else "the set is queued when its `with` block ends as it should"
            )
        return self._operation

    def __await__(self) -> Generator[object, None, int]:
        return self.operation.__await__()

    def __len__(self) -> int:
        return len(self._items)

    def __enter__(self) -> Self:
        if self._state != "new":
            raise ClosedError("a set is used once; make another with ns.on_stream()")
        self._state = "open"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._state = "dropped"
        if exc_type is None:
            if self._items:
                self._operation = enqueue(
                    self._ns, self._stream, self._items, self._how
                )
            self._state = "queued"

    def __repr__(self) -> str:
        return f"<StreamGroup of {len(self._items)} transfers, {self._state}>"
