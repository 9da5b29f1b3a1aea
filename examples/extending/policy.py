"""Decide by yourself of which class an operation is, and how its end is awaited.

What it shows: a policy is any object with ``plan``, asked before each operation of a
handle. This one knows that the first MiB of the namespace is an index, which somebody
waits for, and that writes of more than a MiB are checkpoints, which nobody does; and it
sleeps for what is large, looks for what is small.

``python policy.py``. You see how many operations of each class there were.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import aiougds

MIB = 1 << 20


@dataclass(slots=True)
class ByPlace:
    """Index first, checkpoints last; the rest as usual."""

    index_bytes: int = MIB
    seen: Counter[str] = field(default_factory=Counter)

    def plan(self, intent: aiougds.Intent, /) -> aiougds.Plan:
        """Called on the loop, for each operation: it neither waits nor computes."""
        nbytes = intent.nbytes or 0
        io_class: aiougds.IoClass = "normal"
        if intent.offset is not None and intent.offset < self.index_bytes:
            io_class = "latency"
        elif intent.name.startswith("write") and nbytes > MIB:
            io_class = "background"
        self.seen[io_class] += 1
        mode: aiougds.Mode = "interrupt" if nbytes > MIB else "inline"
        return aiougds.Plan(mode=mode, io_class=io_class)


async def main() -> None:
    policy = ByPlace()
    async with (
        aiougds.open("emu:?size=64MiB", policy=policy) as ns,
        ns.allocate(16 * MIB) as reg,
    ):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ns.write(reg, offset=16 * MIB))  # a checkpoint
            for block in range(8):
                part = reg[block * 4096 : (block + 1) * 4096]
                tasks.create_task(ns.read(part, offset=block * 4096))  # the index
            tasks.create_task(ns.read(reg[MIB : 2 * MIB], offset=40 * MIB))
        counted = ns.controller.statistics()
        for name in sorted(policy.seen):
            commands = sum(r.commands for r in counted.latencies if r.io_class == name)
            print(f"{name}: {policy.seen[name]} operations, {commands} commands")


if __name__ == "__main__":
    asyncio.run(main())
