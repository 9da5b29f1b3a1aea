"""Memory of devices, and dma-bufs: registered like host memory, but with no view."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, Literal

from aiougds._buffer import Memory
from aiougds._errors import (
    ArgumentTypeError,
    CapabilityError,
    ClosedError,
    MemoryLayoutError,
    RangeError,
)
from aiougds._ffi import ffi, lib

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._ffi import CData

Placement = Literal["host", "system", "device"]
"""Of memory: ``device`` is a GPU's, ``system`` a dma-buf that lies in host memory."""

MOST: Final = (1 << 64) - 1


class Descriptor:
    """A duplicate of a file descriptor, open until it is let go of.

    Another thread may be mapping with its number just then: it is closed behind that,
    so that the number means no other file meanwhile.
    """

    # No lock, which a fork could leave held in the child: each of these steps is one,
    # and of a user and the closer at least one sees the other.
    __slots__ = ("_number", "_over", "_users")

    def __init__(self, fd: int) -> None:
        self._number: list[int] = []  # none once it is closed
        self._users: list[None] = []
        self._over = False
        try:
            self._number.append(os.dup(fd))
        except OSError as exc:
            raise MemoryLayoutError(f"fd={fd} is no open descriptor: {exc}") from exc

    def __enter__(self) -> int:
        self._users.append(None)
        if self._over:
            self.__exit__()
            raise ClosedError("the registration is closed; register the memory again")
        return self._number[0]

    def __exit__(self, *_exc: object) -> None:
        self._users.pop()
        if self._over:
            self.close()

    def close(self) -> None:
        """Close it, now or when nobody maps with it any more."""
        self._over = True
        if not self._users:
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(IndexError):  # somebody else did
            os.close(self._number.pop())

    def __del__(self) -> None:
        self._close()


class DeviceMemory(Memory):
    """Memory that only a device, or the exporter of a dma-buf, can address."""

    __slots__ = ("_addr", "_fd", "_kind", "_offset", "_peer", "place")

    host = False
    found_by_address = False
    copyable = False

    def __init__(
        self,
        kind: int,
        nbytes: int,
        *,
        fd: Descriptor | None = None,
        addr: int = 0,
        offset: int = 0,
        peer: bool = False,
    ) -> None:
        # Of an address only its alignment is looked at.
        super().__init__(addr or offset, nbytes, fd)
        self._kind = kind
        self._fd = fd
        self._addr = addr
        self._offset = offset
        self._peer = peer
        # Of a GPU: vendor, device and context, for what has to be flushed there.
        self.place: tuple[int, int, int] = (0, 0, 0)

    @property
    def what(self) -> str:
        """Name it, for the sentences of errors."""
        if self._fd is None:
            return f"{self.nbytes} bytes of device memory at {self._addr:#x}"
        return f"{self.nbytes} bytes from byte {self._offset} on of a dma-buf"

    def map(self, device: Device, ret_handle: CData) -> tuple[int, int]:
        """Make it reachable for a controller; errno, and what became of it."""
        native = ffi.new("struct ugds_foreign *")
        native.kind = self._kind
        native.addr, native.offset = self._addr, self._offset
        native.nbytes = self.nbytes
        native.gpu_vendor, native.gpu_device, native.gpu_ctx = self.place
        native.flags = lib.UGDS_FOREIGN_PEER if self._peer else 0
        if self.readonly or self.target_refusal:
            native.flags |= lib.UGDS_FOREIGN_READONLY
        with self._fd or contextlib.nullcontext(-1) as native.fd:
            code = lib.ugds_map_foreign(device.ptr, native, ret_handle)
        return code, int(native.ret_traits)

    def export(self) -> tuple[int, int]:
        """Return a dma-buf's descriptor, and where in it the memory begins."""
        if self._fd is None:
            raise CapabilityError(
                f"{self.what} was registered by its address alone; register the object "
                "or (ptr, nbytes, device) with ns.register() to export it"
            )
        with self._fd as number:
            return os.dup(number), self._offset

    def let_go(self) -> None:
        """Close the descriptor: what is mapped needs it no more."""
        if self._fd is not None:
            self._fd.close()

    def no_view(self, what: str) -> MemoryLayoutError:
        """Return why something cannot be done with it."""
        return MemoryLayoutError(
            f"{what}: {self.what} cannot be addressed by the host; read and write it "
            "by slices of its registration, and look at it where it lies"
        )


def _size(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name}={value!r}: an integer is needed")
    if not 0 <= value <= MOST:
        raise RangeError(f"{name}={value!r} is outside 0 .. 2**64 - 1")
    return value


def dmabuf_memory(
    fd: int, offset: int, nbytes: int | None, *, require_peer: bool
) -> DeviceMemory:
    """Return a range of a dma-buf; None: up to its end."""
    at = _size(offset, "offset")
    length = None if nbytes is None else _size(nbytes, "nbytes")
    holder = Descriptor(_size(fd, "fd"))
    try:
        length = _length(holder, fd, at, length)
    except BaseException:
        holder.close()  # whoever keeps the exception keeps no descriptor
        raise
    return DeviceMemory(
        lib.UGDS_FOREIGN_DMABUF, length, fd=holder, offset=at, peer=require_peer
    )


def _length(holder: Descriptor, fd: int, at: int, length: int | None) -> int:
    """Return how many bytes are meant, or raise when they do not lie in it."""
    try:
        with holder as number:
            size = os.lseek(number, 0, os.SEEK_END)
    except OSError as exc:
        raise MemoryLayoutError(f"fd={fd} is no dma-buf: {exc}") from exc
    if length is None:
        length = size - at
    if length <= 0 or at + length > size:
        raise RangeError(
            f"{length} bytes from byte {at} on do not lie in the dma-buf of {size} "
            "bytes"
        )
    return length


def cuda_memory(pointer: int, nbytes: int) -> DeviceMemory:
    """Return CUDA device memory by its address."""
    addr, length = _size(pointer, "pointer"), _size(nbytes, "nbytes")
    if not addr or not length or addr + length > MOST:
        raise RangeError(f"({addr:#x}, {length}) is no range of device addresses")
    return DeviceMemory(lib.UGDS_FOREIGN_CUDA, length, addr=addr)


def placement(memory: Memory, traits: int) -> Placement:
    """Return where registered memory lies."""
    if memory.host:
        return "host"
    return "system" if traits & lib.UGDS_TRAIT_SYSTEM else "device"
