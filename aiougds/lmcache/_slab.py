"""A slab of a namespace that a GPU's streams read and write: the GDS L1 tier.

LMCache enqueues reads into a staging buffer and, behind them, the kernel that scatters
it into the cache; nothing of LMCache looks whether a read failed. So what failed must
not be followed by that kernel:

- ``checked`` reads (the default) are ordered on the stream and waited for by the
  thread that asks. A failure is raised there, before the kernel is enqueued.
- ``held`` reads return at once. A failure stops the stream in front of the kernel; the
  read is tried again, and if it goes on failing, the stream stays stopped and every
  later call raises :class:`SlabError`.

Writes never wait. Where one failed the slab holds nothing: reading there raises, until
it was written anew.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from aiougds import blocking
from aiougds._errors import (
    ArgumentError,
    BrokenError,
    OptionError,
    RangeError,
    UGDSError,
)
from aiougds._guard import refusal
from aiougds._loop_thread import LoopThread
from aiougds.lmcache._overlap import Overlap
from aiougds.store import OccupiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._blocking_base import Registration
    from aiougds._gpu.streams import EventLike
    from aiougds._pinned import RegistrationSlice
    from aiougds._stream_op import StreamOperation
    from aiougds.lmcache._slab_place import SlabPlace

Result = TypeVar("Result")

_log: Final = logging.getLogger("aiougds.lmcache")
_PAUSE_S: Final = 0.05  # before a failed read is tried again; doubles


class Tensor(Protocol):
    """What is used of the staging buffer."""

    def data_ptr(self) -> int: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...


class SlabError(BrokenError, RuntimeError):
    """The slab has no good bytes to give there, or can be used no more."""


class _Written(NamedTuple):
    """A write, and where."""

    operation: StreamOperation
    start: int
    end: int
    stream: int


class Slab:
    """Bytes of a namespace, read and written in the order of streams. Thread-safe."""

    def __init__(
        self,
        place: SlabPlace,
        nbytes: int,
        *,
        new_stream: Callable[[], int] | None = None,
    ) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._registered: dict[int, Registration] = {}
        self._writes: list[_Written] = []
        self._bad: list[tuple[int, int]] = []  # ranges that hold nothing
        self._broken = ""
        self._held: set[StreamOperation] = set()
        self._keeper: LoopThread[None] | None = None
        self._overlap: Overlap | None = None
        if place.overlap:
            if new_stream is None:
                raise OptionError(
                    f"overlap={place.overlap}: no stream can be made here; leave it out"
                )
            self._overlap = Overlap(place.overlap, new_stream)
        self._ns = apart(lambda: _open(place, nbytes))

    # ---- what is used ----

    @property
    def namespace(self) -> blocking.Namespace:
        """The namespace below."""
        return self._ns

    def register(self, tensor: Tensor) -> None:
        """Register a region of the staging buffer; whatever comes again stays."""
        base = tensor.data_ptr()
        with self._lock:
            if base in self._registered:
                raise ArgumentError(f"the buffer at {base:#x} is registered already")
            self._registered[base] = apart(lambda: self._ns.register(tensor))

    def deregister(self, base: int) -> None:
        """Let go of a region, when nothing of it is under way."""
        with self._lock:
            found = self._registered.pop(base, None)
        if found is None:
            raise ArgumentError(
                f"the buffer at {base:#x} is not registered: register_buffer() first"
            )
        apart(found.close)

    # ---- transfers ----

    def read(
        self, base: int, nbytes: int, *, offset: int, start: int, stream: int
    ) -> StreamOperation:
        """Read into a registered region when a stream comes to it."""
        with self._lock:
            piece = self._piece(base, start, nbytes)
            self._sweep()
            self._refuse_bad(offset, offset + nbytes)
            after = self._written_by_others(offset, offset + nbytes, stream)
            held = self.place.reads == "held"
            on: int = stream
            behind: list[EventLike] = list(after)
            if self._overlap:
                begin = base + start
                found = self._registered[base]
                on, event = self._overlap.place(stream, found, begin, begin + nbytes)
                behind.append(event)
            operation = self._ns.read_on(
                on,
                piece,
                offset=offset,
                after=behind or None,
                timeout_s=self.place.timeout_s,
                on_error="stall" if held else "raise",
            )
            if on != stream:
                operation.event.wait(stream)
            if held:
                self._hold(operation)
                return operation
        try:
            _ended(operation)
        except UGDSError as error:
            raise SlabError(
                f"reading {nbytes} bytes at {offset} of {self.place.address} failed: "
                f"{error}"
            ) from error
        with self._lock:  # a write that was in front of it may have failed
            self._sweep()
            self._refuse_bad(offset, offset + nbytes)
        return operation

    def write(
        self, base: int, nbytes: int, *, offset: int, start: int, stream: int
    ) -> StreamOperation:
        """Write from a registered region when a stream comes to it."""
        with self._lock:
            piece = self._piece(base, start, nbytes)
            self._sweep()
            if self._overlap:
                self._overlap.end(stream)
            end = offset + nbytes
            operation = self._ns.write_on(
                stream,
                piece,
                offset=offset,
                after=self._written_by_others(offset, end, stream) or None,
                timeout_s=self.place.timeout_s,
            )
            # What was written there before does not matter any more.
            self._bad = [
                left for bad in self._bad for left in _without(bad, offset, end)
            ]
            self._writes = [
                one._replace(start=low, end=high)
                for one in self._writes
                for low, high in _without((one.start, one.end), offset, end)
            ]
            self._writes.append(_Written(operation, offset, end, stream))
        return operation

    def end_group(self, stream: int) -> None:
        """Let no later read of a stream join those before it."""
        with self._lock:
            if self._overlap:
                self._overlap.end(stream)

    # ---- the end ----

    def close(self) -> None:
        """Let held streams pass, let go of everything, and close the namespace."""
        with self._lock:
            held, self._held = list(self._held), set()
            keeper, self._keeper = self._keeper, None
        for operation in held:
            operation.fail()
        if keeper is not None:
            keeper.close()
        if self._overlap:
            self._overlap.close()
        with self._lock:
            self._sweep()
            self._writes.clear()
            left, self._registered = list(self._registered.values()), {}
        for one in left:
            apart(one.close)
        apart(self._ns.controller.close)

    def report(self) -> dict[str, object]:
        """Return what it is, and how it is."""
        with self._lock:
            self._sweep()
            return {
                "address": self.place.address,
                "reads": self.place.reads,
                "overlap": self.place.overlap,
                "gpu_memory": self._ns.controller.capabilities.gpu_memory,
                "bad_ranges": list(self._bad),
                "broken": self._broken,
                "writes_in_flight": len(self._writes),
            }

    # ---- inside ----

    def _piece(self, base: int, start: int, nbytes: int) -> RegistrationSlice:
        if self._broken:
            raise SlabError(
                f"{self.place.address} is used no more, since a read went on failing "
                f"and its stream was stopped: {self._broken}"
            )
        found = self._registered.get(base)
        if found is None:
            raise ArgumentError(
                f"the buffer at {base:#x} is not registered: register_buffer() first"
            )
        if start + nbytes > found.nbytes:
            raise RangeError(
                f"bytes {start} to {start + nbytes} are not inside the {found.nbytes} "
                f"registered at {base:#x}"
            )
        lba = self._ns.lba_bytes
        if nbytes % lba:
            raise ArgumentError(
                f"{nbytes} bytes are no multiple of the {lba} bytes of a block of "
                f"{self.place.address}: choose a chunk size that is, or format the "
                "namespace with blocks of 512 bytes"
            )
        return found[start : start + nbytes]

    def _sweep(self) -> None:
        """Take notice of how writes ended."""
        left: list[_Written] = []
        for one in self._writes:
            state = one.operation.state
            if state in ("waiting", "running"):
                left.append(one)
            elif state != "done":
                self._bad.append((one.start, one.end))
                _log.error(
                    "writing bytes %d to %d of %s failed: they hold nothing, and are "
                    "not read until they are written anew",
                    one.start,
                    one.end,
                    self.place.address,
                )
        self._writes = left

    def _written_by_others(
        self, start: int, end: int, stream: int
    ) -> list[StreamOperation]:
        """Return writes that are under way to a range, on other streams."""
        return [
            one.operation
            for one in self._writes
            if one.start < end and start < one.end and one.stream != stream
        ]

    def _refuse_bad(self, start: int, end: int) -> None:
        for bad_start, bad_end in self._bad:
            if bad_start < end and start < bad_end:
                raise SlabError(
                    f"bytes {bad_start} to {bad_end} of {self.place.address} hold "
                    "nothing, since writing them failed; store the chunk anew"
                )

    def _hold(self, operation: StreamOperation) -> None:
        if self._keeper is None:
            self._keeper = LoopThread(
                lambda: nullcontext(None), name="aiougds-slab-keeper"
            )
        self._held.add(operation)
        self._keeper.post(lambda: self._keep(operation))

    async def _keep(self, operation: StreamOperation) -> None:
        """See a held read through: try it again while it fails, or stop for good."""
        pause = _PAUSE_S
        for again in range(self.place.retries, -1, -1):
            try:
                await operation
            except UGDSError as error:
                if operation not in self._held:
                    return  # closed meanwhile
                if not again:
                    self._broken = str(error)
                    _log.critical(
                        "a read of %s goes on failing; its stream stays stopped, so "
                        "that nothing wrong gets into the cache. Restart the server. "
                        "(%s)",
                        self.place.address,
                        self._broken,
                    )
                    return
                # As text: an exception would keep the operation, and its event.
                what = str(error)
                _log.warning("%s: tried again: %s", self.place.address, what)
                await asyncio.sleep(pause)
                pause *= 2
                operation.resume()
            else:
                self._held.discard(operation)
                return


def apart(work: Callable[[], Result]) -> Result:
    """Run what blocks where no event loop runs: the caller's thread may have one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="aiougds-apart") as thread:
        return thread.submit(work).result()


def _ended(operation: StreamOperation) -> None:
    apart(operation.wait)


def _open(place: SlabPlace, nbytes: int) -> blocking.Namespace:
    ns = blocking.open(place.address)
    try:
        if ns.size < nbytes:
            raise OptionError(
                f"{place.address} has {ns.size} bytes, and the slab wants {nbytes}: "
                "lower --l1-size-gb, or take a larger device or file"
            )
        if not place.made:
            why = apart(lambda: asyncio.run(_refusal(ns, place)))
            if why is not None:
                raise OccupiedError(why)
    except BaseException:
        ns.controller.close()
        raise
    return ns


async def _refusal(ns: blocking.Namespace, place: SlabPlace) -> str | None:
    return await refusal(ns._ns, place.address, made=False, serial=place.serial)


def _without(bad: tuple[int, int], start: int, end: int) -> list[tuple[int, int]]:
    """Return what is left of a bad range once a part of it is written anew."""
    pieces = [(bad[0], min(bad[1], start)), (max(bad[0], end), bad[1])]
    return [piece for piece in pieces if piece[0] < piece[1]]
