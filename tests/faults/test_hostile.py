"""A hostile controller: registers, pages and completions are fuzzed by a seed.

It moves data honestly, so that what claims success can be checked. Whatever else it
says: each operation ends once, with its bytes or a typed error; nothing hangs or
crashes; everything can be closed.
"""

from __future__ import annotations

import contextlib
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from helpers.world import Opened, World, emu_address

from aiougds import BatchError, OpenKeywords, UGDSError
from aiougds.testing import counters

BLOCK: Final = 4096
BLOCKS: Final = 32
PATIENCE_S: Final = 30.0
RATES: Final = (12, 40, 150, 600)

Call = Callable[[], Awaitable[object]]


class Model:
    """What each block may hold: the last write that succeeded, and those after it.

    And those given up before it that are still at the device: they may be done late.
    """

    def __init__(self) -> None:
        self.may: defaultdict[int, list[int]] = defaultdict(lambda: [0])
        self.stamp = 0
        self.ends = {"ok": 0, "failed": 0}

    def bytes_of(self, block: int, stamp: int) -> bytes:
        one = stamp.to_bytes(4, "little") + (block if stamp else 0).to_bytes(
            4, "little"
        )
        return one * (BLOCK // 8)

    def check(self, block: int, seen: bytes) -> None:
        stamp = int.from_bytes(seen[:4], "little")
        assert stamp in self.may[block], f"block {block}: not what was written"
        assert seen == self.bytes_of(block, stamp), f"block {block}: torn"

    async def read(self, ns: Opened, part: Opened, block: int) -> None:
        part.view[:] = b"\xa5" * BLOCK
        try:
            assert await ns.read(part, offset=block * BLOCK) == BLOCK
        except UGDSError:
            self.ends["failed"] += 1
        else:
            self.ends["ok"] += 1
            self.check(block, bytes(part.view))

    async def write(self, ns: Opened, part: Opened, block: int) -> None:
        self.stamp += 1
        stamp = self.stamp
        part.view[:] = self.bytes_of(block, stamp)
        alone = not ns.controller.quarantine
        try:
            assert await ns.write(part, offset=block * BLOCK) == BLOCK
        except UGDSError:
            self.ends["failed"] += 1
            self.may[block].append(stamp)
        else:
            self.ends["ok"] += 1
            self.may[block] = [stamp] if alone else [*self.may[block], stamp]

    async def read_many(self, ns: Opened, reg: Opened, blocks: list[int]) -> None:
        parts = [reg[b * BLOCK : (b + 1) * BLOCK] for b in blocks]
        for part in parts:
            part.view[:] = b"\xa5" * BLOCK
        pairs = [(p, b * BLOCK) for p, b in zip(parts, blocks, strict=True)]
        try:
            results: list[object] = list(await ns.read_many(pairs))
        except BatchError as error:
            results = list(error.results)
        except UGDSError:
            self.ends["failed"] += 1
            return
        assert len(results) == len(blocks)
        for block, part, result in zip(blocks, parts, results, strict=True):
            if isinstance(result, UGDSError):
                self.ends["failed"] += 1
                continue
            assert result == BLOCK
            self.ends["ok"] += 1
            self.check(block, bytes(part.view))


async def trial(world: World, seed: int) -> dict[str, int]:
    """Open, use, reset and close one; return how operations ended."""
    rng = random.Random(seed)
    model = Model()
    query = {
        "size": BLOCKS * BLOCK,
        "hostile": f"{seed}:{RATES[seed % 4]}",
        "to": 1,
        "shadow": int(seed % 3 == 0),
    }
    keywords: OpenKeywords = {
        "mode": world.mode,
        "queues": 1 + seed % 3,
        "depth": (4, 64)[seed // 4 % 2],
        "retries": seed % 2 * 2,
        "hang_timeout_s": 0.04,
        "admin_timeout_s": 0.08,
        "cancel_grace_s": 0.01,
    }
    try:
        opened = world.opening(emu_address(step=int(world.step), **query), **keywords)
        ns = await opened.__aenter__()
    except UGDSError:
        return model.ends
    reg = None
    try:
        with contextlib.suppress(UGDSError):  # pages so large that memory has none
            reg = ns.allocate(2 * BLOCKS * BLOCK)
        if reg is not None:
            await use(world, ns, reg, model, rng)
    finally:
        assert counters(ns).iommu_faults == 0
        with contextlib.suppress(UGDSError):
            await ns.controller.aclose(timeout_s=0.2)
        await ns.controller.aclose(timeout_s=5, force=True)
        assert ns.controller.closed
        if reg is not None:
            await reg.aclose(timeout_s=0)
        await opened.__aexit__(None, None, None)
    return model.ends


async def use(
    world: World, ns: Opened, reg: Opened, model: Model, rng: random.Random
) -> None:
    for _ in range(8):
        if ns.controller.state == "wedged":
            with contextlib.suppress(UGDSError):
                await ns.controller.reset()
        if ns.controller.state != "live":
            continue
        # One operation at a time on a block, and memory of its own for each.
        blocks = rng.sample(range(BLOCKS), 8)
        calls: list[Call] = []
        for block in blocks:
            part = reg[(BLOCKS + block) * BLOCK : (BLOCKS + block + 1) * BLOCK]
            do = model.write if rng.random() < 0.4 else model.read
            calls.append(lambda do=do, part=part, b=block: do(ns, part, b))  # type: ignore[misc]
        await world.gather(*calls)
        await model.read_many(ns, reg, rng.sample(range(BLOCKS), 10))
    with contextlib.suppress(UGDSError):
        await ns.controller.smart_log()


async def trials(world: World, seeds: range) -> dict[str, int]:
    total = {"ok": 0, "failed": 0}
    for seed in seeds:
        start = time.monotonic()
        try:
            ends = await trial(world, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert time.monotonic() - start < PATIENCE_S, f"seed {seed} is slow"
        for key, count in ends.items():
            total[key] += count
    return total


@pytest.mark.few
@pytest.mark.timeout(120)
async def test_no_lie_breaks_anything(world: World) -> None:
    first = zlib.crc32(f"{world.loop} {world.mode} {world.step}".encode()) % 1000
    await trials(world, range(4 * first, 4 * first + 4))


@pytest.mark.long
@pytest.mark.core
@pytest.mark.timeout(600)
async def test_nor_do_many(world: World) -> None:
    total = await trials(world, range(24))
    assert total["ok"] > 24 * 20
    assert total["failed"] > 0
