"""Reads and writes that need more than one call of C.

The fast paths of :class:`Namespace` come here with whatever is not a registered
range, or was refused: foreign memory is looked up or pinned just in time, memory that
is not aligned to 4 bytes is bounced, byte ranges are bounced at their edges, and what
is wrong is put in words.
"""

from __future__ import annotations

import errno
import operator
import time
from typing import TYPE_CHECKING, Final, NamedTuple, SupportsIndex, TypeVarTuple

from aiougds import _order
from aiougds._buffer import Memory
from aiougds._completion import current_home
from aiougds._errors import (
    AlignmentError,
    ArgumentTypeError,
    ClosedError,
    MemoryLayoutError,
    OperationTimeoutError,
    OptionError,
    RangeError,
    ReadOnlyError,
)
from aiougds._failure import (
    NAMES,
    Request,
    ended,
    last_failure,
    past_end,
    refused,
    unaligned,
)
from aiougds._ffi import PENDING, ffi, lib, seconds_to_ns
from aiougds._gpu_memory import live_holders, memory_of, runtime_to_load
from aiougds._mapping import Mapping
from aiougds._pinned import PinnedMemory, RegistrationSlice, fresh_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._gpu.streams import After
    from aiougds._mapping import Keeps

Args = TypeVarTuple("Args")
BOUNCE_BYTES: Final = 256 << 10
MOST: Final = (1 << 64) - 1
READ: Final = lib.UGDS_OP_READ


class Clock:
    """What is left of a time limit that several operations share."""

    __slots__ = ("_end",)

    def __init__(self, timeout_s: float | None) -> None:
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    def left(self) -> float | None:
        """Return seconds, at least a nanosecond; None: no limit."""
        return None if self._end is None else max(1e-9, self._end - time.monotonic())

    def over(self) -> bool:
        """Whether nothing is left of it."""
        return self._end is not None and time.monotonic() >= self._end


class Window(NamedTuple):
    """A namespace or region as a transfer sees it."""

    device: Device
    ptr: CData
    lba_bytes: int
    life: list[bool]  # emptied when ``ptr`` is freed

    def check_open(self) -> None:
        """Raise when it was closed, perhaps between two operations of one call."""
        if not self.life:
            raise ClosedError(
                f"the namespace or region of {self.device.address} was closed; open it "
                "again"
            )

    @property
    def size(self) -> int:
        """Bytes of it now: a namespace may grow, shrink or go while it is open."""
        self.check_open()
        return lib.ugds_ns_size(self.ptr)

    def gone(self) -> bool:
        """Whether the namespace was detached or formatted anew."""
        return bool(lib.ugds_ns_gone(self.ptr))

    def check_range(self, name: str, offset: int, nbytes: int) -> None:
        """Raise unless the range is whole blocks inside the window."""
        if (offset | nbytes) % self.lba_bytes:
            raise unaligned(name, offset, nbytes, self.lba_bytes)
        size = self.size
        if offset + nbytes > size:
            raise past_end(name, offset, nbytes, size, self.gone())


class Place(NamedTuple):
    """Memory of a request, as far as it is known."""

    handle: int  # 0: not mapped yet
    buf_off: int
    nbytes: int
    ptr: int
    keep: Keeps | None
    memory: Memory


NOWHERE: Final = Place(0, 0, 0, 0, None, Memory(0, 0, None))


def whole(value: SupportsIndex, name: str) -> int:
    """Return a non-negative integer, or raise what says which is needed."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={value!r}: an integer is needed") from None
    if number < 0:
        raise RangeError(f"{name}={number}: it cannot be negative")
    if number > MOST:
        raise RangeError(
            f"{name}={number}: past the end of any namespace, 2**64 - 1 at most"
        )
    return number


def locate(device: Device, buf: object, op: int) -> Place:
    """Return where a request's memory is, without pinning anything."""
    if isinstance(buf, (PinnedMemory, RegistrationSlice)):
        reg = buf._reg
        memory = reg.memory
        place = Place(
            reg.handle_on(device),
            buf._start,
            buf.nbytes,
            memory.ptr + buf._start,
            reg,
            memory,
        )
    else:
        memory = memory_of(buf)
        place = Place(0, 0, memory.nbytes, memory.ptr, None, memory)
        holders = live_holders(memory)
        for reg in holders:
            if reg.mappings_on(device):
                start = memory.ptr - reg.memory.ptr
                place = place._replace(
                    handle=reg.handle_on(device), buf_off=start, keep=reg
                )
                break
        else:
            for reg in holders:  # registered, but not here: never a hidden pin
                if reg.asked_for:
                    reg.handle_on(device)
    if op == READ:
        refuse_as_target(memory)
    return place


