"""``read_many`` and ``write_many``: one submission, one doorbell, one wait.

When everything succeeds nothing is done per item but packing: the requests are one
array of 64-bit words, C checks and sends them all, and the answer is their lengths.
"""

from __future__ import annotations

import errno
from array import array
from typing import TYPE_CHECKING, Final, cast

from aiougds._channel import SMALL
from aiougds._completion import current_home
from aiougds._errors import (
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    MemoryLayoutError,
    RangeError,
    UGDSError,
)
from aiougds._failure import NAMES, Request, ended, refused
from aiougds._ffi import NULL, Record, ffi, lib, records, seconds_to_ns, words
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._transfer import Clock, Window, check_timeout, locate, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

    from aiougds._channel import Channel
    from aiougds._device import Device, Mapping
    from aiougds._ffi import CData

WORDS: Final = 6  # of struct ugds_req: map, buf_off, nbytes, offset, cookie, op
LARGE: Final = 4096  # items of one window


class Held:
    """The registrations of a batch, for the day when it is given up."""

    __slots__ = ("registrations",)

    def __init__(self, registrations: Iterable[PinnedMemory]) -> None:
        self.registrations = registrations

    def mappings_on(self, device: Device) -> list[Mapping]:
        """Return the mappings that the batch keeps busy."""
        return [m for reg in set(self.registrations) for m in reg.mappings_on(device)]


class Items:
    """Requests of one call: packed for C, and still known for the words of errors."""

    __slots__ = ("keep", "lengths", "op", "window")

    def __init__(self, window: Window, op: int, lengths: list[int], keep: Held) -> None:
        self.window = window
        self.op = op
        self.lengths = lengths
        self.keep = keep

    def submit(self, batch: CData, first: int, count: int, bad: CData) -> int:
        """Start items ``first`` .. ``first + count``."""
        raise NotImplementedError

    def request(self, index: int) -> Request:
        """Describe one item."""
        raise NotImplementedError


class ListedItems(Items):
    """From pairs of memory and offset."""

    __slots__ = ("packed", "regs")

    def __init__(
        self,
        window: Window,
        op: int,
        pairs: Sequence[tuple[PinnedMemory | RegistrationSlice, int]],
    ) -> None:
        device = window.device
        flat: list[int] = []
        regs: list[PinnedMemory] = []
        add = regs.append
        try:
            for buf, offset in pairs:
                reg = buf._reg
                if reg._device is not device:
                    raise AttributeError
                flat += (reg._handle, buf._start, buf.nbytes, offset, 0, op)
                add(reg)
            self.packed = array("Q", flat)
        except (AttributeError, TypeError, ValueError, OverflowError):
            flat, regs = _pack_slowly(device, op, pairs)
            self.packed = array("Q", flat)
        # The cookie of an item is its index.
        self.packed[4::WORDS] = array("Q", range(len(regs)))
        super().__init__(window, op, flat[2::WORDS], Held(regs))
        self.regs = regs

    def submit(self, batch: CData, first: int, count: int, bad: CData) -> int:
        start = ffi.from_buffer("struct ugds_req[]", self.packed) + first
        return lib.ugds_batch_submit(batch, self.window.ptr, start, count, bad)

    def request(self, index: int) -> Request:
        at = index * WORDS
        return Request(
            self.op,
            self.packed[at + 3],
            self.packed[at + 2],
            self.regs[index].nbytes,
            self.packed[at + 1],
            self.window.lba_bytes,
            self.window.size,
        )


def _pack_slowly(
    device: Device, op: int, pairs: Sequence[object]
) -> tuple[list[int], list[PinnedMemory]]:
    """Pack what the quick loop tripped over, or say which item is wrong."""
    flat: list[int] = []
    regs: list[PinnedMemory] = []
    for index, pair in enumerate(pairs):
        try:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentTypeError(f"{pair!r} is not a pair (memory, offset)")
            offset = whole(pair[1], "offset")
            place = locate(device, pair[0], op & 0xFF)
            reg = place.keep
            if not isinstance(reg, PinnedMemory):
                raise MemoryLayoutError(
                    "the memory is not registered, and batches never pin just in time; "
                    "use ns.register()"
                )
        except ArgumentError as error:
            error.add_note(f"item {index}")
            raise
        flat += (place.handle, place.buf_off, place.nbytes, offset, 0, op)
        regs.append(reg)
    return flat, regs


