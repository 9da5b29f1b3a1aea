"""What the tests of the store share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helpers.world import KIB, MIB, Opened, Option, World

from aiougds import store

SLOT = 64 * KIB
LAYOUT = store.Layout(slot_bytes=SLOT, key_bytes=64)


def noise(seed: object, nbytes: int) -> bytes:
    """Return bytes that are the same for the same seed."""
    return random.Random(str(seed)).randbytes(nbytes)


async def put(chunks: store.ChunkStore, key: bytes, nbytes: int) -> bool:
    """Put a chunk whose bytes follow from its key."""
    return await chunks.put(key, noise(key, nbytes))


async def got(chunks: store.ChunkStore, key: bytes) -> bytes:
    """Get a chunk; what is behind it in the memory stays as it was."""
    into = bytearray(b"\xa5" * (SLOT + 17))
    n = await chunks.get(key, into)
    assert into[n:] == b"\xa5" * (len(into) - n)
    return bytes(into[:n])


async def holds(chunks: store.ChunkStore, key: bytes, nbytes: int) -> None:
    """Look that a chunk is what :func:`put` put."""
    assert chunks.contains(key)
    assert await got(chunks, key) == noise(key, nbytes)


@asynccontextmanager
async def opened(
    world: World, *, size: int = 4 * MIB, lba: int = 4096, **how: Option
) -> AsyncIterator[tuple[Opened, store.ChunkStore]]:
    """Make a store on one device in memory."""
    how.setdefault("create", LAYOUT)
    async with (
        world.open(emu={"size": size, "lba": lba}) as ns,
        store.open([ns], **how) as chunks,
    ):
        yield ns, chunks