def refuse_as_target(memory: Memory) -> None:
    """Raise when nothing may be read into the memory."""
    if memory.target_refusal:
        raise ReadOnlyError(f"read: {memory.target_refusal}")
    if memory.readonly:
        raise ReadOnlyError(
            "read: the memory is read-only; read into writable memory, for example a "
            "bytearray instead of bytes"
        )


async def issue(
    window: Window,
    place: Place,
    nbytes: int,
    offset: int,
    op: int,
    timeout_s: float | None,
) -> int:
    """Run one operation of C on mapped memory (or none) and return the bytes moved."""
    channel = window.device.channel()
    window.check_open()
    args = (place.handle, place.buf_off, nbytes, offset, op)
    result = lib.ugds_rw(channel.ptr, window.ptr, *args)
    if 0 <= result < PENDING:
        channel.budget -= 1
        if channel.budget <= 0:
            await channel.breathe()
        return result
    request = Request(
        op,
        offset,
        nbytes,
        place.memory.nbytes,
        place.buf_off,
        window.lba_bytes,
        window.size,
    )
    if result < 0:
        raise last_failure(channel, result, request, timeout_s)
    token = result - PENDING
    if timeout_s is not None:
        lib.ugds_op_deadline(channel.ptr, token, seconds_to_ns(timeout_s))
    record = await channel.wait(token, place.keep)
    if record.result < 0:
        raise ended(window.device, record, request, timeout_s)
    return record.result


async def plain(
    window: Window, op: int, offset: int, nbytes: int, timeout_s: float | None
) -> int:
    """Run one command that moves no data, and return the bytes it was about."""
    check_timeout(timeout_s)
    await current_home().take_cancel()
    return await issue(window, NOWHERE, nbytes, offset, op, timeout_s)


def check_timeout(timeout_s: object) -> None:
    """Raise unless it is None or positive."""
    if timeout_s is None or (isinstance(timeout_s, (int, float)) and timeout_s > 0):
        return
    raise OptionError(f"timeout_s={timeout_s!r}: a positive number is needed")


async def transfer(
    window: Window,
    buf: object,
    op: int,
    offset: SupportsIndex,
    nbytes: SupportsIndex | None,
    timeout_s: float | None,
    *,
    bounce_edges: bool = False,
    jit: bool = True,
    stream: object = None,
    after: After | None = None,
) -> int:
    """Do whatever it takes for one read, write or compare; return the bytes moved."""
    device, lba, size = window.device, window.lba_bytes, window.size
    name = NAMES[op & 0xFF]
    at = whole(offset, "offset")
    if not isinstance(buf, (PinnedMemory, RegistrationSlice)):
        load = runtime_to_load(buf)
        if load is not None:  # its package is imported now
            await current_home().off_loop(load)
    place = locate(device, buf, op & 0xFF)
    length = place.nbytes if nbytes is None else whole(nbytes, "nbytes")
    if length > place.nbytes:
        raise RangeError(
            f"{name}: nbytes={length} is more than the {place.nbytes} bytes of memory"
        )
    aligned = not (at | length) % lba
    if not aligned and not (bounce_edges and op & 0xFF == READ):
        raise unaligned(name, at, length, lba)
    if at + length > size:
        raise past_end(name, at, length, size, window.gone())
    check_timeout(timeout_s)
    if not length:
        return 0
    await current_home().take_cancel()
    stream = _order.wanted(stream, place.memory)
    if stream is not None or after is not None:
        what = f"{name} of {length} bytes at offset {at}"
        clock = Clock(timeout_s)
        timeout_s = await _order.begin(after, stream, place.memory, what, clock)
    if place.ptr & 3 or not aligned:
        if not place.memory.copyable:
            raise AlignmentError(
                f"{name}: memory of a dma-buf is not bounced: give whole blocks, and a "
                "place in it that is aligned to 4 bytes"
            )
        clock = Clock(timeout_s)
        return await _bounced(window, place, op, at, length, clock, jit=jit)
    return await _direct(window, place, op, at, length, timeout_s, jit=jit)


