"""Bring a transport of your own, here to a controller that is 400 lines of C.

What it shows: ``lowlevel.add_transport``. The C library makes a ``struct
ugds_transport`` (``lowlevel.transport_header()`` is what it is compiled against); the
engine drives what is behind it as any other controller. Registers, mapping of memory,
interrupts: that is all that a transport is asked for.

``python ramdisk.py``; needs a C compiler. You see what the engine found out about the
controller, and that what was written came back.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import aiougds
from aiougds import lowlevel

SOURCE = Path(__file__).with_name("ramdisk.c")


def build(folder: Path) -> ctypes.CDLL:
    """Compile the library."""
    (folder / "ugds_transport.h").write_text(lowlevel.transport_header())
    library = folder / "ramdisk.so"
    how = ["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        ["cc", *how, f"-I{folder}", "-o", library, SOURCE, "-lpthread"], check=True
    )
    found = ctypes.CDLL(str(library))
    found.ramdisk_new.argtypes = (ctypes.c_uint64, ctypes.c_int)
    found.ramdisk_new.restype = ctypes.c_void_p
    return found


def add(library: ctypes.CDLL) -> None:
    """Have ``open`` know ``ramdisk:?mib=64``, and ``ramdisk:FILE``."""

    def make(address: lowlevel.Address) -> int:
        if not address.path:
            mib = int(address.options.get("mib", "64"))
            return library.ramdisk_new(mib << 20, -1) or 0
        fd = os.open(address.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return library.ramdisk_new(os.fstat(fd).st_size, fd) or 0
        finally:
            os.close(fd)

    lowlevel.add_transport("ramdisk:", make)


async def main() -> None:
    async with aiougds.open("ramdisk:?mib=16") as ns, ns.allocate(1 << 20) as reg:
        found = ns.controller.capabilities
        print(f"{ns.controller.info.model}, by transport {found.transport}")
        print(f"{ns.size >> 20} MiB, {found.queue_pairs} queue pairs")
        data = os.urandom(reg.nbytes)
        reg.view[:] = data
        await ns.write(reg, offset=4096)
        reg.view[:] = bytes(reg.nbytes)
        await ns.read(reg, offset=4096)
        if reg.view != data:
            sys.exit("a byte is not what was written")
        print("every byte came back")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        add(build(Path(name)))
        asyncio.run(main())
