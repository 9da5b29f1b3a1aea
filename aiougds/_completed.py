"""``as_completed``: results in the order in which the transfers end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from aiougds._batch import Batch
from aiougds._errors import (
    ArgumentError,
    ClosedError,
    MemoryLayoutError,
    OperationTimeoutError,
    UGDSError,
    WrongLoopError,
)
from aiougds._failure import NAMES
from aiougds._ffi import lib
from aiougds._items import pair_of
from aiougds._pinned import PinnedMemory
from aiougds._transfer import Clock, check_timeout, locate, whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from aiougds._pinned import RegistrationSlice
    from aiougds._transfer import Window
    from aiougds._window import NamespaceWindow

    # Its number, opcode, memory and offset.
    _Request = tuple[int, int, PinnedMemory | RegistrationSlice, int]


class AsCompleted:
    """Async iterator over ``(index, result)``, in the order of completion.

    Made by :meth:`Namespace.as_completed`.
    """

    __slots__ = (
        "_batch",
        "_clock",
        "_entered",
        "_left",
        "_ready",
        "_requests",
        "_timeout_s",
    )

    def __init__(
        self,
        space: NamespaceWindow,
        op: int,
        requests: Iterable[tuple[PinnedMemory | RegistrationSlice, int]],
        capacity: int,
        timeout_s: float | None,
    ) -> None:
        check_timeout(timeout_s)
        self._requests = _checked(space._checked(), op, list(requests))
        self._batch = Batch(space, capacity)
        self._timeout_s = timeout_s
        self._clock = Clock(None)
        self._left = deque((index, op, *r) for index, r in enumerate(self._requests))
        self._ready: deque[tuple[int, int | UGDSError]] = deque()
        self._entered = False

    def __repr__(self) -> str:
        left, sent = len(self._left), self._batch.pending
        total = len(self._requests)
        where = "" if self._entered else ", not entered"
        return f"<AsCompleted of {total}: {left} to send, {sent} in flight{where}>"

    def _refill(self) -> None:
        batch = self._batch
        room = batch.capacity - batch.pending
        if not self._left or room < (batch.capacity + 1) // 2:
            return
        chunk = [self._left.popleft() for _ in range(min(room, len(self._left)))]
        try:
            self._send(chunk)
        except (ClosedError, WrongLoopError):
            raise
        except UGDSError:  # nothing of it was sent: each for itself, if it can be
            for request in chunk:
                batch.discard()
                try:
                    self._send([request])
                except UGDSError as error:
                    self._ready.append((request[0], self._not_sent(request, error)))

    def _send(self, chunk: list[_Request]) -> None:
        batch = self._batch
        for index, op, buf, offset in chunk:
            if op == lib.UGDS_OP_READ:
                batch.read(buf, offset=offset, cookie=index)
            else:
                batch.write(buf, offset=offset, cookie=index)
        batch.submit(timeout_s=self._clock.left())

    def _not_sent(self, request: _Request, error: UGDSError) -> UGDSError:
        """Return why: no time was left, which is also why no room was, or the error."""
        if not self._clock.over():
            return error
        _index, op, buf, offset = request
        return OperationTimeoutError(
            f"{NAMES[op]} of {buf.nbytes} bytes at offset {offset} did not end within "
            f"timeout_s={self._timeout_s:g}: it was never sent"
        )

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ClosedError("as_completed() was entered before; call it again")
        self._entered = True
        self._clock = Clock(self._timeout_s)
        await self._batch.__aenter__()
        self._refill()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._left.clear()
        await self._batch.aclose()

    def __aiter__(self) -> Self:
        if not self._entered:
            raise ClosedError("enter it first: async with ns.as_completed(...) as done")
        return self

    async def __anext__(self) -> tuple[int, int | UGDSError]:
        if not self._ready:
            self._refill()
        if not self._ready:
            for item in await self._batch.harvest(1):
                self._ready.append((int(str(item.cookie)), item.result))
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()


def _checked(
    window: Window,
    op: int,
    requests: list[tuple[PinnedMemory | RegistrationSlice, int]],
) -> list[tuple[PinnedMemory | RegistrationSlice, int]]:
    """Refuse a bad request before anything is sent."""
    pairs: list[object] = list(requests)
    for index, pair in enumerate(pairs):
        try:
            memory, offset = pair_of(pair)
            place = locate(window.device, memory, op)
            if not isinstance(place.keep, PinnedMemory):
                raise MemoryLayoutError(
                    "the memory is not registered, and batches never pin just in time; "
                    "use ns.register()"
                )
            window.check_range(NAMES[op], whole(offset, "offset"), place.nbytes)
        except ArgumentError as error:
            error.add_note(f"item {index}")
            raise
    return requests
