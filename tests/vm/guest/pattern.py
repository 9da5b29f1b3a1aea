"""What lies on a fresh disk: each sector says where it is and on which disk."""

from __future__ import annotations

import struct
import zlib

SECTOR = 512
MARK = struct.Struct("<QQ")


def tag(disk: str) -> int:
    """Return what tells one disk's sectors from another's."""
    return zlib.crc32(disk.encode()) << 32 | 0x55AA


def pattern(disk: str, first: int, count: int) -> bytes:
    """Return ``count`` sectors from ``first`` on, as they were when the guest began."""
    mark = tag(disk)
    times = SECTOR // MARK.size
    sectors = range(first, first + count)
    return b"".join(MARK.pack(sector, mark) * times for sector in sectors)
