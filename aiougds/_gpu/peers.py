"""cuFile and KvikIO: the peers that read into GPU memory.

cuFile wants a udev database to tell it of the filesystem (5027 without), and hangs
where ``/proc/modules`` does not exist. Whether either goes through nvidia-fs, or is in
compatibility mode, their own configuration and the machine decide.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path
from typing import Any, Final

NVIDIA_FS: Final = Path("/proc/driver/nvidia-fs")


def way() -> str:
    """Say how they can read here."""
    if NVIDIA_FS.exists():
        return "nvidia-fs is loaded"
    return "compatibility mode, as nvidia-fs is not loaded"


class Cufile:
    """cuFile's blocking and stream-ordered reads, through cuda.bindings."""

    def __init__(self, path: Path) -> None:
        if not Path("/proc/modules").exists():
            raise RuntimeError("cuFileDriverOpen hangs without /proc/modules")
        self._cufile: Any = importlib.import_module("cuda.bindings.cufile")
        self._cufile.driver_open()
        self._fd = os.open(path, os.O_RDONLY)
        descr = self._cufile.Descr()
        descr.type = self._cufile.FileHandleType.OPAQUE_FD
        descr.handle.fd = self._fd
        descr.fs_ops = 0
        self._handle = self._cufile.handle_register(descr.ptr)

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
        """Read into GPU memory, and return when it is there."""
        if self._cufile.read(self._handle, ptr, nbytes, offset, 0) != nbytes:
            raise RuntimeError("cuFile read too little")

    def read_async(self, stream: int, ptr: int, nbytes: int, offset: int) -> object:
        """cuFileReadAsync; what it points to lives as long as what is returned."""
        kept = (
            ctypes.c_size_t(nbytes),
            ctypes.c_long(offset),
            ctypes.c_long(0),
            ctypes.c_ssize_t(0),
        )
        where = [ctypes.addressof(value) for value in kept]
        self._cufile.read_async(self._handle, ptr, *where, stream)
        return kept

    def close(self) -> None:
        """Give the handle and the driver back."""
        self._cufile.handle_deregister(self._handle)
        os.close(self._fd)
        self._cufile.driver_close()


class Kvikio:
    """KvikIO's blocking read."""

    def __init__(self, path: Path) -> None:
        self._cupy: Any = importlib.import_module("cupy")
        kvikio: Any = importlib.import_module("kvikio")
        self._file: Any = kvikio.CuFile(path, "r")

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
        """Read into GPU memory, and return when it is there."""
        memory = self._cupy.cuda.UnownedMemory(ptr, nbytes, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        array = self._cupy.ndarray((nbytes,), "u1", pointer)
        if self._file.read(array, nbytes, offset) != nbytes:
            raise RuntimeError("KvikIO read too little")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
