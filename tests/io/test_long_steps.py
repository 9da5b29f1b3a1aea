"""A lone read of up to 256 KiB that needs no device is served on the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.model import numbered
from helpers.world import KIB, MIB, World

from aiougds.testing import counters

if TYPE_CHECKING:
    from pathlib import Path

    from aiougds import Namespace

READS = 48  # one of 16 is slept for, so that others could start theirs
TRIES = 30
SIZES = (64 * KIB, 128 * KIB, 256 * KIB)


async def stepped(ns: Namespace, size: int, image: bytes) -> int:
    """Read one after another; return how many were served on this thread."""
    before = counters(ns).stepped
    async with ns.allocate(size) as reg:
        for index in range(READS):
            offset = index % (MIB // size) * size
            reg.view[:] = bytes(size)
            assert await ns.read(reg, offset=offset) == size
            assert reg.view == image[offset : offset + size]
    return counters(ns).stepped - before


@pytest.mark.few
@pytest.mark.parametrize("place", ["file", "memory"])
async def test_lone_long_reads_are_served_here_where_waiting_is_learnt(
    world: World, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "image" if place == "file" else ""
    image = numbered(MIB // 4096, 4096)
    for size in SIZES:
        here = 0
        # where the device's thread is awake it may be quicker, and then that is learnt
        for _ in range(TRIES if world.step else 1):
            async with world.open(path, mode="adaptive", emu={"size": MIB}) as ns:
                await ns.write(bytearray(image), offset=0)
                here = await stepped(ns, size, image)
            assert here < READS
            if here:
                break
        assert bool(here) == world.step, size


@pytest.mark.few
async def test_long_reads_are_not_served_here_where_somebody_said_how_to_wait(
    world: World,
) -> None:
    image = numbered(MIB // 4096, 4096)
    for mode in ("inline", "interrupt", "poll"):
        async with world.open(mode=mode, emu={"size": MIB}) as ns:
            await ns.write(bytearray(image), offset=0)
            for size in SIZES:
                assert await stepped(ns, size, image) == 0
