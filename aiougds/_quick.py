"""The quick way through ``read_many`` and ``write_many``.

Whatever is the rule is done here, in plain functions and with nothing per item but
packing: registered memory, int64 arrays, all items ended inside the call and well.
Everything else goes on in :mod:`aiougds._bulk`; what C refuses goes there once more
from the start (nothing of it was sent), to be put in words.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from aiougds._bulk import collect, read_or_write_many
from aiougds._channel import SMALL
from aiougds._ffi import NULL, ffi, lib
from aiougds._items import WORDS, ArrayItems, ListedItems
from aiougds._pinned import PinnedMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from typing_extensions import Buffer

    from aiougds._channel import Channel
    from aiougds._pinned import RegistrationSlice
    from aiougds._transfer import Window

_from_buffer: Final = ffi.from_buffer
_submit: Final = lib.ugds_batch_submit
_submit_array: Final = lib.ugds_batch_submit_array
_harvest_ok: Final = lib.ugds_batch_harvest_ok


def start_many(
    channel: Channel,
    window: Window,
    op: int,
    requests: object,
    offsets: Buffer | None,
    nbytes: int | None,
    buf_offsets: Buffer | None,
    timeout_s: float | None,
) -> list[int] | Awaitable[list[int]]:
    """Return the bytes of each item, or what to await for them."""
    done: list[int] | Awaitable[list[int]] | None = None
    if timeout_s is None:
        if offsets is None:
            if type(requests) is list:
                # typed: as it has to be, or it goes the long way
                pairs: list[tuple[RegistrationSlice, int]] = requests  # pyright: ignore[reportUnknownVariableType]
                done = _listed(channel, window, op, pairs)
        elif isinstance(requests, PinnedMemory) and nbytes:
            done = _arrays(channel, window, op, requests, offsets, nbytes, buf_offsets)
    if done is not None:
        return done
    # typed: type() above said that it is a list, but not of what
    return read_or_write_many(
        window,
        op,
        requests,  # pyright: ignore[reportUnknownArgumentType]
        offsets,
        nbytes,
        buf_offsets,
        timeout_s,
    )


def _arrays(
    channel: Channel,
    window: Window,
    op: int,
    reg: PinnedMemory,
    offsets: Buffer,
    nbytes: int,
    buf_offsets: Buffer | None,
) -> list[int] | Awaitable[list[int]] | None:
    try:
        if memoryview(offsets).format not in ("q", "l"):
            return None
        where = _from_buffer("int64_t[]", offsets)
        count = len(where)
        into = NULL
        if buf_offsets is not None:
            if memoryview(buf_offsets).format not in ("q", "l"):
                return None
            into = _from_buffer("int64_t[]", buf_offsets)
            if len(into) != count:
                return None
        if not 0 < count <= SMALL or reg._device is not window.device:
            return None
    except (TypeError, ValueError, BufferError):
        return None
    batch = channel.take_small()
    try:
        ready = _submit_array(
            batch,
            window.ptr,
            op,
            reg._handle,
            where,
            into,
            nbytes,
            count,
            0,
            channel.bad,
        )
    except (TypeError, OverflowError):
        ready = -1  # put in words by the slow way
    if ready == count and _harvest_ok(batch) >= 0:
        channel.small.append(batch)
        channel.budget -= 1
        lengths = [nbytes] * count
        return lengths if channel.budget > 0 else _after_a_turn(channel, lengths)
    if ready < 0:
        channel.small.append(batch)
        return None
    items = ArrayItems(window, op, reg, offsets, nbytes, buf_offsets)
    return collect(channel, batch, SMALL, items, count)


def _listed(
    channel: Channel,
    window: Window,
    op: int,
    pairs: list[tuple[RegistrationSlice, int]],
) -> list[int] | Awaitable[list[int]] | None:
    device = window.device
    flat: list[int] = []
    count = 0
    try:
        # typed: what is no slice, or no pair, goes the long way
        for buf, offset in pairs:
            reg = buf._reg
            if reg._device is not device:
                return None
            flat += (reg._handle, buf._start, buf.nbytes, offset, count, op)
            count += 1
        if not 0 < count <= SMALL:
            return None
        packed = array("Q", flat)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    batch = channel.take_small()
    requests = _from_buffer("struct ugds_req[]", packed)
    ready = _submit(batch, window.ptr, requests, count, channel.bad)
    if ready == count and _harvest_ok(batch) >= 0:
        channel.small.append(batch)
        channel.budget -= 1
        lengths = flat[2::WORDS]
        return lengths if channel.budget > 0 else _after_a_turn(channel, lengths)
    if ready < 0:
        channel.small.append(batch)
        return None
    # typed: they were pairs of slices
    items = ListedItems(window, op, pairs)
    return collect(channel, batch, SMALL, items, count)


async def _after_a_turn(channel: Channel, lengths: list[int]) -> list[int]:
    await channel.breathe()
    return lengths
