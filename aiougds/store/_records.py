"""On-device records: slot headers, journal blocks, pages and heads of checkpoints.

Packing and parsing only. Everything is little-endian, and has a CRC-32 of its own
over what follows it, so that what is torn or stale is told from what is whole.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds.store._layout import BLOCK, PAGE_HEAD
from aiougds.store._slots import NEW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.store._slots import Columns

# crc, magic, generation, length, checksum, its kind, bytes of key, of tail, digest
_SLOT: Final = struct.Struct("<I8sQQQHHI16s")
_BODY: Final = struct.Struct("<8sQQQHHI16s4x")  # the same behind the CRC, to KEY_AT
SLOT_MAGIC: Final = b"UGDSLOT1"
KEY_AT: Final = 64
DIGEST_BYTES: Final = 16

# crc, magic, store, sequence, epoch, records, used bytes
_BLOCK: Final = struct.Struct("<I4s8sQQHH4x")
_BLOCK_MAGIC: Final = b"UGJ1"
RECORDS_AT: Final = _BLOCK.size
_PUT: Final = struct.Struct("<BBHIQQQ")  # kind, checksum kind, key, slot, gen, ...
_DELETE: Final = struct.Struct("<BxxxIQ")
PUT: Final = 1
DELETE: Final = 2

# crc, magic, store, checkpoint, first slot, slots, bytes of keys, bytes in all
_PAGE: Final = struct.Struct("<I4s8sQQIIQ")
_PAGE_MAGIC: Final = b"UGP1"

# crc, magic, store, checkpoint, replay from, epoch, pages, bytes of pages
_HEAD: Final = struct.Struct("<I4s8sQQQQQ")
_HEAD_MAGIC: Final = b"UGC1"


def digest(key: bytes) -> bytes:
    """Return what the slot header has of a key besides the key itself."""
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


# ---- slot headers ----


class Header(NamedTuple):
    """What a slot's header says."""

    generation: int
    length: int
    checksum: int
    kind: int
    key: bytes
    tail: int
    """Bytes of the chunk's end that are at the end of the header block."""


def tail_fits(key: bytes, tail: int) -> bool:
    """Whether the end of a chunk has room in the block of its header."""
    return KEY_AT + len(key) + tail <= BLOCK


def write_header(
    into: memoryview,
    gen: int,
    length: int,
    checksum: int,
    kind: int,
    key: bytes,
    tail: int,
) -> None:
    """Put a header at the start of a block; the rest is left as it is."""
    body = _BODY.pack(
        SLOT_MAGIC, gen, length, checksum, kind, len(key), tail, digest(key)
    )
    body += key
    into[: KEY_AT + len(key)] = zlib.crc32(body).to_bytes(4, "little") + body


def read_header(block: memoryview | bytes) -> Header | None:
    """Read a slot's header; None when there is none that is whole."""
    crc, magic, gen, length, checksum, kind, key_bytes, tail, dig = _SLOT.unpack_from(
        block
    )
    end = KEY_AT + key_bytes
    if magic != SLOT_MAGIC or end > BLOCK or zlib.crc32(block[4:end]) != crc:
        return None
    key = bytes(block[KEY_AT:end])
    if digest(key) != dig:
        return None
    return Header(gen, length, checksum, kind, key, tail)


# ---- the journal ----


def put_record(
    slot: int, gen: int, length: int, checksum: int, kind: int, key: bytes
) -> bytes:
    """Say that a slot holds a chunk."""
    return _PUT.pack(PUT, kind, len(key), slot, gen, length, checksum) + key


def delete_record(slot: int, gen: int) -> bytes:
    """Say that a slot holds nothing any more."""
    return _DELETE.pack(DELETE, slot, gen)


def journal_block(store: bytes, seq: int, epoch: int, records: list[bytes]) -> bytes:
    """Return a block with these records, shorter than BLOCK."""
    body = b"".join(records)
    used = RECORDS_AT + len(body)
    head = _BLOCK.pack(0, _BLOCK_MAGIC, store, seq, epoch, len(records), used)
    rest = head[4:] + body
    return zlib.crc32(rest).to_bytes(4, "little") + rest


class BlockHead(NamedTuple):
    """The head of a whole journal block."""

    seq: int
    epoch: int
    records: int


def block_head(block: memoryview, store: bytes) -> BlockHead | None:
    """Return the head of a journal block; None when it is not whole, or another's."""
    crc, magic, owner, seq, epoch, records, used = _BLOCK.unpack_from(block)
    if magic != _BLOCK_MAGIC or owner != store or not RECORDS_AT <= used <= BLOCK:
        return None
    if zlib.crc32(block[4:used]) != crc:
        return None
    return BlockHead(seq, epoch, records)


