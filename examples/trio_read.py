"""The same calls on trio, and a cancel scope that leaves nothing behind.

What it shows: the device holds a read back. The scope's deadline is 50 ms, but the task
leaves it only when the device can touch the buffer no more: once the read has ended (as
here, where its result is kept), or after ``cancel_grace_s``, with the buffer in
quarantine.

``python trio_read.py``. You see that the deadline passed, and how long the read took.
"""

from __future__ import annotations

import trio

import aiougds
from aiougds import testing


async def main() -> None:
    async with aiougds.open("emu:?size=1MiB") as ns, ns.allocate(8192) as reg:
        reg.view[:4096] = b"\x5a" * 4096
        await ns.write(reg[:4096], offset=4096)
        await ns.read(reg[4096:], offset=4096)
        print("read back:", reg.view[4096:] == reg.view[:4096])

        async with trio.open_nursery() as nursery:
            held = testing.inject(ns, testing.Fault.hold("read"))

            async def let_go() -> None:
                await trio.sleep(0.2)
                held.clear()

            nursery.start_soon(let_go)
            began = trio.current_time()
            n = 0
            with trio.move_on_after(0.05) as scope:
                n = await ns.read(reg[:4096], offset=0)
            took_ms = 1e3 * (trio.current_time() - began)
        print(f"deadline passed: {scope.cancel_called}; in flight: {reg.inflight}")
        print(f"the read ended after {took_ms:.0f} ms with {n} bytes")


if __name__ == "__main__":
    trio.run(main)
