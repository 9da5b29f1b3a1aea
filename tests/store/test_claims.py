"""What a store does not take: memory, bytes and devices that are somebody else's."""

from __future__ import annotations

import pytest
from helpers.world import KIB, MIB, World
from store.tools import LAYOUT, SLOT, holds, opened, put

import aiougds
from aiougds import store as st

pytestmark = [pytest.mark.tasks, pytest.mark.few]


@pytest.mark.parametrize("where", [0, 4 * KIB, 64 * KIB, MIB - 512])
async def test_create_takes_nothing_but_zeros(world: World, where: int) -> None:
    async with world.open(emu={"size": 4 * MIB, "lba": 512}) as ns:
        await ns.write(b"\x01" + bytes(511), offset=where)
        with pytest.raises(st.OccupiedError, match="not all zero"):
            await st.open([ns], create=LAYOUT)
        await st.format([ns], LAYOUT)
        async with st.open([ns]) as chunks:
            assert len(chunks) == 0


@pytest.mark.parametrize("damage", [b"X", bytes(4096)])
async def test_create_spares_a_store_whose_superblock_is_lost(
    world: World, damage: bytes
) -> None:
    async with world.open(emu={"size": 4 * MIB, "lba": 512}) as ns:
        async with st.open([ns], create=LAYOUT) as chunks:
            await put(chunks, b"k", 1000)
        first = bytearray(4096)
        await ns.read(first, offset=0)
        await ns.write(damage + first[len(damage) :], offset=0)
        with pytest.raises((st.OccupiedError, st.StoreFormatError)):
            await st.open([ns], create=LAYOUT)
        await ns.write(first, offset=0)
        async with st.open([ns]) as chunks:
            await holds(chunks, b"k", 1000)


async def test_a_part_of_an_open_store_is_in_use(world: World) -> None:
    async with (
        world.open(emu={"size": 16 * MIB, "lba": 4096}) as ns,
        st.open([ns.region(0, 8 * MIB)], create=LAYOUT),
    ):
        for base in (0, 4 * MIB):
            with pytest.raises(aiougds.BusyError, match="or a part of it"):
                await st.open([ns.region(base, 8 * MIB)], create=LAYOUT)
        async with st.open([ns.region(8 * MIB, 8 * MIB)], create=LAYOUT):
            pass


@pytest.mark.parametrize("nbytes", [100, SLOT - 1, SLOT])
async def test_read_only_memory_is_no_target(world: World, nbytes: int) -> None:
    async with opened(world) as (_, chunks):
        await put(chunks, b"k", nbytes)
        kept = bytes(SLOT)
        async with await chunks.register(kept) as reg:
            with pytest.raises(aiougds.ReadOnlyError):
                await chunks.get(b"k", reg)
            (result,) = await chunks.get_many([(b"k", reg)])
            assert isinstance(result, aiougds.ReadOnlyError)
        assert kept == bytes(SLOT)


@pytest.mark.parametrize(
    "how", [{"high": "a"}, {"low": None}, {"create": 5}], ids=["high", "low", "create"]
)
async def test_bad_options_are_named(world: World, how: dict[str, object]) -> None:
    async with world.open(emu={"size": 4 * MIB}) as ns:
        with pytest.raises(aiougds.OptionError, match=next(iter(how))):
            await st.open([ns], **{"create": LAYOUT, **how})  # type: ignore[arg-type]
