"""Memory that stands for a GPU's: see ``kmod/peer/peer_ioctl.h``."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from vm.guest.node import Node

SYSTEM, STATIC, REVERSED, MISALIGNED, RESIDUE = 1, 2, 4, 8, 16
SHORT, FENCE, PIN_FAILS, MAP_FAILS, EMPTY = 32, 64, 128, 256, 512

BAR_INFO = struct.Struct("<QQIIIIII")
EXPORT = struct.Struct("<QQIiQ")
FD = struct.Struct("<iI")
NV_FREE = struct.Struct("<QQII")
NV_INFO = struct.Struct("<IIII")

PEERBAR, NVP2P = 0xAE, 0xAD
WRITES, READS = 1, 2  # what the caller does, as in _IOW and _IOR


def number(kind: int, nr: int, form: struct.Struct | None, direction: int) -> int:
    size = form.size if form else 0
    return direction << 30 | size << 16 | kind << 8 | nr


def call(
    fd: int, kind: int, nr: int, form: struct.Struct, way: int, *values: int
) -> tuple[int, ...]:
    arg = bytearray(form.pack(*values))
    fcntl.ioctl(fd, number(kind, nr, form, way), arg)
    return form.unpack(arg)


@dataclass(frozen=True, slots=True)
class BarInfo:
    """What a BAR has exported, and what importers have done with that."""

    nbytes: int
    device_va: int
    exports: int
    attachments: int
    maps: int
    pins: int
    pins_ever: int
    revoked_ever: int

    @property
    def idle(self) -> bool:
        return not (self.attachments or self.maps or self.pins)


class Peer(Node):
    """``/dev/peerbarN``: one BAR."""

    __slots__ = ("nbytes", "va")

    def __init__(self, index: int = 0) -> None:
        super().__init__(f"/dev/peerbar{index}")
        info = self.info()
        self.nbytes, self.va = info.nbytes, info.device_va

    def info(self) -> BarInfo:
        return BarInfo(*call(self.fd, PEERBAR, 0, BAR_INFO, READS, *[0] * 8))

    def export(self, offset: int, nbytes: int, how: int = 0, piece: int = 0) -> int:
        """Return a dma-buf of a range of the BAR, as ``how`` says."""
        values = (offset, nbytes, how, -1, piece)
        return call(self.fd, PEERBAR, 1, EXPORT, READS | WRITES, *values)[3]

    @contextmanager
    def exported(
        self, offset: int, nbytes: int, how: int = 0, piece: int = 0
    ) -> Generator[int]:
        fd = self.export(offset, nbytes, how, piece)
        try:
            yield fd
        finally:
            os.close(fd)

    def revoke(self, fd: int, *, gone: bool = False) -> None:
        """Take the memory of a dma-buf away; importers have stopped when it returns."""
        call(self.fd, PEERBAR, 2, FD, WRITES, fd, gone)

    def signal(self, fd: int) -> None:
        """Let the fence of a dma-buf signal."""
        call(self.fd, PEERBAR, 3, FD, WRITES, fd, 0)

    def gone(self) -> None:
        """Do to all exports what the removal of the device does."""
        fcntl.ioctl(self.fd, number(PEERBAR, 4, None, 0))

    def memory(self, offset: int, nbytes: int) -> mmap.mmap:
        """Return the far side of a range of the BAR."""
        return mmap.mmap(self.fd, nbytes, offset=offset)


@dataclass(frozen=True, slots=True)
class NvInfo:
    """What the stand-in of NVIDIA's driver has given away."""

    tables: int
    persistent: int
    mappings: int
    callbacks_ever: int


class Nvp2p(Node):
    """``/dev/nvp2p``: the stand-in of NVIDIA's driver, which must be loaded."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("/dev/nvp2p")

    def info(self) -> NvInfo:
        return NvInfo(*call(self.fd, NVP2P, 0, NV_INFO, READS, *[0] * 4))

    def free(self, va: int, nbytes: int) -> int:
        """Free device memory, as ``cudaFree``; returns how many were called back."""
        return call(self.fd, NVP2P, 1, NV_FREE, READS | WRITES, va, nbytes, 0, 0)[2]


@contextmanager
def udmabuf(nbytes: int) -> Generator[tuple[int, mmap.mmap]]:
    """Give a dma-buf of system memory, and that memory."""
    memory = os.memfd_create("udmabuf", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, nbytes)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    maker = os.open("/dev/udmabuf", os.O_RDWR | os.O_CLOEXEC)
    # The 1 closes it on exec.
    request = bytearray(struct.pack("<IIQQ", memory, 1, 0, nbytes))
    fd = fcntl.ioctl(maker, 0x40187542, request)
    os.close(maker)
    try:
        with mmap.mmap(memory, nbytes) as seen:
            yield fd, seen
    finally:
        os.close(fd)
        os.close(memory)