class ArrayItems(Items):
    """From int64 arrays of offsets, with one length and one registration."""

    __slots__ = ("buf", "buf_offsets", "nbytes", "where")

    def __init__(
        self,
        window: Window,
        op: int,
        buf: PinnedMemory | RegistrationSlice,
        offsets: Buffer,
        nbytes: int,
        buf_offsets: Buffer | None,
    ) -> None:
        where = _int64(offsets, "offsets")
        count = len(where)
        reg = buf._reg
        inside = None if buf_offsets is None else _int64(buf_offsets, "buf_offsets")
        if inside is not None and len(inside) != count:
            raise RangeError(
                f"buf_offsets has {len(inside)} entries, offsets has {count}: one each"
            )
        if buf.nbytes != reg.nbytes:
            # A slice: its own bounds hold, not those of the whole registration.
            inside = _shifted(buf, inside, nbytes, count)
        super().__init__(window, op, [nbytes] * count, Held((reg,)))
        self.buf = buf
        self.nbytes = nbytes
        self.where = where
        self.buf_offsets = inside

    def submit(self, batch: CData, first: int, count: int, bad: CData) -> int:
        inside = self.buf_offsets
        reg = self.buf._reg
        offsets = words(self.where)
        if inside is None and first:
            step = range(
                first * self.nbytes, (first + count) * self.nbytes, self.nbytes
            )
            into: CData = words(array("q", step))
        else:
            into = NULL if inside is None else words(inside) + first
        return lib.ugds_batch_submit_array(
            batch,
            self.window.ptr,
            self.op,
            reg.handle_on(self.window.device),
            offsets + first if first else offsets,
            into,
            self.nbytes,
            count,
            first,
            bad,
        )

    def request(self, index: int) -> Request:
        inside = self.buf_offsets
        return Request(
            self.op,
            self.where[index],
            self.nbytes,
            self.buf._reg.nbytes,
            index * self.nbytes if inside is None else inside[index],
            self.window.lba_bytes,
            self.window.size,
        )


def _int64(buffer: Buffer, name: str) -> memoryview:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ArgumentTypeError(
            f"{name} is a buffer of int64, such as array('q') or a numpy int64 array, "
            f"not {type(buffer).__name__}"
        ) from None
    if view.itemsize != 8 or view.format not in ("q", "l") or not view.c_contiguous:
        raise ArgumentTypeError(
            f"{name} has items of format {view.format!r}: contiguous int64 is needed"
        )
    return view if view.ndim == 1 and view.format == "q" else view.cast("B").cast("q")


def _shifted(
    buf: PinnedMemory | RegistrationSlice,
    inside: memoryview | None,
    nbytes: int,
    count: int,
) -> memoryview:
    starts = range(0, count * nbytes, nbytes) if inside is None else inside.tolist()
    for index, start in enumerate(starts):
        if start < 0 or start + nbytes > buf.nbytes:
            raise RangeError(
                f"item {index}: {nbytes} bytes from byte {start} on do not fit into "
                f"the slice of {buf.nbytes} bytes"
            )
    return memoryview(array("q", [buf._start + start for start in starts]))


async def read_or_write_many(
    window: Window,
    op: int,
    requests: object,
    offsets: Buffer | None,
    nbytes: int | None,
    buf_offsets: Buffer | None,
    timeout_s: float | None,
) -> list[int]:
    """Run all of them and return the bytes of each."""
    items: Items
    if isinstance(requests, (PinnedMemory, RegistrationSlice)):
        if offsets is None or nbytes is None:
            raise ArgumentTypeError(
                f"{NAMES[op & 0xFF]}_many: with one registration, offsets= and nbytes= "
                "are needed"
            )
        size = whole(nbytes, "nbytes")
        # Says what is wrong with it as a whole; items are checked in C.
        locate(window.device, requests, op & 0xFF)
        items = ArrayItems(window, op, requests, offsets, size, buf_offsets)
    elif offsets is not None or nbytes is not None or buf_offsets is not None:
        raise ArgumentTypeError(
            f"{NAMES[op & 0xFF]}_many: offsets=, nbytes= and buf_offsets= go with one "
            "registration, not with pairs"
        )
    else:
        pairs = requests if isinstance(requests, (list, tuple)) else None
        if pairs is None:
            try:
                pairs = list(cast("Iterable[object]", requests))
            except TypeError:
                raise ArgumentTypeError(
                    f"{requests!r} is neither a registration nor pairs (memory, offset)"
                ) from None
        items = ListedItems(window, op, cast("list[tuple[PinnedMemory, int]]", pairs))
    check_timeout(timeout_s)
    await current_home().take_cancel()
    count = len(items.lengths)
    if not count:
        return []
    if not all(items.lengths):
        return await _without_empty(items, timeout_s)
    return await run(items, count, timeout_s)


