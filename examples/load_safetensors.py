"""Load a safetensors file into numpy arrays, through an NVMe controller.

What it shows: any file is a namespace, opened read-only. Tensors begin and end anywhere
in it, and so need ``edges="bounce"``: whole blocks go straight into the array, the two
edges through a small buffer. All are read at the same time, each by a task of its own.

``python load_safetensors.py FILE``. You see the tensors, and their bytes in all.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
import numpy.typing as npt

import aiougds

HEADER_LIMIT = 100 << 20
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies in the file, and what it is."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int


def parse(header: bytes, base: int) -> list[Entry]:
    """Read the JSON header; ``base`` is where the tensors begin in the file."""
    entries: list[Entry] = []
    for name, told in json.loads(header).items():
        if name == "__metadata__":
            continue
        if told["dtype"] not in DTYPES:
            raise ValueError(
                f"tensor {name!r} is of type {told['dtype']}, which numpy lacks; "
                f"known are {', '.join(DTYPES)}"
            )
        dtype = np.dtype(DTYPES[told["dtype"]])
        shape = tuple(told["shape"])
        begin, end = told["data_offsets"]
        expected = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if end - begin != expected:
            raise ValueError(
                f"tensor {name!r} of shape {shape} needs {expected} bytes, but the "
                f"header gives it {end - begin}"
            )
        entries.append(Entry(name, dtype, shape, base + begin))
    return entries


async def read_bytes(ns: aiougds.Namespace, offset: int, nbytes: int) -> bytes:
    buf = bytearray(nbytes)
    await ns.read(buf, offset=offset, edges="bounce")
    return bytes(buf)


async def load(path: str | Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return all tensors of a file, each read by a task of its own."""
    tensors: dict[str, npt.NDArray[np.generic]] = {}
    async with aiougds.open(f"emu:{path}?readonly=1", readonly=True) as ns:
        length = int.from_bytes(await read_bytes(ns, 0, 8), "little")
        if not 2 <= length <= min(HEADER_LIMIT, ns.size - 8):
            raise ValueError(f"{path} is no safetensors file: a header of {length} B")
        entries = parse(await read_bytes(ns, 8, length), 8 + length)

        async def fetch(entry: Entry) -> None:
            array = np.empty(entry.shape, entry.dtype)
            if array.nbytes:
                raw = array.reshape(-1).view(np.uint8)
                async with ns.register(raw) as reg:
                    await ns.read(reg, offset=entry.offset, edges="bounce")
            tensors[entry.name] = array

        async with anyio.create_task_group() as tasks:
            for entry in entries:
                tasks.start_soon(fetch, entry)
    return {entry.name: tensors[entry.name] for entry in entries}


async def main(path: str) -> None:
    tensors = await load(path)
    for name, array in tensors.items():
        print(f"{name}: {array.dtype} {list(array.shape)}")
    print(f"{len(tensors)} tensors, {sum(a.nbytes for a in tensors.values())} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: load_safetensors.py FILE")
    anyio.run(main, sys.argv[1])
