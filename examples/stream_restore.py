"""Restore chunks on a CUDA stream, right before the work that needs them.

What it shows: a set in a stream's order. The stream waits for all of the chunks, which
come in any order; what is queued behind, here a copy in the place of your kernel, sees
their bytes. The program queues everything at once and awaits only the end.

``python stream_restore.py``; needs a CUDA GPU and cuda-bindings. You see how the set
was when everything had been queued, and what it moved.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from cuda.bindings import driver

import aiougds

CHUNKS = 4
CHUNK_BYTES = 1 << 20
TOTAL = CHUNKS * CHUNK_BYTES


def done(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 (of many types)
    """Return what a call of the driver answers, once it succeeded."""
    code, *rest = answer
    if code:
        sys.exit(f"the driver answered {code.name}")
    return rest[0] if rest else None


async def restore(ns: aiougds.Namespace, stream: driver.CUstream) -> bytes:
    """Queue the set, the work behind it and the way back; await the last event."""
    result = bytearray(TOTAL)
    async with (
        ns.allocate(TOTAL, device="cuda:0") as chunks,
        ns.allocate(TOTAL, device="cuda:0") as made,
    ):
        with ns.on_stream(stream) as group:
            for i in range(CHUNKS):
                at = i * CHUNK_BYTES
                group.read(chunks[at : at + CHUNK_BYTES], offset=at)
        copied = driver.cuMemcpyDtoDAsync(made.ptr, chunks.ptr, TOTAL, stream)
        done(copied)  # it stands for your kernel
        stored = ns.write_on(stream, made, offset=TOTAL)
        print(f"queued: the set is {group.operation.state}")
        await stored
        print(f"the set moved {await group} bytes")
        await ns.read(result, offset=TOTAL)
    return bytes(result)


async def main() -> None:
    try:
        done(driver.cuInit(0))
    except RuntimeError as error:  # there is no driver
        sys.exit(f"this example needs a CUDA GPU: {error}")
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
    stream = done(driver.cuStreamCreate(1))
    data = os.urandom(TOTAL)
    async with aiougds.open(f"emu:?size={2 * TOTAL}") as ns:
        await ns.write(data, offset=0)
        made = await restore(ns, stream)
    done(driver.cuStreamDestroy(stream))
    if made != data:
        sys.exit("a byte is not what was stored")
    print("every byte went through the GPU")


if __name__ == "__main__":
    asyncio.run(main())
