"""cuFile and KvikIO, for the bars: both in compatibility mode, from the page cache.

cuFile wants a udev database to tell it of the filesystem (5027 without), and hangs
where /proc/modules does not exist. Opened with O_DIRECT, both would read the disk.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any, Final

COMPAT: Final = {
    "properties": {"allow_compat_mode": True, "force_compat_mode": True},
}


def prepare(folder: Path) -> None:
    """Ask for compatibility mode, before either is imported."""
    config = folder / "cufile.json"
    config.write_text(json.dumps(COMPAT))
    os.environ["CUFILE_ENV_PATH_JSON"] = str(config)
    os.environ["KVIKIO_COMPAT_MODE"] = "ON"
    disk = folder.stat().st_dev
    entry = Path(f"/run/udev/data/b{os.major(disk)}:{os.minor(disk)}")
    if os.geteuid() == 0 and not entry.parent.exists():
        entry.parent.mkdir(parents=True)
        entry.write_text("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n")


class Cufile:
    """cuFile's blocking and stream-ordered reads, through cuda.bindings."""

    name = "cuFile read (compat)"

    def __init__(self, path: Path) -> None:
        from cuda.bindings import cufile

        if not Path("/proc/modules").exists():
            raise RuntimeError("cuFileDriverOpen hangs without /proc/modules")
        self._cufile: Any = cufile
        cufile.driver_open()
        self._fd = os.open(path, os.O_RDONLY)
        descr = cufile.Descr()
        descr.type = cufile.FileHandleType.OPAQUE_FD
        descr.handle.fd = self._fd
        descr.fs_ops = 0
        self._handle = cufile.handle_register(descr.ptr)

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
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


class Kvikio:
    """KvikIO's blocking read."""

    name = "KvikIO read (compat)"

    def __init__(self, path: Path) -> None:
        import cupy
        import kvikio

        self._cupy: Any = cupy
        self._file: Any = kvikio.CuFile(path, "r")

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
        memory = self._cupy.cuda.UnownedMemory(ptr, nbytes, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        array = self._cupy.ndarray((nbytes,), "u1", pointer)
        if self._file.read(array, nbytes, offset) != nbytes:
            raise RuntimeError("KvikIO read too little")


def peers(path: Path) -> tuple[list[Cufile | Kvikio], dict[str, str]]:
    """Return the peers that can be had, and why others cannot."""
    found: list[Cufile | Kvikio] = []
    missing: dict[str, str] = {}
    for kind in (Cufile, Kvikio):
        try:
            found.append(kind(path))
        except Exception as exc:  # noqa: BLE001 (theirs, whatever it is)
            missing[kind.name] = f"{type(exc).__name__}: {exc}"
    return found, missing
