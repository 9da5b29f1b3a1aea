"""Chunks of several commands: in order, and each failing for itself."""

from __future__ import annotations

import pytest
from helpers.world import KIB, MIB, World
from store.tools import noise

from aiougds import MediaError, UGDSError
from aiougds import store as st
from aiougds.store._pieces import equal_pieces
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.tasks
MOST = 64 * KIB
COUNT = 6


@pytest.mark.once
@pytest.mark.parametrize(
    ("nbytes", "lba", "count"),
    [
        (4 * MIB, 4096, 64),
        (3 * MOST, 4096, 3),
        (MOST + 4096, 4096, 1),  # 17 blocks: no two halves
        (MOST + 2 * 4096, 4096, 2),
        (3 * MOST + 4 * 4096, 4096, 4),
        (3_098_112, 512, 1),  # 6 051 blocks, three times a prime number
    ],
)
def test_equal_pieces(nbytes: int, lba: int, count: int) -> None:
    assert equal_pieces(nbytes, MOST, lba) == count
    assert not nbytes % (count * lba)


@pytest.mark.parametrize("nbytes", [4 * MOST, MOST + 4096, 3 * MOST + 5, 17 * KIB])
async def test_many_come_back(world: World, nbytes: int) -> None:
    layout = st.Layout(slot_bytes=4 * MOST)
    emu: dict[str, object] = {"size": 4 * MIB, "lba": 512}
    async with (
        world.open(emu=emu, max_transfer=MOST) as ns,
        st.open([ns], create=layout) as chunks,
        await chunks.allocate(COUNT * 4 * MOST) as reg,
    ):
        parts = [reg[i * 4 * MOST : i * 4 * MOST + nbytes] for i in range(COUNT)]
        keys = [b"%d" % i for i in range(COUNT)]
        for key, part in zip(keys, parts, strict=True):
            part.view[:] = noise(key, nbytes)
        items = list(zip(keys, parts, strict=True))
        assert await chunks.put_many(items) == [True] * COUNT
        reg.view[:] = bytes(reg.nbytes)
        assert await chunks.get_many(items) == [nbytes] * COUNT
        assert [bytes(one.view) for one in parts] == [noise(k, nbytes) for k in keys]
        assert chunks.statistics().get_bytes == COUNT * nbytes


@pytest.mark.parametrize("nbytes", [4 * MOST, 3 * MOST + 5])
@pytest.mark.parametrize("what", ["read", "write"])
async def test_a_piece_that_fails_fails_its_chunk(
    world: World, nbytes: int, what: str
) -> None:
    layout = st.Layout(slot_bytes=4 * MOST)
    async with (
        world.open(emu={"size": 4 * MIB, "lba": 512}, max_transfer=MOST) as ns,
        st.open([ns], create=layout) as chunks,
        await chunks.allocate(COUNT * 4 * MOST) as reg,
    ):
        parts = [reg[i * 4 * MOST : i * 4 * MOST + nbytes] for i in range(COUNT)]
        items = [(b"%d" % i, part) for i, part in enumerate(parts)]
        slots = chunks._shards[0].slots
        bad = 2  # slots are taken in order
        place = slots.pools[0].at(bad) + 4096 + 2 * MOST
        status = 0x4280 if what == "write" else 0x4281
        fault = Fault("status", what, slba=place // 512, nlb=1, status_field=status)
        if what == "read":
            assert await chunks.put_many(items) == [True] * COUNT
        with inject(ns, fault):
            work = chunks.get_many if what == "read" else chunks.put_many
            done: list[int | UGDSError] = list(await work(items))
        assert isinstance(done[bad], MediaError)
        good = nbytes if what == "read" else True
        assert [one for one in done if not isinstance(one, UGDSError)] == [good] * 5
        if what == "write":
            assert not chunks.contains(b"2")
            assert chunks.contains(b"3")
