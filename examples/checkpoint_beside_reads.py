"""Write a checkpoint in the background class, beside reads that somebody waits for.

What it shows: classes (docs/concepts/scheduling.md). Small reads of the latency class
go on while 64 MiB are written; once as work like any other, once in the background.
The device is the embedded controller with a model of a slow one: it serves four
commands at a time, each 100 us and 2 us more for each KiB.

``python checkpoint_beside_reads.py``. You see the latencies of the reads alone, and
beside the checkpoint in both manners, and how long it took. In the background it may
take longer, so that the reads do not.
"""

from __future__ import annotations

import asyncio
import random
import sys

import aiougds

SLOW = "emu:?size=256MiB&latency=100us&latency_per_kib=2us&channels=4"
CHECKPOINT = 64 << 20
BLOCK = 4096


async def look_up(ns: aiougds.Namespace, done: asyncio.Event) -> None:
    """Read blocks, one after the other, as long as the checkpoint goes on."""
    rng = random.Random(1)
    async with ns.allocate(BLOCK) as reg:
        while not done.is_set():
            at = rng.randrange(CHECKPOINT, ns.size, BLOCK)
            await ns.read(reg, offset=at, io_class="latency")
            await asyncio.sleep(0)


async def checkpoint(
    ns: aiougds.Namespace, state: aiougds.Registration, io_class: aiougds.IoClass
) -> float:
    """Write it, and have it on the medium; return the seconds it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer = ns.using(io_class=io_class)
    await writer.write(state, offset=0)
    await writer.flush()
    await writer.aclose()
    return loop.time() - began


async def beside(io_class: aiougds.IoClass | None) -> None:
    """Read beside a checkpoint of that class, or for a while alone."""
    async with aiougds.open(SLOW) as ns, ns.allocate(CHECKPOINT) as state:
        state.view[:] = random.Random(2).randbytes(CHECKPOINT)
        done = asyncio.Event()
        took_s = 0.0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(look_up(ns, done))
            if io_class is None:
                await asyncio.sleep(0.2)
            else:
                took_s = await checkpoint(ns, state, io_class)
            done.set()
        seen = ns.controller.statistics().latency("read", io_class="latency")
        words = f"reads: {seen.percentile(50) * 1e6:.0f} us in the middle, "
        words += f"{seen.percentile(99) * 1e6:.0f} us at the 99th percentile"
        if io_class is None:
            print(f"alone, {words}")
            return
        print(f"beside a checkpoint ({io_class} class, {took_s:.2f} s), {words}")
        written = bytes(state.view)
        await ns.read(state, offset=0)
        if state.view != written:
            sys.exit("the checkpoint is not what was written")


async def main() -> None:
    await beside(None)
    await beside("normal")
    await beside("background")


if __name__ == "__main__":
    asyncio.run(main())
