"""Every byte of every kind of transfer, checked by a kernel on a real GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from gpu.kernels import WORD, Kernels, pattern_words
from gpu.on_stream import buffer, ended, obj
from gpu.rig import GPU
from helpers.world import MIB, World

pytestmark = [pytest.mark.gpu, pytest.mark.few]

SIZE = 64 * MIB
EMU = {"size": SIZE, "lba": 512}


@pytest.fixture
def kernels(gpu: GPU) -> Iterator[Kernels]:
    assert gpu.name == "cuda"
    made = Kernels()
    yield made
    made.close()


def test_the_kernels_know_the_pattern(gpu: GPU, kernels: Kernels) -> None:
    """And what is wrong with it."""
    ptr = gpu.alloc(MIB)
    for offset in (0, 512, 3 << 30):
        kernels.make(ptr, offset, MIB)
        expected = pattern_words(offset // WORD, MIB // WORD).tobytes()
        assert gpu.get(ptr, MIB) == expected
        kernels.check(ptr, offset, MIB)
        assert kernels.wrong() == 0
        gpu.put(ptr + 4096, bytes(8))
        kernels.check(ptr, offset, MIB)
        assert kernels.wrong() == 2
        kernels.check(ptr, offset + 512, 4096)
        assert kernels.wrong() == 1024


async def test_every_byte(world: World, gpu: GPU, kernels: Kernels) -> None:
    """Reads and writes of many sizes, awaited, in batches, on streams, in sets."""
    rng = random.Random(7)
    stream = gpu.stream()
    async with world.open(emu=EMU) as ns, buffer(ns, gpu, 16 * MIB, "gpu") as buf:
        for offset in range(0, SIZE, 16 * MIB):
            kernels.make(buf.ptr, offset, 16 * MIB, stream)
            op = ns.write_on(obj(gpu, stream), buf.reg, offset=offset)
            assert await ended(world, op) == 16 * MIB
        for _ in range(60):
            nbytes = 512 * rng.choice((1, 8, 9, 64, 128, 129, 512, 2048, 2049, 8192))
            at = 512 * rng.randrange((16 * MIB - nbytes) // 512 + 1)
            offset = 512 * rng.randrange((SIZE - nbytes) // 512 + 1)
            part = buf[at : at + nbytes]
            kind = rng.randrange(4)
            if kind == 0:
                await ns.read(part, offset=offset)
                kernels.check(buf.ptr + at, offset, nbytes)
            elif kind == 1:
                op = ns.read_on(obj(gpu, stream), part, offset=offset)
                kernels.check(buf.ptr + at, offset, nbytes, stream)
                assert await ended(world, op) == nbytes
            elif kind == 2:
                with ns.on_stream(obj(gpu, stream)) as group:
                    for i in range(0, nbytes, 512 * 256):
                        size = min(nbytes - i, 512 * 256)
                        group.read(buf[at + i : at + i + size], offset=offset + i)
                kernels.check(buf.ptr + at, offset, nbytes, stream)
                assert await ended(world, group.operation) == nbytes
            else:
                kernels.make(buf.ptr + at, offset, nbytes, stream)
                await ns.write(part, offset=offset, stream=obj(gpu, stream))
                parts = [
                    (buf[at + i : at + i + 512], offset + i)
                    for i in range(0, nbytes, 512)
                ][:128]
                await ns.read_many(parts)
                kernels.check(buf.ptr + at, offset, len(parts) * 512)
            assert kernels.wrong() == 0, (kind, nbytes, at, offset)
