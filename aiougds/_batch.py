"""A reusable batch: prepare operations, submit them together, harvest as they end."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, Self, SupportsIndex

from aiougds._errors import (
    BusyError,
    ClosedError,
    MemoryLayoutError,
    OptionError,
    RangeError,
    UGDSError,
    WrongLoopError,
)
from aiougds._failure import Request, ended, refused
from aiougds._ffi import Record, ffi, lib, records, seconds_to_ns
from aiougds._items import WORDS, Held
from aiougds._options import check_wait
from aiougds._pinned import PinnedMemory
from aiougds._transfer import check_timeout, locate, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from aiougds._channel import Channel
    from aiougds._ffi import CData
    from aiougds._pinned import RegistrationSlice
    from aiougds._window import NamespaceWindow

MAX_CAPACITY: Final = 1 << 24


class BatchItem(NamedTuple):
    """How one operation of a batch ended."""

    cookie: object
    """What it was submitted with: any object, as one batch may carry several kinds.

    Who gives numbers narrows it with ``assert isinstance(item.cookie, int)``."""
    nbytes: int
    """Bytes moved; before the failure, if it failed."""
    error: UGDSError | None
    """Why it failed, or None."""

    @property
    def result(self) -> int | UGDSError:
        """The bytes moved, or the exception."""
        return self.nbytes if self.error is None else self.error


class Batch:
    """At most ``capacity`` operations at a time, with one wait for any number of them.

    Made by :meth:`Namespace.batch`.

    :meth:`read` and :meth:`write` prepare, :meth:`submit` checks all that is prepared
    and sends it with one doorbell (nothing of it, if one is bad), :meth:`harvest`
    takes what has ended, in the order it ended. It can be used again and again. It
    belongs to the loop or thread that it was first used on. Registered memory only.

    Leaving an ``async with`` cancels what is left and waits for it.
    """

    __slots__ = (
        "_busy",
        "_channel",
        "_closed",
        "_cookies",
        "_flags",
        "_native",
        "_out",
        "_ready",
        "_requests",
        "_serial",
        "_space",
        "_timed",
        "_window",
        "_words",
        "capacity",
    )

    def __init__(self, space: NamespaceWindow, capacity: int) -> None:
        self._channel: Channel | None = None
        self._space = space  # its C window lives as long as this can use it
        self._window = space._checked()
        self.capacity = capacity
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise OptionError(f"capacity={capacity!r}: an integer is needed")
        if not 1 <= capacity <= MAX_CAPACITY:
            raise OptionError(f"capacity={capacity} is outside 1 .. {MAX_CAPACITY}")
        self._native: CData = ffi.NULL
        self._flags = space._batch_flags()
        self._closed = False
        self._busy = ""  # what a task waits for, if one does
        self._timed = False  # a deadline may be running in C
        self._serial = 0
        # by number: cookie, registration, and how to describe a failure
        self._cookies: dict[int, tuple[object, PinnedMemory | None, Request]] = {}
        self._requests: list[tuple[int, int, int, int, int, int]] = []
        self._ready: list[BatchItem] = []
        self._out, self._words = records(min(capacity, 256))

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the batch is closed; make another with ns.batch()")
        self._window = self._space._checked()

    def _home(self) -> Channel:
        """Return the channel that it belongs to."""
        if self._closed:
            raise ClosedError("the batch is closed; make another with ns.batch()")
        device = self._window.device
        device.check_open()
        here = device.channel()
        if self._channel is None:
            self._native = here.take_batch(self.capacity)
            self._channel = here
        elif self._channel.closed:
            raise device.refusal() or ClosedError(
                "the event loop or thread of the batch has ended"
            )
        elif self._channel is not here:
            raise WrongLoopError(
                "a batch belongs to the loop or thread that first used it; make one "
                "for each"
            )
        return here

    # ---- prepare ----

    def read(
        self,
        buf: PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        cookie: object = None,
    ) -> None:
        """Prepare a read; ``cookie`` comes back with its result."""
        self._prepare(lib.UGDS_OP_READ, buf, offset, nbytes, cookie)

    def write(
        self,
        buf: PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        fua: bool = False,
        cookie: object = None,
    ) -> None:
        """Prepare a write."""
        op = lib.UGDS_OP_WRITE | (lib.UGDS_F_FUA if fua else 0)
        self._prepare(op, buf, offset, nbytes, cookie)

    def flush(self, *, cookie: object = None) -> None:
        """Prepare a flush. It orders nothing: harvest the writes before it first."""
        self._check_open()
        self._add(lib.UGDS_OP_FLUSH, 0, 0, 0, 0, None, cookie)

    def _prepare(
        self,
        op: int,
        buf: object,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None,
        cookie: object,
    ) -> None:
        self._check_open()
        at = whole(offset, "offset")
        place = locate(self._window.device, buf, op & 0xFF)
        if not isinstance(place.keep, PinnedMemory):
            raise MemoryLayoutError(
                "the memory is not registered, and batches never pin just in time; use "
                "ns.register()"
            )
        length = place.nbytes if nbytes is None else whole(nbytes, "nbytes")
        if length > place.nbytes:
            raise RangeError(
                f"nbytes={length} is more than the {place.nbytes} bytes of memory"
            )
        self._window.check_range(
            "read" if op & 0xFF == lib.UGDS_OP_READ else "write", at, length
        )
        self._add(op, place.handle, place.buf_off, length, at, place.keep, cookie)

    def _add(
        self,
        op: int,
        handle: int,
        buf_off: int,
        nbytes: int,
        offset: int,
        reg: PinnedMemory | None,
        cookie: object,
    ) -> None:
        self._window.device.check_open()
        if len(self._requests) + self.pending >= self.capacity:
            raise BusyError(
                f"the batch has room for {self.capacity} operations, and all are "
                "prepared, in flight or not harvested; harvest some"
            )
        lba, size = self._window.lba_bytes, self._window.size
        length = 0 if reg is None else reg.nbytes
        request = Request(op, offset, nbytes, length, buf_off, lba, size)
        number = self._serial
        self._serial += 1
        self._cookies[number] = (cookie, reg, request)
        word = op | self._flags
        self._requests.append((handle, buf_off, nbytes, offset, number, word))

    # ---- run ----

    @property
    def pending(self) -> int:
        """Operations submitted and not harvested."""
        return len(self._cookies) - len(self._requests)

    @property
    def prepared(self) -> int:
        """Operations prepared and not submitted."""
        return len(self._requests)

    def submit(self, *, timeout_s: float | None = None) -> int:
        """Send all that is prepared, with one doorbell; returns how many that were.

        A plain function: nothing is awaited. When one is refused, nothing is sent,
        its exception (with the number of the item in a note) is raised, and all that
        was prepared is dropped. ``timeout_s`` holds for everything in flight.
        """
        check_timeout(timeout_s)
        channel = self._home()
        self._check_open()
        requests = self._requests
        self._requests = []
        sent = [
            request for request in requests if request[2] or self._is_flush(request)
        ]
        if sent:
            packed = array("Q", [word for request in sent for word in request])
            bad = ffi.new("uint32_t *")
            start = ffi.from_buffer("struct ugds_req[]", packed)
            before = len(self._cookies) - len(requests)
            if self._timed and before <= lib.ugds_batch_ready(self._native):
                # Nothing of before is in flight: its deadline is not for these.
                channel.disarm(self._native)
                self._timed = False
            count = len(packed) // WORDS
            code = lib.ugds_batch_submit(
                self._native, self._window.ptr, start, count, bad
            )
            if code < 0:
                index = requests.index(sent[int(bad[0])])
                error = refused(
                    channel.device, code, self._cookies[requests[index][4]][2]
                )
                for request in requests:
                    del self._cookies[request[4]]
                error.add_note(f"item {index}")
                raise error
            if timeout_s is not None:
                self._timed = True
                lib.ugds_batch_deadline(self._native, seconds_to_ns(timeout_s))
        for request in requests:
            if not request[2] and not self._is_flush(request):  # nothing to move
                cookie = self._cookies.pop(request[4])[0]
                self._ready.append(BatchItem(cookie, 0, None))
        return len(requests)

    @staticmethod
    def _is_flush(request: tuple[int, int, int, int, int, int]) -> bool:
        return request[5] & 0xFF == lib.UGDS_OP_FLUSH

    async def harvest(
        self,
        min: int = 1,  # noqa: A002
        max: int | None = None,  # noqa: A002
        timeout_s: float | None = None,
    ) -> list[BatchItem]:
        """Take at least ``min`` and at most ``max`` results, in the order they ended.

        Awaits until ``min`` have ended (fewer, if fewer are in flight), or until
        ``timeout_s`` is over: then it returns what there is, and the operations go
        on. Cancelled, the operations go on too; harvest them later. One task at a
        time waits for a batch; another gets BusyError.
        """
        check_wait(timeout_s)
        channel = self._home()
        least = self._least(min, max)
        if lib.ugds_batch_ready(self._native) + len(self._ready) < least:
            self._enter("harvested")
            try:
                await self._wait(channel, least - len(self._ready), timeout_s)
            finally:
                self._busy = ""
        elif channel.budget <= 0:
            await channel.breathe()
        return self._take(channel, max)

    def _enter(self, what: str) -> None:
        if self._busy:
            raise BusyError(
                f"another task waits for this batch to be {self._busy}; one at a time "
                f"can: it cannot be {what} now"
            )
        self._busy = what

    def _least(self, least: int, most: int | None) -> int:
        if least < 0 or (most is not None and most < least):
            raise OptionError(f"min={least}, max={most}: 0 <= min <= max is needed")
        total = self.pending + len(self._ready)
        return least if least < total else total

    async def _wait(
        self, channel: Channel, least: int, timeout_s: float | None
    ) -> None:
        batch, token = self._native, lib.ugds_batch_token(self._native)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # A notice of an earlier wait that was given up may come first: look again.
        while lib.ugds_batch_ready(batch) < least:
            if channel.closed or channel.expect(batch, least):
                return
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            await channel.home.told(channel, token, left)

    def _take(self, channel: Channel, most: int | None) -> list[BatchItem]:
        room = len(self._words) // 4
        taken, self._ready = self._ready[:most], self._ready[len(self._ready[:most]) :]
        while most is None or len(taken) < most:
            want = room if most is None else min(room, most - len(taken))
            count = lib.ugds_batch_harvest(self._native, self._out, want)
            words = iter(self._words[: 4 * max(0, count)].tolist())
            for record in map(Record, words, words, words, words):
                taken.append(self._item(channel, record))
            if count < want:
                break
        channel.budget -= len(taken)
        return taken

    def _item(self, channel: Channel, record: Record) -> BatchItem:
        cookie, reg, request = self._cookies.pop(record.token)
        if record.result >= 0:
            return BatchItem(cookie, record.result, None)
        if record.outcome == lib.UGDS_UNKNOWN and reg is not None:
            channel.strand(Held((reg,)))
        return BatchItem(cookie, record.done, ended(channel.device, record, request))

    async def __aiter__(self) -> AsyncIterator[BatchItem]:
        """Iterate over the results of all that is in flight, as they end."""
        while self.pending or self._ready:
            for item in await self.harvest(1):
                yield item

    def discard(self) -> None:
        """Drop what is prepared and not submitted."""
        for request in self._requests:
            del self._cookies[request[4]]
        self._requests.clear()

    def cancel(self) -> None:
        """Ask for the end of all that is in flight; harvest the results as usual.

        What was never sent ends at once; what the device has, when it answers or
        after ``cancel_grace_s``, and then its memory is quarantined.
        """
        self.discard()
        channel = self._channel
        # Closed, what it had in C is another batch's by now.
        if channel is not None and not channel.closed and not self._closed:
            self._timed = True
            lib.ugds_batch_cancel(self._native, channel.grace_ns)

    async def aclose(self) -> None:
        """Cancel what is in flight, wait until the device let go of it, and close.

        It raises nothing for items that failed or were cancelled.
        """
        if self._closed:
            return
        channel = self._channel
        if channel is None or channel.closed:
            self._closed = True
            return
        self._enter("closed")
        self.cancel()
        # Not what C calls pending: given-up items hold their place, but will not end.
        left = self.pending
        try:
            if left and not channel.expect(self._native, left):
                regs = {reg for _cookie, reg, _request in self._cookies.values() if reg}
                await channel.wait(lib.ugds_batch_token(self._native), Held(regs))
        finally:
            if not channel.closed:
                self._take(channel, None)
                channel.disarm(self._native)
                channel.give_batch(self._native, self.capacity)
            self._closed = True
            self._busy = ""
            self._cookies.clear()

    async def __aenter__(self) -> Self:
        self._home()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.pending} pending"
        return f"<Batch of {self.capacity}: {self.prepared} prepared, {state}>"

    def __del__(self) -> None:
        channel = self._channel
        if channel is not None and not self._closed:
            channel.abandoned.append((self._native, self.capacity))
