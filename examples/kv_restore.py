"""Restore a KV cache in an anyio task group, compute meanwhile, and give up safely.

What it shows: each layer is read by a task of its own, and the model, which needs them
in order, is at work on layer 0 while layer 31 is still on its way. A restore that takes
too long is cancelled as a whole, by anyio's own means: when its ``with`` ends, the
device has let go of the memory, so the next restore may use it at once.

``python kv_restore.py [asyncio|trio]``. You see the layers that came before a deadline
that was too short, that nothing is in flight after it, and then a whole restore.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b

import anyio

import aiougds

LAYERS = 32
LAYER_BYTES = 512 << 10


async def restore(
    ns: aiougds.Namespace, reg: aiougds.Registration, made: list[bytes]
) -> None:
    """Read all layers; append what the model makes of each."""
    here = [anyio.Event() for _ in range(LAYERS)]

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


async def main() -> None:
    size = LAYERS * LAYER_BYTES
    # A device that takes 20 ms for each of the four commands that it serves at a time.
    address = f"emu:?size={size}&latency=20ms&channels=4"
    async with aiougds.open(address) as ns, ns.allocate(size) as reg:
        cache = os.urandom(size)
        reg.view[:] = cache
        await ns.write(reg, offset=0)

        early: list[bytes] = []
        with anyio.move_on_after(0.05):
            await restore(ns, reg, early)
        print(f"given up after {len(early)} layers; in flight: {reg.inflight}")

        reg.view[:] = bytes(size)
        made: list[bytes] = []
        await restore(ns, reg, made)

    parts = (cache[i : i + LAYER_BYTES] for i in range(0, len(cache), LAYER_BYTES))
    if made != [blake2b(part).digest() for part in parts]:
        sys.exit("a layer is not what was stored")
    print(f"{LAYERS} layers restored and used in order")


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
