"""Keep a fixed number of reads in flight, and use each as soon as it is there.

What it shows: a reusable batch. Submit, harvest what has ended, submit as many again:
one doorbell and one wait each time. Results come in the order in which the device ends
them, here a device whose reads take 50 to 250 us; a cookie says which is which.

``python batch_harvest.py``. You see how many reads took how many doorbells, and how
many of them came before one that was asked for earlier.
"""

from __future__ import annotations

import asyncio
import random
import sys

import aiougds

BLOCK = 4096
WINDOW = 64
READS = 2000


async def main() -> None:
    async with (
        aiougds.open("emu:?size=64MiB&latency=50us&jitter=200us") as ns,
        ns.allocate(WINDOW * BLOCK) as reg,
        ns.batch(capacity=WINDOW) as batch,
    ):
        blocks = ns.size // BLOCK
        async with ns.allocate(ns.size) as content:  # each block begins with its number
            for block in range(blocks):
                content.view[block * BLOCK :][:8] = block.to_bytes(8, "little")
            await ns.write(content, offset=0)
        todo = enumerate(random.Random(1).choices(range(blocks), k=READS))
        free = list(range(WINDOW))  # places in memory
        asked: dict[object, tuple[int, int, int]] = {}
        done = overtaken = latest = 0
        while done < READS:
            while free and (item := next(todo, None)) is not None:
                number, block = item
                slot = free.pop()
                part = reg[slot * BLOCK : (slot + 1) * BLOCK]
                batch.read(part, offset=block * BLOCK, cookie=number)
                asked[number] = number, block, slot
            batch.submit()
            for ended in await batch.harvest(min=1):
                if ended.error is not None:
                    raise ended.error
                number, block, slot = asked.pop(ended.cookie)
                if int.from_bytes(reg.view[slot * BLOCK :][:8], "little") != block:
                    sys.exit(f"block {block} is another one")
                overtaken += number < latest
                latest = max(number, latest)
                free.append(slot)
                done += 1
        stats = ns.controller.statistics()
        print(f"{done} reads with {stats.doorbells} doorbells; {overtaken} overtaken")


if __name__ == "__main__":
    asyncio.run(main())
