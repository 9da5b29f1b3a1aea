"""The kernel helper's calls, without the engine: for checks of the helper itself."""

from __future__ import annotations

import ctypes
import fcntl
import struct
from dataclasses import dataclass

from vm.guest.node import Node

IOC = 0xAF << 8
INFO, MAP, EXTENTS, UNMAP, STATE, RESET = (IOC | n for n in (0, 1, 2, 3, 7, 8))

READ, WRITE, CONTIG, REQUIRE_PEER = 1, 2, 4, 8
SYSTEM, PERSISTENT, REVOCABLE = 1, 2, 4
HOST, DMABUF, CUDA = 0, 1, 2
DMA, REVOKED, REMOVED = 1, 2, 4
STOP_DMA, START_DMA, DISABLE, FUNCTION = 0, 1, 2, 3
CAP_DMABUF, CAP_CUDA, CAP_CUDA_PERSISTENT = 1 << 1, 1 << 3, 1 << 4
CAP_IOMMU = 1 << 6

INFO_FORM = struct.Struct("<IIHHIQQQIIIIIiIHHHHIQ")
MAP_FORM = struct.Struct("<IIIiQQQQIIQII")
EXTENTS_FORM = struct.Struct("<IIQIIQ")
UNMAP_FORM = struct.Struct("<IIQ")
STATE_FORM = struct.Struct("<IIiIIIQ")
RESET_FORM = struct.Struct("<IIII")

Extent = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mapping:
    """What MAP answered, with all extents as (bus address, bytes)."""

    token: int
    extents: tuple[Extent, ...]
    first_off: int
    page_size: int
    flags: int

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.extents)


@dataclass(frozen=True, slots=True)
class State:
    """What STATE answered."""

    state: int
    mappings: int
    revoked: int


class Drv(Node):
    """One open ``/dev/ugds_drvN``."""

    __slots__ = ()

    def __init__(self, path: str = "/dev/ugds_drv0") -> None:
        super().__init__(path)

    def call(self, number: int, form: struct.Struct, *values: int) -> tuple[int, ...]:
        """Make a call; ``argsz`` goes in front. Returns the structure after it."""
        arg = bytearray(form.pack(form.size, *values))
        fcntl.ioctl(self.fd, number, arg)
        return form.unpack(arg)

    def caps(self) -> int:
        return self.call(INFO, INFO_FORM, *[0] * 20)[5]

    def map(
        self,
        kind: int,
        nbytes: int,
        *,
        fd: int = -1,
        vaddr: int = 0,
        offset: int = 0,
        flags: int = READ | WRITE,
        room: int = 4096,
    ) -> Mapping:
        """Map memory; ``room``: how many extents MAP itself may return."""
        pieces = (ctypes.c_uint64 * (2 * max(room, 1)))()
        address = ctypes.addressof(pieces)
        back = self.call(
            MAP,
            MAP_FORM,
            *(flags, kind, fd, vaddr, offset, nbytes, address, room, 0, 0, 0, 0),
        )
        total, ret_flags, token, first_off, page_size = back[8:]
        listed = pairs(pieces, min(total, room))
        if total > room:
            listed += self.extents(token, room, total - room)
        return Mapping(token, tuple(listed), first_off, page_size, ret_flags)

    def map_dmabuf(self, fd: int, nbytes: int, offset: int = 0, **more: int) -> Mapping:
        return self.map(DMABUF, nbytes, fd=fd, offset=offset, **more)

    def map_cuda(self, vaddr: int, nbytes: int, **more: int) -> Mapping:
        return self.map(CUDA, nbytes, vaddr=vaddr, **more)

    def extents(self, token: int, first: int, count: int) -> list[Extent]:
        pieces = (ctypes.c_uint64 * (2 * max(count, 1)))()
        address = ctypes.addressof(pieces)
        back = self.call(EXTENTS, EXTENTS_FORM, 0, token, first, count, address)
        return pairs(pieces, back[4])

    def unmap(self, token: int) -> None:
        self.call(UNMAP, UNMAP_FORM, 0, token)

    def state(self, event_fd: int = -1) -> State:
        back = self.call(STATE, STATE_FORM, 0, event_fd, 0, 0, 0, 0)
        return State(*back[3:6])

    def reset(self, how: int) -> None:
        self.call(RESET, RESET_FORM, 0, how, 0)


def pairs(values: ctypes.Array[ctypes.c_uint64], count: int) -> list[Extent]:
    return [(values[2 * i], values[2 * i + 1]) for i in range(count)]
