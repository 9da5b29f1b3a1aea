"""Keep a fixed number of reads in flight with a reusable batch.

Submit, harvest some, submit as many again: one doorbell and one wait each time, and
results in the order in which the device ends them. A cookie says which is which.
"""

from __future__ import annotations

import asyncio
import random

import aiougds

BLOCK = 4096
WINDOW = 64
READS = 2000


async def main() -> None:
    async with (
        aiougds.open("emu:?size=64MiB") as ns,
        ns.allocate(WINDOW * BLOCK) as reg,
        ns.batch(capacity=WINDOW) as batch,
    ):
        blocks = ns.size // BLOCK
        await ns.write_zeroes(offset=0, nbytes=ns.size)
        todo = iter(random.Random(1).choices(range(blocks), k=READS))
        free = list(range(WINDOW))  # places in memory
        done = 0
        while done < READS:
            while free and (block := next(todo, None)) is not None:
                slot = free.pop()
                part = reg[slot * BLOCK : (slot + 1) * BLOCK]
                batch.read(part, offset=block * BLOCK, cookie=slot)
            batch.submit()
            for item in await batch.harvest(min=1):
                if item.error is not None:
                    raise item.error
                free.append(int(str(item.cookie)))
                done += 1
        stats = ns.controller.statistics()
        print(f"{done} reads with {stats.doorbells} doorbells")


if __name__ == "__main__":
    asyncio.run(main())