async def _without_empty(items: Items, timeout_s: float | None) -> list[int]:
    """Zero-length items are checked and answered without a command."""
    window = items.window
    full: list[int] = []
    for index, length in enumerate(items.lengths):
        if length:
            full.append(index)
            continue
        request = items.request(index)
        window.check_range(request.name, request.offset, 0)
    results = [0] * len(items.lengths)
    if full and isinstance(items, ListedItems):
        packed = items.packed
        regs = [items.regs[index] for index in full]
        rest = ListedItems.__new__(ListedItems)
        lengths = [items.lengths[index] for index in full]
        Items.__init__(rest, window, items.op, lengths, Held(regs))
        rest.packed = array("Q")
        for number, index in enumerate(full):
            rest.packed += packed[index * WORDS : (index + 1) * WORDS]
            rest.packed[number * WORDS + 4] = number
        rest.regs = regs
        moved = await run(rest, len(full), timeout_s)
        for index, length in zip(full, moved, strict=True):
            results[index] = length
    return results


async def run(items: Items, count: int, timeout_s: float | None) -> list[int]:
    """Submit in windows of a batch's capacity and collect."""
    channel = items.window.device.channel()
    capacity = min(LARGE, max(SMALL, 1 << (count - 1).bit_length()))
    if count > capacity:
        _check_all(items, count)  # C sees one window at a time
    batch = channel.take_batch(capacity)
    results: list[int | UGDSError] = []
    clock = Clock(timeout_s)
    first = 0
    try:
        while first < count:
            size = min(capacity, count - first)
            ready = items.submit(batch, first, size, channel.bad)
            if ready < 0:
                index = first + int(channel.bad[0])
                error = refused(channel.device, ready, items.request(index))
                error.add_note(f"item {index}")
                raise error
            if ready < size:
                await _finish(channel, batch, size, items, clock.left())
            results = _results(channel, batch, items, results, timeout_s)
            first += size
    finally:
        channel.give_batch(batch, capacity)
    return await _answer(channel, items, results)


async def collect(
    channel: Channel, batch: CData, capacity: int, items: Items, size: int
) -> list[int]:
    """Wait for a single window that was submitted already."""
    channel.batches[lib.ugds_batch_token(batch)] = batch
    try:
        if lib.ugds_batch_ready(batch) < size:
            await _finish(channel, batch, size, items, None)
        results = _results(channel, batch, items, [], None)
    finally:
        channel.give_batch(batch, capacity)
    return await _answer(channel, items, results)


def _results(
    channel: Channel,
    batch: CData,
    items: Items,
    results: list[int | UGDSError],
    timeout_s: float | None,
) -> list[int | UGDSError]:
    """Take what has ended; an empty list as long as everything went well."""
    if lib.ugds_batch_harvest_ok(batch) < 0:
        results = results or list(items.lengths)
        _harvest(channel, batch, items, results, timeout_s)
    return results


async def _answer(
    channel: Channel, items: Items, results: list[int | UGDSError]
) -> list[int]:
    channel.budget -= 1
    if channel.budget <= 0:
        await channel.breathe()
    if not results:
        return items.lengths
    failures = [result for result in results if isinstance(result, UGDSError)]
    raise BatchError(
        f"{len(failures)} of {len(results)} items of {NAMES[items.op & 0xFF]}_many "
        "failed",
        failures,
        results,
    )


def _check_all(items: Items, count: int) -> None:
    for index in range(count):
        request = items.request(index)
        try:
            if request.buf_off < 0 or request.offset < 0:
                raise RangeError(f"{request.name}: an offset cannot be negative")
            items.window.check_range(request.name, request.offset, request.nbytes)
            if request.buf_off + request.nbytes > request.buf_bytes:
                raise refused(items.window.device, -errno.EFAULT, request)
        except ArgumentError as error:
            error.add_note(f"item {index}")
            raise


async def _finish(
    channel: Channel, batch: CData, size: int, items: Items, timeout_s: float | None
) -> None:
    """Wait until all of a window have ended; when cancelled, too."""
    if timeout_s is not None:
        lib.ugds_batch_deadline(batch, seconds_to_ns(timeout_s))
    try:
        if not lib.ugds_batch_notify(batch, size):
            await channel.wait(lib.ugds_batch_token(batch), items.keep)
    except BaseException:
        # Cancelled, and all have ended: take their results, so that it can be reused.
        _harvest(channel, batch, items, None, timeout_s)
        channel.disarm(batch)
        raise
    if timeout_s is not None:
        channel.disarm(batch)


def _harvest(
    channel: Channel,
    batch: CData,
    items: Items,
    results: list[int | UGDSError] | None,
    timeout_s: float | None,
) -> None:
    """Take every completion that is there; keep what was given up in limbo."""
    if channel.closed:
        return
    room = 256
    out, view = records(room)
    while True:
        count = lib.ugds_batch_harvest(batch, out, room)
        flat = iter(view[: 4 * max(0, count)].tolist())
        for record in map(Record, flat, flat, flat, flat):
            if record.result < 0 and record.outcome == lib.UGDS_UNKNOWN:
                channel.strand(items.keep)
            if results is not None:
                index = record.token
                results[index] = (
                    record.result
                    if record.result >= 0
                    else ended(channel.device, record, items.request(index), timeout_s)
                )
        if count < room:
            return
