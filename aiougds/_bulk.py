"""``read_many`` and ``write_many``: one submission, one doorbell, one wait.

When everything succeeds nothing is done per item but packing: the requests are one
array of 64-bit words, C checks and sends them all, and the answer is their lengths.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, cast

from aiougds import _order
from aiougds._channel import SMALL
from aiougds._completion import current_home
from aiougds._errors import (
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    RangeError,
    UGDSError,
)
from aiougds._failure import NAMES, ended, refused
from aiougds._ffi import Record, lib, records, seconds_to_ns
from aiougds._items import ArrayItems, FullItems, Items, ListedItems, check_all
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._transfer import Clock, Window, check_timeout, locate, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

    from aiougds._channel import Channel
    from aiougds._ffi import CData
    from aiougds._gpu.streams import After

LARGE: Final = 4096  # items of one window


async def read_or_write_many(
    window: Window,
    op: int,
    requests: object,
    offsets: Buffer | None,
    nbytes: int | None,
    buf_offsets: Buffer | None,
    timeout_s: float | None,
    stream: object = None,
    after: After | None = None,
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
        pairs: Sequence[object]
        if isinstance(requests, (list, tuple)):
            pairs = cast("Sequence[object]", requests)
        else:
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
    if stream is not None or after is not None:
        what = f"{NAMES[op & 0xFF]}_many of {count} items"
        memory = items.registration(0).memory
        timeout_s = await _order.begin(after, stream, memory, what, Clock(timeout_s))
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
        try:
            if request.offset < 0:
                raise RangeError(f"{request.name}: an offset cannot be negative")
            window.check_range(request.name, request.offset, 0)
        except ArgumentError as error:
            error.add_note(f"item {index}")
            raise
    results: list[int | UGDSError] = [0] * len(items.lengths)
    if full and isinstance(items, ListedItems):
        try:
            moved: Sequence[int | UGDSError] = await run(
                FullItems(items, full), len(full), timeout_s
            )
        except BatchError as error:
            moved = error.results
        for index, result in zip(full, moved, strict=True):
            results[index] = result
    return _lengths(items.op, results)


async def run(items: Items, count: int, timeout_s: float | None) -> list[int]:
    """Submit in windows of a batch's capacity and collect."""
    channel = items.window.device.channel()
    capacity = min(LARGE, max(SMALL, 1 << (count - 1).bit_length()))
    if count > capacity:
        check_all(items, count)  # C sees one window at a time
    batch = channel.take_batch(capacity)
    results: list[int | UGDSError] = []
    clock = Clock(timeout_s)
    first = 0
    try:
        while first < count:
            size = min(capacity, count - first)
            items.window.check_open()  # others ran since the last one
            ready = items.submit(batch, first, size, channel.bad)
            if ready < 0 and first:  # what was moved before is told in any case
                results = results or list(items.lengths)
                results[first:] = _not_sent(items, ready, first, clock, timeout_s)
                break
            if ready < 0:
                index = int(channel.bad[0])
                error = refused(channel.device, ready, items.request(index))
                error.add_note(f"item {items.number(index)}")
                raise error
            if ready < size:
                await _finish(channel, batch, size, items, clock.left())
            results = _results(channel, batch, items, results, timeout_s)
            first += size
    finally:
        channel.give_batch(batch, capacity)
    return await _answer(channel, items, results)


def _not_sent(
    items: Items, code: int, first: int, clock: Clock, timeout_s: float | None
) -> list[UGDSError]:
    """Return why a window was refused when others had gone before it."""
    device = items.window.device
    requests = map(items.request, range(first, len(items.lengths)))
    if clock.over():
        late = Record(0, -errno.ETIMEDOUT, lib.UGDS_NEVER_SENT << 24, 0)
        return [ended(device, late, request, timeout_s) for request in requests]
    return [refused(device, code, request) for request in requests]


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
    return _lengths(items.op, results) if results else items.lengths


def _lengths(op: int, results: list[int | UGDSError]) -> list[int]:
    """Return them when they are lengths; raise with all of them when some are not."""
    failures = [result for result in results if isinstance(result, UGDSError)]
    if failures:
        raise BatchError(
            f"{len(failures)} of {len(results)} items of {NAMES[op & 0xFF]}_many "
            "failed",
            failures,
            results,
        )
    return cast("list[int]", results)


async def _finish(
    channel: Channel, batch: CData, size: int, items: Items, timeout_s: float | None
) -> None:
    """Wait until all of a window have ended; when cancelled, too."""
    if timeout_s is not None:
        lib.ugds_batch_deadline(batch, seconds_to_ns(timeout_s))
    try:
        if not channel.expect(batch, size):
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
