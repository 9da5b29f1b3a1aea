"""Read from a namespace: all that it takes.

What it shows: opening, registering memory, reading.

``python five_line_read.py [ADDRESS]``; without one, a fresh namespace in memory. You
see the first bytes.
"""

from __future__ import annotations

import asyncio
import sys

import aiougds


async def main(address: str) -> None:
    async with aiougds.open(address) as ns, ns.register(bytearray(64 << 10)) as reg:
        n = await ns.read(reg, offset=0)
        print(f"{n} bytes, the first are {reg.view[:16].hex(' ')}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "emu:?size=1MiB"))