def replay_block(block: memoryview, records: int, columns: Columns) -> None:
    """Do to the columns what the records of a block say.

    In the order of the journal each slot goes through growing generations, so that a
    state which a checkpoint has caught later is kept.
    """
    keys, gens = columns.keys, columns.gens
    at = RECORDS_AT
    for _ in range(records):
        if block[at] == PUT:
            _, kind, key_bytes, slot, gen, length, checksum = _PUT.unpack_from(
                block, at
            )
            at += _PUT.size
            if gen >= gens[slot]:
                keys[slot] = bytes(block[at : at + key_bytes])
                gens[slot] = gen
                columns.lengths[slot] = length
                columns.sums[slot] = checksum
                columns.kinds[slot] = kind
                columns.ages[slot] = NEW
            at += key_bytes
        else:
            _, slot, gen = _DELETE.unpack_from(block, at)
            at += _DELETE.size
            if gen >= gens[slot]:
                keys[slot] = b""
                gens[slot] = gen


# ---- checkpoints ----

_KINDS: Final = bytes(both & 3 for both in range(256))
_AGES: Final = bytes(both >> 2 for both in range(256))


def _both(kinds: bytearray, ages: bytearray) -> bytes:
    """Return a byte for each: two bits and six."""
    return bytes([kind | age << 2 for kind, age in zip(kinds, ages, strict=True)])


def page(store: bytes, number: int, columns: Columns, first: int, count: int) -> bytes:
    """Return the page of some slots, as they are now."""
    last = first + count
    keys = columns.keys[first:last]
    blob = b"".join(keys)
    parts = (
        columns.gens[first:last].tobytes(),
        columns.lengths[first:last].tobytes(),
        columns.sums[first:last].tobytes(),
        array("H", map(len, keys)).tobytes(),
        _both(columns.kinds[first:last], columns.ages[first:last]),
        blob,
    )
    size = PAGE_HEAD + sum(map(len, parts))
    head = _PAGE.pack(0, _PAGE_MAGIC, store, number, first, count, len(blob), size)
    rest = b"".join((head.ljust(PAGE_HEAD, b"\0")[4:], *parts))
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def page_bytes(head: memoryview) -> int:
    """Return the bytes of the page that begins there."""
    size: int = _PAGE.unpack_from(head)[7]
    return size


def load_page(
    area: memoryview, store: bytes, number: int, columns: Columns
) -> int | None:
    """Take over a page; return its bytes, or None when it is not whole."""
    crc, magic, owner, owner_number, first, count, blob, size = _PAGE.unpack_from(area)
    if magic != _PAGE_MAGIC or owner != store or owner_number != number:
        return None
    if size > len(area) or zlib.crc32(area[4:size]) != crc:
        return None
    last = first + count
    at = PAGE_HEAD
    for column in (columns.gens, columns.lengths, columns.sums):
        column[first:last] = array("Q", bytes(area[at : at + 8 * count]))
        at += 8 * count
    lengths = array("H", bytes(area[at : at + 2 * count]))
    at += 2 * count
    both = bytes(area[at : at + count])
    columns.kinds[first:last] = both.translate(_KINDS)
    columns.ages[first:last] = both.translate(_AGES)
    at += count
    text = bytes(area[at : at + blob])
    columns.keys[first:last] = [
        text[a:b] for a, b in pairwise(accumulate(lengths, initial=0))
    ]
    return int(size)


class CheckpointHead(NamedTuple):
    """The first block of a checkpoint region: written when all pages are there."""

    number: int
    replay_from: int
    """The journal's sequence from which it is replayed."""
    epoch: int
    pages: int
    nbytes: int

    def pack(self, store: bytes) -> bytes:
        """Return the head, shorter than a block."""
        rest = _HEAD.pack(0, _HEAD_MAGIC, store, *self)[4:]
        return zlib.crc32(rest).to_bytes(4, "little") + rest


def checkpoint_head(block: memoryview, store: bytes) -> CheckpointHead | None:
    """Read the head of a checkpoint; None when it is not whole, or another's."""
    crc, magic, owner, *rest = _HEAD.unpack_from(block)
    if magic != _HEAD_MAGIC or owner != store:
        return None
    if zlib.crc32(block[4 : _HEAD.size]) != crc:
        return None
    return CheckpointHead(*rest)


def blocks_of(records: list[bytes], most: int) -> Iterator[list[bytes]]:
    """Divide records among blocks, at most so many; the rest is left out."""
    part: list[bytes] = []
    room = BLOCK - RECORDS_AT
    for record in records:
        if len(record) > room:
            yield part
            most -= 1
            if not most:
                return
            part, room = [], BLOCK - RECORDS_AT
        part.append(record)
        room -= len(record)
    yield part
