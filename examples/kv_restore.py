"""Restore a KV cache in an anyio task group, and compute while the rest arrives.

Each layer is read by a task of its own. The model needs the layers in order, so it
waits for one event after the other: layer 0 is at work while layer 31 is still on its
way. Runs on asyncio and trio: ``python kv_restore.py [asyncio|trio]``.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b

import anyio

import aiougds

LAYERS = 32
LAYER_BYTES = 512 << 10


async def restore(ns: aiougds.Namespace, reg: aiougds.Registration) -> list[bytes]:
    """Read all layers; return what the model made of each."""
    here = [anyio.Event() for _ in range(LAYERS)]
    made: list[bytes] = []

    async def fetch(layer: int) -> None:
        start = layer * LAYER_BYTES
        part = reg[start : start + LAYER_BYTES]
        await ns.read(part, offset=start, timeout_s=10)
        here[layer].set()

    async def model() -> None:
        for layer in range(LAYERS):
            await here[layer].wait()
            start = layer * LAYER_BYTES
            made.append(blake2b(reg.view[start : start + LAYER_BYTES]).digest())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model)
        for layer in range(LAYERS):
            tasks.start_soon(fetch, layer)
    return made


async def main() -> None:
    size = LAYERS * LAYER_BYTES
    async with aiougds.open(f"emu:?size={size}") as ns, ns.allocate(size) as reg:
        cache = os.urandom(size)
        reg.view[:] = cache
        await ns.write(reg, offset=0)
        reg.view[:] = bytes(size)
        made = await restore(ns, reg)

    parts = (cache[i : i + LAYER_BYTES] for i in range(0, len(cache), LAYER_BYTES))
    if made != [blake2b(part).digest() for part in parts]:
        sys.exit("a layer is not what was stored")
    print(f"{LAYERS} layers restored and used in order")


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
