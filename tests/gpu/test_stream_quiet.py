"""Small reads that are over before their stream is told to wait: who finds out."""

from __future__ import annotations

import sys

import pytest
from gpu.on_stream import SMALL, buffer, obj, until
from gpu.rig import GPU
from gpu.vendors import done
from helpers.model import PAGE
from helpers.world import World

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]


def synchronize(gpu: GPU, stream: int) -> None:
    if gpu.name == "cuda":
        from cuda.bindings import driver

        done(driver.cuStreamSynchronize(stream))
    else:
        from hip import hip

        done(hip.hipStreamSynchronize(stream))


async def test_their_memory_is_free_when_the_stream_is_through(
    world: World, gpu: GPU
) -> None:
    """Nobody awaited them, and no loop had its turn."""
    handle = gpu.stream()
    stream = obj(gpu, handle)
    async with world.open(emu=SMALL) as ns:
        for _ in range(20):
            async with buffer(ns, gpu, PAGE, "gpu") as buf:
                await ns.write(b"\x5a" * PAGE, offset=0)
                for _ in range(3):
                    ns.read_on(stream, buf.reg, offset=0)
                    synchronize(gpu, handle)
                assert buf.get() == b"\x5a" * PAGE


@pytest.mark.parametrize("count", [1, 2, 5, 100])
async def test_what_they_used_is_let_go_of(world: World, gpu: GPU, count: int) -> None:
    """Also when nothing more is put on the stream."""
    stream = obj(gpu, gpu.stream())
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        before = sys.getrefcount(buf.reg)
        for _ in range(count):
            ns.read_on(stream, buf.reg, offset=0)
        if world.loop == "blocking":  # there is no loop to be told: with the next one
            assert ns.read_on(stream, buf.reg, offset=0).wait() == PAGE
        await until(world, lambda: sys.getrefcount(buf.reg) == before)


async def test_awaited_and_looked_at(world: World, gpu: GPU) -> None:
    handle = gpu.stream()
    stream = obj(gpu, handle)
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        for at in range(50):
            data = bytes([at]) * PAGE
            await ns.write(data, offset=at * PAGE)
            op = ns.read_on(stream, buf.reg, offset=at * PAGE)
            if at % 3 == 0:
                synchronize(gpu, handle)
            if at % 3 < 2:
                await until(world, lambda op=op: op.state == "done")
            moved = op.wait() if world.loop == "blocking" else await op
            assert moved == PAGE
            assert buf.get() == data
            await until(world, op.event.query)  # behind the word that ends it