async def _direct(
    window: Window,
    place: Place,
    op: int,
    at: int,
    length: int,
    timeout_s: float | None,
    *,
    jit: bool,
) -> int:
    if place.handle:
        return await issue(window, place, length, at, op, timeout_s)
    if not jit:
        raise MemoryLayoutError(
            f"{NAMES[op & 0xFF]}: the memory is not registered and jit=False forbids "
            "to pin it just in time; use ns.register()"
        )
    device = window.device
    memory = place.memory
    if device.limbo:
        device.sweep_limbo()
        if device.left_busy(memory.ptr, length):
            request = Request(
                op, at, length, memory.nbytes, 0, window.lba_bytes, window.size
            )
            raise device.refusal() or refused(device, -errno.EBUSY, request)
    if place.nbytes != length:
        memory = memory.part(0, length)
    inline = device.info().caps & lib.UGDS_CAP_MAP_INLINE and (
        memory.is_quick_for(device)
    )
    clock = Clock(None if inline else timeout_s)
    home = current_home()
    if inline:
        mapping = Mapping(device, memory)
    else:
        # Cancelled or late while pinning: nothing is sent.
        grace_s = device.options.cancel_grace_s
        try:
            mapping = await home.patiently(
                lambda: Mapping(device, memory), Mapping.release, grace_s, timeout_s
            )
        except TimeoutError:
            raise _pinned_late(op, at, length, timeout_s) from None
    device.jit_pins += 1
    try:
        if not inline:
            await home.breathe()
            if clock.over():
                raise _pinned_late(op, at, length, timeout_s)
            timeout_s = clock.left()
        pinned = place._replace(handle=mapping.handle, keep=mapping)
        return await issue(window, pinned, length, at, op, timeout_s)
    finally:
        if inline:
            mapping.release()
        else:  # it may take as long as pinning did
            await home.off_loop(mapping.release)


def _pinned_late(
    op: int, at: int, length: int, timeout_s: float | None
) -> OperationTimeoutError:
    return OperationTimeoutError(
        f"{NAMES[op & 0xFF]} of {length} bytes at offset {at} did not end within "
        f"{timeout_s=}: it was never sent, as pinning its memory took that long; "
        "register it"
    )


async def _take_bounce(device: Device) -> Mapping:
    try:
        return device.pool.pop()
    except IndexError:
        pass

    def make() -> Mapping:
        return Mapping(device, fresh_memory(BOUNCE_BYTES))

    if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
        return make()
    return await current_home().off_loop(make, Mapping.release)


async def _give_bounce(device: Device, mapping: Mapping) -> None:
    if not mapping.inflight() and len(device.pool) < 64:
        device.pool.append(mapping)
    elif device.ended or device.info().caps & lib.UGDS_CAP_MAP_INLINE:
        mapping.release()  # or given up: the device has it
    else:
        await current_home().off_loop(mapping.release)


async def _bounced(
    window: Window,
    place: Place,
    op: int,
    at: int,
    length: int,
    clock: Clock,
    *,
    jit: bool,
) -> int:
    """Go through bounce memory for the edges of a byte range, or for all of it."""
    lba = window.lba_bytes
    first = -(-at // lba) * lba  # start of the whole blocks in between
    last = (at + length) // lba * lba
    middle = last - first
    direct = middle >= BOUNCE_BYTES // 4 and not (place.ptr + first - at) & 3
    if not direct:
        return await _copied(window, place, op, at, 0, length, clock)
    if first > at:
        await _copied(window, place, op, at, 0, first - at, clock)
    inner = place._replace(
        buf_off=place.buf_off + first - at, ptr=place.ptr + first - at, nbytes=middle
    )
    if not place.handle:
        inner = inner._replace(buf_off=0, memory=place.memory.part(first - at, middle))
    await _direct(window, inner, op, first, middle, clock.left(), jit=jit)
    rest = at + length - last
    if rest:
        await _copied(window, place, op, last, last - at, rest, clock)
    return length


async def _copy(memory: Memory, copy: Callable[[*Args], None], *args: *Args) -> None:
    if memory.host:
        copy(*args)
    else:  # a GPU's runtime may have it wait for all that streams are doing
        await current_home().off_loop(lambda: copy(*args))


async def _copied(
    window: Window,
    place: Place,
    op: int,
    at: int,
    start: int,
    length: int,
    clock: Clock,
) -> int:
    """Move [at, at + length) through bounce memory, a piece at a time."""
    device, lba = window.device, window.lba_bytes
    if lba > BOUNCE_BYTES:
        raise AlignmentError(f"blocks of {lba} bytes are too large to be bounced")
    mapping = await _take_bounce(device)
    bounce = Place(mapping.handle, 0, BOUNCE_BYTES, 0, mapping, mapping.memory)
    base = ffi.cast("char *", mapping.memory.ptr)
    memory = place.memory
    start += place.ptr - memory.ptr
    done = 0
    try:
        while done < length:
            pos = at + done
            head = pos % lba
            take = min(length - done, BOUNCE_BYTES - head)
            blocks = -(-(head + take) // lba) * lba
            if op & 0xFF != READ:
                await _copy(memory, memory.copy_out, base, start + done, take)
            await issue(window, bounce, blocks, pos - head, op, clock.left())
            if op & 0xFF == READ:
                await _copy(memory, memory.copy_in, start + done, base + head, take)
            done += take
    finally:
        await _give_bounce(device, mapping)
    device.bounces += 1
    device.bounced_bytes += length
    return length
