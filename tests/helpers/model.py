"""Bytes to write, and what must be where afterwards."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

PAGE: Final = 4096


@lru_cache(64)
def pattern(nbytes: int, seed: int = 0) -> bytes:
    """Return bytes that look like no other seed's."""
    return random.Random(seed).randbytes(nbytes)


def numbered(count: int, block: int) -> bytes:
    """Return blocks that each hold their own number throughout."""
    return b"".join(
        (number + 1).to_bytes(8, "little") * (block // 8) for number in range(count)
    )


def number_of(block: bytes | bytearray | memoryview) -> int:
    """Return the number of a block of :func:`numbered`; every byte must agree."""
    first = bytes(block[:8])
    assert bytes(block) == first * (len(block) // 8)
    return int.from_bytes(first, "little") - 1
