"""Registered memory as an array of other libraries, without a copy."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from aiougds import _dlpack
from aiougds._device_memory import DeviceMemory
from aiougds._ffi import ffi, lib
from aiougds._gpu_memory import GPUMemory

if TYPE_CHECKING:
    from aiougds._buffer import Memory

_DLPACK_DEVICES = {
    lib.UGDS_GPU_CUDA: _dlpack.CUDA,
    lib.UGDS_GPU_HIP: _dlpack.ROCM,
}


class Lent:
    """What other libraries see of registered memory: bytes, one after another."""

    __slots__ = ("_lent",)

    _lent: object
    """Keeps the memory of a GPU while this object lives: others hold on to it."""

    @property
    def memory(self) -> Memory:
        """Where it is."""
        raise NotImplementedError

    @property
    def ptr(self) -> int:
        """The address of its first byte, as the host or its GPU knows it.

        MemoryLayoutError for a dma-buf, which has none.
        """
        memory = self.memory
        if isinstance(memory, DeviceMemory) and not memory.found_by_address:
            raise memory.no_view("ptr")
        return memory.ptr

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy; read-only where the memory is.

        MemoryLayoutError for memory that the host cannot address (of a GPU, a dma-buf).
        """
        memory = self.memory
        if isinstance(memory, DeviceMemory):
            raise memory.no_view("view")
        if isinstance(memory.owner, mmap.mmap):
            return memoryview(memory.owner)
        owner = memory.owner
        # The pointer, and so the view, holds the owner: it may outlive this object.
        pointer = ffi.gc(ffi.cast("char *", memory.ptr), lambda _pointer: owner)
        view = memoryview(ffi.buffer(pointer, memory.nbytes)).cast("B")
        return view.toreadonly() if memory.readonly else view

    def __buffer__(self, flags: int, /) -> memoryview:
        return self.view

    @property
    def __array_interface__(self) -> dict[str, object]:
        """The bytes as a numpy array: ``numpy.asarray(reg)``."""
        memory = self.memory
        if isinstance(memory, DeviceMemory):
            raise memory.no_view("an array")
        return {**_bytes(memory), "version": 3}

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """The bytes as an array of CuPy, Numba or torch: ``cupy.asarray(reg)``.

        AttributeError, as if it were not there, for memory that is no GPU's.
        """
        memory = self.memory
        if not isinstance(memory, GPUMemory):
            raise AttributeError("__cuda_array_interface__: it is not memory of a GPU")
        self._lent = memory.owner
        # No stream: what has been awaited is there.
        return {**_bytes(memory), "version": 3, "strides": None, "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where DLPack finds it."""
        memory = self.memory
        if isinstance(memory, GPUMemory):
            first = memory.found[0]
            return _DLPACK_DEVICES[first.vendor], first.device
        if isinstance(memory, DeviceMemory):
            raise memory.no_view("DLPack")
        return _dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return the bytes as DLPack: ``torch.from_dlpack(reg)``.

        They live as long as what is made of them, also when this is closed. There is
        nothing for ``stream`` to wait for: what has been awaited is there.
        """
        memory = self.memory
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"it lies on device {device}, not on {dl_device}")
        if copy:
            raise BufferError("it is lent without a copy only")
        if memory.readonly or memory.target_refusal:
            raise BufferError("it is read-only; DLPack lends memory to be written to")
        return _dlpack.lend(memory.ptr, memory.nbytes, device, memory.owner)


def _bytes(memory: Memory) -> dict[str, object]:
    return {
        "shape": (memory.nbytes,),
        "typestr": "|u1",
        "data": (memory.ptr, memory.readonly),
    }
