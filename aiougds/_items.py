"""The items of ``read_many`` and ``write_many``: packed for C, known in words.

C checks the items of one window. What it would find in a later one, when some were
sent already, is found here before: :func:`check_all`.
"""

from __future__ import annotations

import errno
from array import array
from functools import reduce
from operator import add, or_  # pyright: ignore[reportUnknownVariableType]  # typeshed
from typing import TYPE_CHECKING, Final, SupportsIndex, cast

from aiougds._errors import (
    ArgumentError,
    ArgumentTypeError,
    MemoryLayoutError,
    RangeError,
)
from aiougds._failure import Request, refused
from aiougds._ffi import NULL, ffi, lib, words
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._transfer import READ, Window, locate, refuse_as_target, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Buffer

    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._mapping import Mapping

_either: Final = cast("Callable[[int, int], int]", or_)
WORDS: Final = 6  # of struct ugds_req: map, buf_off, nbytes, offset, cookie, op


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

    def number(self, index: int) -> int:
        """Return the caller's number of an item."""
        return index

    def registration(self, index: int) -> PinnedMemory:
        """Return the memory of one item."""
        raise NotImplementedError

    def all_well(self, count: int) -> bool:
        """Whether all of them pass, looked at together; False: look one by one."""
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

    def registration(self, index: int) -> PinnedMemory:
        return self.regs[index]

    def all_well(self, count: int) -> bool:
        regs = set(self.regs)
        if len(regs) > 1:
            return False
        offsets, starts = self.packed[3::WORDS], self.packed[1::WORDS]
        return _inside(self.window, self.op, regs.pop(), offsets, starts, self.lengths)


class FullItems(ListedItems):
    """What is left of a list without its items of no bytes."""

    __slots__ = ("numbers",)

    def __init__(self, items: ListedItems, numbers: list[int]) -> None:
        regs = [items.regs[index] for index in numbers]
        lengths = [items.lengths[index] for index in numbers]
        Items.__init__(self, items.window, items.op, lengths, Held(regs))
        self.packed = array("Q")
        for index in numbers:
            self.packed += items.packed[index * WORDS : (index + 1) * WORDS]
        self.packed[4::WORDS] = array("Q", range(len(numbers)))
        self.regs = regs
        self.numbers = numbers

    def number(self, index: int) -> int:
        return self.numbers[index]


def _inside(
    window: Window,
    op: int,
    reg: PinnedMemory,
    offsets: Sequence[int],
    starts: Sequence[int],
    lengths: Sequence[int],
) -> bool:
    memory = reg.memory
    return (
        min(offsets) >= 0
        and min(starts) >= 0
        and not (reduce(_either, offsets) | reduce(_either, lengths)) % window.lba_bytes
        and max(map(add, offsets, lengths)) <= window.size
        and max(map(add, starts, lengths)) <= reg.nbytes
        and not (memory.ptr | reduce(_either, starts)) & 3
        and not (op & 0xFF == READ and (memory.readonly or memory.target_refusal))
    )


def pair_of(item: object) -> tuple[object, SupportsIndex]:
    """Return an item as memory and, unchecked, an offset; else ArgumentTypeError."""
    if isinstance(item, tuple) and len(parts := cast("tuple[object, ...]", item)) == 2:
        return cast("tuple[object, SupportsIndex]", parts)
    raise ArgumentTypeError(f"{item!r} is not a pair (memory, offset)")


def _pack_slowly(
    device: Device, op: int, pairs: Sequence[object]
) -> tuple[list[int], list[PinnedMemory]]:
    """Pack what the quick loop tripped over, or say which item is wrong."""
    flat: list[int] = []
    regs: list[PinnedMemory] = []
    for index, pair in enumerate(pairs):
        try:
            memory, at = pair_of(pair)
            offset = whole(at, "offset")
            place = locate(device, memory, op & 0xFF)
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

    def registration(self, index: int) -> PinnedMemory:
        return self.buf._reg

    def all_well(self, count: int) -> bool:
        starts: Sequence[int] = range(0, count * self.nbytes, self.nbytes)
        if self.buf_offsets is not None:
            starts = self.buf_offsets
        reg = self.buf._reg
        return _inside(self.window, self.op, reg, self.where, starts, self.lengths)


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


def check_all(items: Items, count: int) -> None:
    """Do what C does for one window, where there are several."""
    if items.all_well(count):
        return
    for index in range(count):
        request = items.request(index)
        memory = items.registration(index).memory
        try:
            if request.buf_off < 0 or request.offset < 0:
                raise RangeError(f"{request.name}: an offset cannot be negative")
            items.window.check_range(request.name, request.offset, request.nbytes)
            if request.buf_off + request.nbytes > request.buf_bytes:
                raise refused(items.window.device, -errno.EFAULT, request)
            if (memory.ptr + request.buf_off) & 3:
                raise refused(items.window.device, -errno.EDOM, request)
            if items.op & 0xFF == READ:
                refuse_as_target(memory)
        except ArgumentError as error:
            error.add_note(f"item {items.number(index)}")
            raise
