"""Magic values that tell what is stored on a namespace, and where they lie.

A new format is one row. Offsets are from the start, or, where negative, from the end.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["filesystem", "partition table", "volume", "store", "file"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
HEAD_BYTES: Final = 2 * MIB + 64 * KIB  # the furthest row from the start is VMFS
TAIL_BYTES: Final = MIB


class Signature(NamedTuple):
    """A magic value and where it may lie."""

    name: str
    kind: Kind
    magic: bytes
    offsets: tuple[int, ...]


class Found(NamedTuple):
    """Something that is stored, and at which byte it showed."""

    name: str
    kind: Kind
    offset: int


def _fs(name: str, magic: bytes, *offsets: int) -> Signature:
    return Signature(name, "filesystem", magic, offsets or (0,))


def _volume(name: str, magic: bytes, *offsets: int) -> Signature:
    return Signature(name, "volume", magic, offsets or (0,))


def _file(name: str, magic: bytes, *offsets: int) -> Signature:
    return Signature(name, "file", magic, offsets or (0,))


_SWAP_AT: Final = tuple(page - 10 for page in (4096, 8192, 16384, 32768, 65536))
_BCACHE: Final = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_BCACHEFS: Final = bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")
_MD: Final = bytes.fromhex("fc4e2ba9")  # 0xa92b4efc, little endian

SIGNATURES: Final = (
    Signature("GPT", "partition table", b"EFI PART", (512, 4096, -512, -4096)),
    Signature("Mac partition map", "partition table", b"PM\0\0", (512,)),
    _fs("ext2/ext3/ext4", b"\x53\xef", 0x438),
    _fs("XFS", b"XFSB"),
    _fs("Btrfs", b"_BHRfS_M", 0x10040),
    _fs("NTFS", b"NTFS    ", 3),
    _fs("exFAT", b"EXFAT   ", 3),
    _fs("FAT", b"FAT12   ", 0x36),
    _fs("FAT", b"FAT16   ", 0x36),
    _fs("FAT32", b"FAT32   ", 0x52),
    _fs("F2FS", b"\x10\x20\xf5\xf2", 0x400),
    _fs("EROFS", b"\xe2\xe1\xf5\xe0", 0x400),
    _fs("NILFS2", b"\x34\x34", 0x406),
    _fs("bcachefs", _BCACHEFS, 0x1018),
    _fs("JFS", b"JFS1", 0x8000),
    _fs("ReiserFS", b"ReIsErFs", 0x10034),
    _fs("ReiserFS", b"ReIsEr2Fs", 0x10034),
    _fs("ReiserFS", b"ReIsEr3Fs", 0x10034),
    _fs("Reiser4", b"ReIsEr4", 0x10000),
    _fs("GFS2", b"\x01\x16\x19\x70\0\0\0\x01", 0x10000),
    _fs("OCFS2", b"OCFSV2", 0x400, 0x800, 0x1000, 0x2000),
    _fs("HFS+", b"H+\0\x04", 0x400),
    _fs("HFSX", b"HX\0\x05", 0x400),
    _fs("APFS", b"NXSB", 32),
    _fs("SquashFS", b"hsqs"),
    _fs("cramfs", b"\x45\x3d\xcd\x28"),
    _fs("romfs", b"-rom1fs-"),
    _fs("ISO 9660", b"CD001", 0x8001),
    _fs("UDF", b"NSR02", 0x8801, 0x9001),
    _fs("UDF", b"NSR03", 0x8801, 0x9001),
    _fs("VMFS", b"\x5e\xf1\xab\x2f", 0x200000),
    _volume("VMFS volume member", b"\x0d\xd0\x01\xc0", 0x100000),
    _volume("LVM2 physical volume", b"LABELONE", 0, 512, 1024, 1536),
    _volume("Linux MD RAID 1.1", _MD, 0),
    _volume("Linux MD RAID 1.2", _MD, 4096),
    _volume("Intel RAID", b"Intel Raid ISM Cfg Sig. ", -1024),
    _volume("DDF RAID", b"\xde\x11\xde\x11", -512),
    _volume("LUKS", b"LUKS\xba\xbe"),
    _volume("LUKS2 (second header)", b"SKUL\xba\xbe", 0x4000, 0x8000, 0x10000, 0x20000),
    _volume("BitLocker", b"-FVE-FS-", 3),
    _volume("bcache", _BCACHE, 0x1018),
    _volume("dm-verity", b"verity\0\0"),
    _volume("dm-integrity", b"integrt\0"),
    _volume("VDO", b"dmvdo001"),
    _volume("Stratis", b"!Stra0tis\x86\xff\x02^\x41rh", 0x204),
    _volume("DRBD", b"\x83\x74\x02\x6b", -4096 + 60),
    _volume("DRBD", b"\x86\x74\x02\x6b", -4096 + 60),
    _volume("Oracle ASM", b"ORCLDISK", 32),
    _volume("Ceph BlueStore", b"bluestore block device\n"),
    _volume("swap", b"SWAPSPACE2", *_SWAP_AT),
    _volume("swap", b"SWAP-SPACE", *_SWAP_AT),
    Signature("SPDK blobstore", "store", b"SPDKBLOB", (0,)),
    Signature("aiougds chunk store", "store", b"UGDSTORE", (0,)),
    _file("SQLite database", b"SQLite format 3\0"),
    _file("ELF program", b"\x7fELF"),
    _file("zip archive", b"PK\x03\x04"),
    _file("tar archive", b"ustar", 257),
    _file("gzip archive", b"\x1f\x8b\x08"),
    _file("zstd archive", b"\x28\xb5\x2f\xfd"),
    _file("GGUF model", b"GGUF"),
    _file("HDF5 file", b"\x89HDF\r\n\x1a\n"),
    _file("Parquet file", b"PAR1"),
    _file("NumPy array", b"\x93NUMPY"),
    _file("PDF document", b"%PDF-"),
    _file("qcow2 disk image", b"QFI\xfb"),
)


def find(head: bytes, tail: bytes, size: int) -> list[Found]:
    """Return what the first and the last bytes of a namespace tell.

    ``head`` begins at byte 0, ``tail`` ends at byte ``size``; they may overlap.
    """
    found: list[Found] = []

    def at(offset: int, length: int) -> bytes:
        if offset < 0 or offset + length > size:
            return b""
        if offset + length <= len(head):
            return head[offset : offset + length]
        start = offset - (size - len(tail))
        return tail[start : start + length] if start >= 0 else b""

    for name, kind, magic, offsets in SIGNATURES:
        for offset in offsets:
            place = offset if offset >= 0 else size + offset
            if at(place, len(magic)) == magic:
                found.append(Found(name, kind, place))
    found += [
        Found("Linux MD RAID 0.90/1.0", "volume", place)
        for place in _md_at_the_end(size)
        if at(place, len(_MD)) == _MD
    ]
    found += _zfs(head, 0)
    found += _zfs(tail, size - len(tail))
    if _safetensors(head):
        found.append(Found("safetensors model", "file", 8))
    boot = at(0, 512)
    if boot[510:] == b"\x55\xaa" and not any(f.kind == "filesystem" for f in found):
        found.append(Found("MBR or boot sector", "partition table", 510))
    return sorted(dict.fromkeys(found), key=lambda item: item.offset)


def _md_at_the_end(size: int) -> tuple[int, int]:
    """Where MD 0.90 (last whole 64 KiB but one) and 1.0 (near the last 8 KiB) lie."""
    return (size // (64 * KIB) - 1) * 64 * KIB, (size - 8 * KIB) // (4 * KIB) * 4 * KIB


def _zfs(area: bytes, base: int) -> list[Found]:
    """Look for uberblocks: the second half of each 256 KiB label, 1 KiB or more each.

    Labels are aligned to 256 KiB from the start, and from the end rounded down.
    """
    magics = (b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c")
    first = -base % KIB
    for place in range(first, max(first, len(area) - 7), KIB):
        if area[place : place + 8] in magics:
            return [Found("ZFS", "filesystem", base + place)]
    return []


def _safetensors(head: bytes) -> bool:
    """A length of 8 bytes, and JSON that begins right after it."""
    return len(head) > 10 and head[6:8] == b"\0\0" and head[8:10] == b'{"'
