"""Random histories against plain models: splitting, PRP lists, queue wrap, batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from helpers.model import PAGE, pattern
from helpers.world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from aiougds._index import Intervals

pytestmark = pytest.mark.few
BLOCKS = 96
Draw = Callable[[st.SearchStrategy[int]], int]


@st.composite
def transfers(draw: Draw) -> tuple[bool, int, int, int]:
    """A write (or read): first block, count, where in the memory."""
    count = draw(st.integers(1, BLOCKS))
    first = draw(st.integers(0, BLOCKS - count))
    return bool(draw(st.booleans())), first, count, draw(st.integers(0, 2 * PAGE))


@settings(max_examples=60)
@given(
    lba=st.sampled_from([512, 1024, 4096]),
    mpsmin=st.integers(0, 2),
    mdts=st.integers(0, 4),
    pages=st.integers(1, 40),
    history=st.lists(transfers(), min_size=1, max_size=6),
)
def test_splitting_and_lists(
    world: World,
    lba: int,
    mpsmin: int,
    mdts: int,
    pages: int,
    history: list[tuple[bool, int, int, int]],
) -> None:
    """The device walks every list; what arrives is what a bytearray would hold.

    Memory starts anywhere, also where no PRP entry may, and has a guard on each side.
    """

    async def body() -> None:
        disk = bytearray(BLOCKS * lba)
        memory = bytearray(pattern(BLOCKS * lba + 3 * PAGE, 1))
        model = bytearray(memory)
        emu = {"size": len(disk), "lba": lba, "mpsmin": mpsmin, "mdts": mdts}
        async with (
            world.open(emu=emu, max_transfer=pages * PAGE << mpsmin) as ns,
            ns.register(memory) as reg,
        ):
            for write, first, count, start in history:
                offset, nbytes = first * lba, count * lba
                part = reg[start : start + nbytes]
                there, here = (
                    slice(offset, offset + nbytes),
                    slice(start, start + nbytes),
                )
                if write:
                    assert await ns.write(part, offset=offset) == nbytes
                    disk[there] = model[here]
                else:
                    assert await ns.read(part, offset=offset) == nbytes
                    model[here] = disk[there]
                assert memory == model
            seen = bytearray(len(disk))
            await ns.read(seen, offset=0)
            assert seen == disk

    world.run(body())


@settings(max_examples=40)
@given(
    depth=st.integers(2, 19),
    mqes=st.integers(1, 40),
    queues=st.integers(1, 4),
    turns=st.lists(st.integers(1, 24), min_size=1, max_size=8),
)
def test_queues_wrap(
    world: World, depth: int, mqes: int, queues: int, turns: list[int]
) -> None:
    """However many at a time: each of them ends once and moves its own block."""

    async def body() -> None:
        lba, total = 512, 24
        emu = {"size": total * lba, "lba": lba, "mqes": mqes}
        model = bytearray(total * lba)
        memory = bytearray(total * lba)
        async with world.open(
            emu=emu, depth=depth, batch_depth=depth, queues=queues
        ) as ns:
            async with ns.register(memory) as reg:
                for turn, width in enumerate(turns):
                    parts = [slice(i * lba, (i + 1) * lba) for i in range(width)]
                    fresh = pattern(width * lba, turn)
                    memory[: width * lba] = model[: width * lba] = fresh
                    await world.gather(
                        *(lambda p=p: ns.write(reg[p], offset=p.start) for p in parts)
                    )
                    memory[:] = bytes(len(memory))
                    await world.gather(
                        *(lambda p=p: ns.read(reg[p], offset=p.start) for p in parts)
                    )
                    assert memory[: width * lba] == fresh
                await ns.read(reg, offset=0)
                assert memory == model
            assert ns.controller.statistics().commands >= 2 * sum(turns)

    world.run(body())


@settings(max_examples=40)
@given(
    capacity=st.integers(1, 40),
    depth=st.integers(2, 9),
    moves=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 45), st.integers(0, 45)),
        min_size=1,
        max_size=10,
    ),
)
def test_batch_windows(
    world: World, capacity: int, depth: int, moves: list[tuple[int, int, int]]
) -> None:
    """Prepared, in flight, harvested: nothing is lost and nothing is doubled."""

    async def body() -> None:
        lba, blocks = 512, 64
        content = pattern(blocks * lba, 3)
        emu = {"size": blocks * lba, "lba": lba}
        async with world.open(emu=emu, depth=depth, batch_depth=depth) as ns:
            await ns.write(content, offset=0)
            async with (
                ns.allocate(capacity * lba) as reg,
                ns.batch(capacity) as batch,
            ):
                flying: dict[object, tuple[int, int]] = {}
                free = list(range(capacity))
                serial = 0
                for submit, least, most in moves:
                    for _ in range(min(submit, len(free))):
                        slot, block = free.pop(), serial * 7 % blocks
                        part = reg[slot * lba : (slot + 1) * lba]
                        batch.read(part, offset=block * lba, cookie=serial)
                        flying[serial] = slot, block
                        serial += 1
                    batch.submit()
                    assert batch.pending == len(flying)
                    items = await batch.harvest(min(least, most), most)
                    assert min(least, most, len(flying)) <= len(items) <= most
                    for item in items:
                        slot, block = flying.pop(item.cookie)
                        assert item.nbytes == lba
                        got = reg.view[slot * lba : (slot + 1) * lba]
                        assert got == content[block * lba : (block + 1) * lba]
                        free.append(slot)
                rest = [item.cookie async for item in batch]
                assert sorted(map(str, rest)) == sorted(map(str, flying))

    world.run(body())


@settings(max_examples=40)
@given(
    mdts=st.integers(0, 2),
    depth=st.integers(2, 5),
    items=st.lists(
        st.tuples(st.integers(0, 63), st.integers(0, 12), st.integers(0, 1000)),
        max_size=40,
    ),
)
def test_lists_of_any_lengths(
    world: World, mdts: int, depth: int, items: list[tuple[int, int, int]]
) -> None:
    async def body() -> None:
        lba = 512
        content = pattern(80 * lba, 4)
        emu = {"size": len(content), "lba": lba, "mdts": mdts}
        async with world.open(
            emu=emu, max_transfer=PAGE, depth=depth, batch_depth=depth
        ) as ns:
            await ns.write(content, offset=0)
            async with ns.allocate(2 * PAGE * max(1, len(items))) as reg:
                pairs = []
                for number, (block, count, start) in enumerate(items):
                    at = (
                        number * 2 * PAGE
                        + start * 4 % (2 * PAGE - count * lba + 1) // 4 * 4
                    )
                    pairs.append((reg[at : at + count * lba], block * lba))
                done = await ns.read_many(pairs)
                assert done == [count * lba for _, count, _ in items]
                for part, offset in pairs:
                    assert part.view == content[offset : offset + len(part)]

    world.run(body())


@settings(max_examples=60)
@given(
    lba=st.sampled_from([512, 4096]),
    first=st.integers(0, 100_000),
    nbytes=st.integers(0, 600_000),
    start=st.integers(0, 9),
)
def test_any_byte_range(
    world: World, lba: int, first: int, nbytes: int, start: int
) -> None:
    async def body() -> None:
        content = pattern(180 * PAGE, 5)
        async with world.open(emu={"size": len(content), "lba": lba}) as ns:
            await ns.write(content, offset=0)
            memory = bytearray(start + nbytes + 9)
            view = memoryview(memory)[start : start + nbytes]
            assert await ns.read(view, offset=first, edges="bounce") == nbytes
            view.release()
            inside = content[first : first + nbytes]
            assert memory == bytes(start) + inside + bytes(9)

    world.run(body())


@settings(max_examples=30)
@given(
    nbytes=st.integers(1, 5),
    order=st.permutations(range(12)),
    into=st.permutations(range(12)),
)
def test_arrays_move_each_item_to_its_place(
    world: World, nbytes: int, order: list[int], into: list[int]
) -> None:
    async def body() -> None:
        size = nbytes * 512
        content = pattern(12 * size, 6)
        async with (
            world.open(emu={"size": 12 * 5 * 512, "lba": 512}) as ns,
            ns.register(bytearray(content)) as reg,
        ):
            await ns.write_many(
                reg,
                offsets=array("q", (n * size for n in order)),
                nbytes=size,
            )
            reg.view[:] = bytes(len(content))
            await ns.read_many(
                reg,
                offsets=array("q", (n * size for n in order)),
                nbytes=size,
                buf_offsets=array("q", (n * size for n in into)),
            )
            for source, target in enumerate(into):
                got = reg.view[target * size : (target + 1) * size]
                assert got == content[source * size : (source + 1) * size]

    world.run(body())


class Held:
    """Stands for a registration in the index of addresses."""

    closed = False


@settings(max_examples=150)
@given(
    ranges=st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=1, max_size=40
    ),
    gone=st.sets(st.integers(0, 39)),
    asked=st.lists(st.tuples(st.integers(0, 520), st.integers(1, 60)), max_size=20),
)
def test_index_of_addresses(
    ranges: list[tuple[int, int]],
    gone: set[int],
    asked: list[tuple[int, int]],
) -> None:
    """Every live range that holds the asked one is found, the smallest first."""
    index = Intervals()
    holders = [Held() for _ in ranges]
    names = [
        index.add(start, nbytes, holder)  # type: ignore[arg-type]
        for holder, (start, nbytes) in zip(holders, ranges, strict=True)
    ]
    for number in gone:
        if number < len(ranges):
            index.remove(*ranges[number], names[number])
    for start, nbytes in asked:
        expected = {
            id(holder)
            for number, (holder, (low, length)) in enumerate(
                zip(holders, ranges, strict=True)
            )
            if number not in gone and low <= start and start + nbytes <= low + length
        }
        found = index.holders(start, nbytes)
        assert {id(holder) for holder in found} == expected
        assert len(found) == len(expected)
