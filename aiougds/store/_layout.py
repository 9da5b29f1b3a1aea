"""Where things lie on a device: the superblock, and the arithmetic behind it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from aiougds._errors import OptionError
from aiougds.store._errors import StoreFormatError

BLOCK: Final = 4096  # of the superblock, the journal, headers: what one write moves
MAGIC: Final = b"UGDSTORE"
VERSION: Final = 2
HEAD_BYTES: Final = 64 << 10  # before the journal
ALIGN: Final = 64 << 10  # of regions
PAGE_SLOTS: Final = 512  # slots of a page of a checkpoint
PAGE_HEAD: Final = 64
SLOT_WORDS: Final = 27  # bytes of a slot in a page, without its key
MOST_KEY_BYTES: Final = 1024
MOST_SLOTS: Final = 1 << 31
LEAST_JOURNAL: Final = 64
MOST_JOURNAL: Final = 16384

_SUPER: Final = struct.Struct("<8sII16sHHIIIQQQQQ")
_CLASS: Final = struct.Struct("<QQQQ")


class Place(NamedTuple):
    """The slots of one size on one device."""

    slot_bytes: int
    """The longest chunk."""
    stride: int
    """Bytes from one slot to the next."""
    offset: int
    """Of the first slot, in bytes."""
    slots: int
    """How many."""


@dataclass(frozen=True, slots=True)
class SlotClass:
    """Slots of one size: for chunks of at most ``slot_bytes``.

    ``share`` is their part of the device's bytes, relative to that of other classes.
    """

    slot_bytes: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """How :func:`format` divides a device.

    Give ``slot_bytes``, the longest chunk there may be, or ``classes`` for slots of
    several sizes. ``key_bytes`` is the longest key; ``journal_bytes`` None is chosen.
    """

    slot_bytes: int | None = None
    classes: tuple[SlotClass, ...] = ()
    key_bytes: int = 256
    journal_bytes: int | None = None

    def sizes(self) -> list[SlotClass]:
        """Return the classes, the smallest slots first.

        >>> [of.slot_bytes for of in Layout(slot_bytes=1 << 20).sizes()]
        [1048576]
        """
        if (self.slot_bytes is None) == (not self.classes):
            raise OptionError(
                "a layout has slot_bytes= or classes=, one of them, not both or none"
            )
        if not 1 <= self.key_bytes <= MOST_KEY_BYTES:
            raise OptionError(
                f"key_bytes={self.key_bytes} is outside 1 .. {MOST_KEY_BYTES}"
            )
        if self.slot_bytes is not None:
            found = [SlotClass(self.slot_bytes)]
        else:
            found = list(self.classes)
        for one in found:
            if type(one.slot_bytes) is not int:
                raise OptionError(
                    f"slot_bytes={one.slot_bytes!r}: an integer is needed"
                )
            if one.slot_bytes < 1:
                raise OptionError(f"slot_bytes={one.slot_bytes}: one byte at least")
            if not one.share > 0:
                raise OptionError(f"share={one.share}: a positive number is needed")
        if len({one.slot_bytes for one in found}) < len(found):
            raise OptionError("two classes have the same slot_bytes")
        if len(found) > 64:
            raise OptionError(f"{len(found)} classes are more than 64")
        return sorted(found, key=lambda one: one.slot_bytes)


@dataclass(frozen=True, slots=True)
class Superblock:
    """What the first block of a device says."""

    uuid: bytes
    member: int
    members: int
    lba_bytes: int
    key_bytes: int
    size: int
    journal: int
    """Offset of the journal."""
    journal_blocks: int
    checkpoint: int
    """Offset of the first of two checkpoint regions."""
    checkpoint_bytes: int
    """Bytes of one."""
    places: tuple[Place, ...]

    @property
    def slots(self) -> int:
        """All slots of the device."""
        return sum(place.slots for place in self.places)

    def pack(self) -> bytes:
        """Return the block."""
        fields = (
            self.uuid,
            self.member,
            self.members,
            self.lba_bytes,
            self.key_bytes,
            len(self.places),
            self.size,
            self.journal,
            self.journal_blocks,
            self.checkpoint,
            self.checkpoint_bytes,
        )
        body = b"".join(_CLASS.pack(*place) for place in self.places)
        empty = _SUPER.pack(MAGIC, VERSION, 0, *fields) + body
        head = _SUPER.pack(MAGIC, VERSION, zlib.crc32(empty), *fields)
        return (head + body).ljust(BLOCK, b"\0")


def unpack(block: bytes, name: str) -> Superblock:
    """Read a superblock, or raise what is wrong with it."""
    magic, version, crc, *rest = _SUPER.unpack_from(block)
    if magic != MAGIC:
        raise StoreFormatError(
            f"{name} holds no chunk store; make one with aiougds.store.format() or "
            "'aiougds store format'"
        )
    if version != VERSION:
        raise StoreFormatError(
            f"{name} holds a chunk store of format version {version}, and this is for "
            f"version {VERSION}: use the aiougds that made it, or format it anew"
        )
    uuid, member, members, lba, key_bytes, classes = rest[:6]
    size, journal, journal_blocks, checkpoint, checkpoint_bytes = rest[6:]
    end = _SUPER.size + _CLASS.size * min(classes, 64)
    empty = bytearray(block[:end])
    empty[12:16] = bytes(4)
    if zlib.crc32(empty) != crc:
        raise StoreFormatError(
            f"the superblock of the chunk store on {name} is damaged (checksum); "
            "format it anew"
        )
    places = tuple(
        Place(*_CLASS.unpack_from(block, at))
        for at in range(_SUPER.size, end, _CLASS.size)
    )
    return Superblock(
        uuid,
        member,
        members,
        lba,
        key_bytes,
        size,
        journal,
        journal_blocks,
        checkpoint,
        checkpoint_bytes,
        places,
    )


def page_most(key_bytes: int) -> int:
    """Return the bytes of a page of a checkpoint, at most."""
    return _up(PAGE_HEAD + PAGE_SLOTS * (SLOT_WORDS + key_bytes), BLOCK)


def plan(
    layout: Layout, size: int, lba_bytes: int, uuid: bytes, member: int, members: int
) -> Superblock:
    """Divide a device of that many bytes."""
    if lba_bytes > BLOCK:
        raise StoreFormatError(
            f"blocks of {lba_bytes} bytes: a store needs blocks of at most {BLOCK}"
        )
    classes = layout.sizes()
    shares = sum(one.share for one in classes)
    strides = [BLOCK + _up(one.slot_bytes, BLOCK) for one in classes]
    kept = 3 * page_most(layout.key_bytes) / PAGE_SLOTS  # by journal and checkpoints
    counts = [
        max(1, int((size - HEAD_BYTES) * one.share / shares / (stride + kept)))
        for one, stride in zip(classes, strides, strict=True)
    ]

    def made() -> Superblock:
        return _divided(layout, classes, strides, counts, size, lba_bytes)

    while _end(made()) > size:
        largest = max(range(len(counts)), key=lambda i: counts[i] * strides[i])
        if counts[largest] == 1:
            raise StoreFormatError(
                f"{size} bytes are too few for one slot of each class and what is "
                f"around them: {_end(made())} bytes are needed"
            )
        counts[largest] -= max(1, counts[largest] // 64)
    # What is left is for those of which there are most.
    most = max(range(len(counts)), key=lambda i: counts[i] * strides[i])
    step = 1 << counts[most].bit_length()
    while step:
        counts[most] += step
        if _end(made()) > size:
            counts[most] -= step
            step //= 2
    if sum(counts) > MOST_SLOTS:
        raise OptionError(f"{sum(counts)} slots are more than {MOST_SLOTS}")
    return replace(made(), uuid=uuid, member=member, members=members)


def _divided(
    layout: Layout,
    classes: list[SlotClass],
    strides: list[int],
    counts: list[int],
    size: int,
    lba_bytes: int,
) -> Superblock:
    """Put journal, checkpoints and so many slots one behind the other."""
    page = page_most(layout.key_bytes)
    region = _up(BLOCK + page * -(-sum(counts) // PAGE_SLOTS), ALIGN)
    blocks = _journal_blocks(layout, region)
    first = _up(HEAD_BYTES + blocks * BLOCK, ALIGN)
    at = first + 2 * region
    places: list[Place] = []
    for one, stride, count in zip(classes, strides, counts, strict=True):
        places.append(Place(one.slot_bytes, stride, at, count))
        at = _up(at + stride * count, ALIGN)
    return Superblock(
        bytes(16),
        0,
        1,
        lba_bytes,
        layout.key_bytes,
        size,
        HEAD_BYTES,
        blocks,
        first,
        region,
        tuple(places),
    )


def _end(superblock: Superblock) -> int:
    last = superblock.places[-1]
    return last.offset + last.stride * last.slots


def _journal_blocks(layout: Layout, region: int) -> int:
    if layout.journal_bytes is None:
        return min(MOST_JOURNAL, max(LEAST_JOURNAL, region // BLOCK))
    blocks = layout.journal_bytes // BLOCK
    if not LEAST_JOURNAL <= blocks <= 1 << 20:
        raise OptionError(
            f"journal_bytes={layout.journal_bytes} is outside "
            f"{LEAST_JOURNAL * BLOCK} .. {BLOCK << 20}"
        )
    return blocks


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
