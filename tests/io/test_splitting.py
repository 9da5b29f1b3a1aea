"""One request becomes as many commands as the controller's limits ask for."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.world import GIB, KIB, MIB, World, served


def is_fair(commands: int, least: int) -> bool:
    """Large requests leave room for small ones: some commands carry less than most."""
    return least <= commands <= least + least // 8 + 1


@pytest.mark.core
async def test_one_page_commands_at_depth_two(world: World, tmp_path: Path) -> None:
    """MDTS of a page, memory that starts inside one: every command has two entries."""
    path = tmp_path / "disk"
    data = pattern(64 * PAGE, 1)
    memory = bytearray(4 + len(data))
    memory[4:] = data
    emu = {"mdts": 0, "size": len(data), "lba": 512}
    async with world.open(path, emu=emu, max_transfer=PAGE, depth=2) as ns:
        assert ns.controller.capabilities.max_transfer_bytes == PAGE
        async with ns.register(memory) as reg:
            before = served(ns)
            assert await ns.write(reg[4:], offset=0) == len(data)
            assert served(ns) - before == 64
            memory[4:] = bytes(len(data))
            assert await ns.read(reg[4:], offset=0) == len(data)
            assert memory[4:] == data
    assert path.read_bytes() == data


@pytest.mark.parametrize("mdts", [1, 2, 5, 8])
async def test_mdts_is_kept(world: World, mdts: int) -> None:
    limit = PAGE << mdts
    total = 3 * limit + PAGE
    data = pattern(total, 2)
    async with world.open(emu={"mdts": mdts, "size": 8 * MIB}) as ns:
        assert ns.controller.capabilities.mdts_bytes == limit
        assert ns.controller.capabilities.max_transfer_bytes == min(limit, MIB)
        async with ns.register(bytearray(data)) as reg:
            before = served(ns)
            await ns.write(reg, offset=PAGE)
            assert served(ns) - before == 4
            reg.view[:] = bytes(total)
            await ns.read(reg, offset=PAGE)
            assert bytes(reg.view) == data


@pytest.mark.few
@pytest.mark.parametrize("limit", [64 * KIB, MIB, 2 * MIB, 4 * MIB])
async def test_no_mdts_leaves_max_transfer(world: World, limit: int) -> None:
    """With lists of more than one page too, where a list has to be chained."""
    total = 2 * limit + 3 * PAGE
    data = pattern(total, 3)
    async with world.open(emu={"mdts": 0, "size": "16MiB"}, max_transfer=limit) as ns:
        caps = ns.controller.capabilities
        assert caps.mdts_bytes == 0
        assert PAGE <= caps.max_transfer_bytes <= limit
        async with ns.register(bytearray(data)) as reg:
            before = served(ns)
            await ns.write(reg, offset=0)
            assert served(ns) - before == -(-total // caps.max_transfer_bytes)
            reg.view[:] = bytes(total)
            await ns.read(reg, offset=0)
            assert bytes(reg.view) == data


@pytest.mark.few
async def test_a_large_read_beside_nothing_is_not_split(world: World) -> None:
    """Each command that comes back is an interrupt, and a turn of the loop in vain."""
    async with world.open(emu={"size": "8MiB"}) as ns, ns.allocate(MIB) as reg:
        assert ns.controller.capabilities.max_transfer_bytes == MIB
        for turn in range(1, 4):
            await ns.read(reg, offset=0)
            assert served(ns) == turn


@pytest.mark.few
@pytest.mark.parametrize("mpsmin", [0, 1, 2, 4])
@pytest.mark.parametrize("start", [0, 4, PAGE, 3 * PAGE + 512])
async def test_memory_pages_of_the_controller(
    world: World, mpsmin: int, start: int
) -> None:
    page = PAGE << mpsmin
    data = pattern(5 * page + 512, 4)
    memory = bytearray(start + len(data))
    memory[start:] = data
    emu = {"mpsmin": mpsmin, "mdts": 1, "lba": 512, "size": MIB}
    async with world.open(emu=emu) as ns:
        assert ns.controller.info.page_bytes == page
        assert ns.controller.capabilities.mdts_bytes == 2 * page
        async with ns.register(memory) as reg:
            await ns.write(reg[start:], offset=512)
            memory[start:] = bytes(len(data))
            await ns.read(reg[start:], offset=512)
            assert memory[start:] == data
            assert memory[:start] == bytes(start)


@pytest.mark.parametrize("lba", [512, 1024, 2048, 4096, 8192, 16384, 65536])
async def test_block_sizes(world: World, tmp_path: Path, lba: int) -> None:
    path = tmp_path / "disk"
    data = pattern(9 * lba, 5)
    async with world.open(path, emu={"lba": lba, "size": 16 * lba}) as ns:
        assert ns.lba_bytes == lba
        await ns.write(data, offset=3 * lba)
        seen = bytearray(4 * lba)
        await ns.read(seen, offset=5 * lba)
        assert seen == data[2 * lba : 6 * lba]
        with pytest.raises(ValueError, match=f"block size {lba}"):
            await ns.read(seen, offset=lba // 2)
    assert path.read_bytes()[3 * lba : 12 * lba] == data


@pytest.mark.few
@pytest.mark.parametrize("blocks", [65535, 65536, 65537])
async def test_sixteen_bits_of_blocks(world: World, blocks: int) -> None:
    """NLB is zero based and 16 bits wide: 65 536 blocks are 0xFFFF, not 0."""
    nbytes = blocks * 512
    emu = {"lba": 512, "mdts": 0, "size": "64MiB"}
    async with world.open(emu=emu, max_transfer=64 * MIB) as ns:
        most = min(65536 * 512, ns.controller.capabilities.max_transfer_bytes)
        data = pattern(nbytes, 6)
        async with ns.register(bytearray(data)) as reg:
            before = served(ns)
            assert await ns.write(reg, offset=512) == nbytes
            assert is_fair(served(ns) - before, -(-nbytes // most))
            reg.view[:] = bytes(nbytes)
            assert await ns.read(reg, offset=512) == nbytes
            assert reg.view == data
            edges = bytearray(512)
            for offset in (0, 512 + nbytes):
                await ns.read(edges, offset=offset)
                assert edges == bytes(512)


MARKS = (1 << 31, 1 << 32, 1 << 41)


async def test_far_offsets_in_memory(world: World) -> None:
    """Each block around the places where narrow integers wrap holds its own bytes."""
    lba = 512
    offsets = [mark + step * lba for mark in MARKS for step in (-1, 0, 1)]
    async with world.open(emu={"lba": lba, "size": "4TiB"}) as ns:
        for offset in offsets:
            await ns.write(pattern(lba, offset), offset=offset)
        seen = bytearray(lba)
        for offset in offsets:
            await ns.read(seen, offset=offset)
            assert seen == pattern(lba, offset)
        for offset in (0, lba, (1 << 31) - 2 * lba, (1 << 41) + 2 * lba, ns.size - lba):
            await ns.read(seen, offset=offset)
            assert seen == bytes(lba)


@pytest.mark.few
async def test_far_offsets_in_a_sparse_file(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with world.open(path, emu={"lba": 4096, "size": "3TiB"}) as ns:
        for mark in MARKS:
            # One request over the boundary.
            await ns.write(pattern(2 * PAGE, mark), offset=mark - PAGE)
        seen = bytearray(2 * PAGE)
        for mark in MARKS:
            await ns.read(seen, offset=mark - PAGE)
            assert seen == pattern(2 * PAGE, mark)
    with path.open("rb") as file:
        for mark in MARKS:
            file.seek(mark - PAGE)
            assert file.read(2 * PAGE) == pattern(2 * PAGE, mark)


@pytest.mark.few
@pytest.mark.parametrize("way", ["read", "write"])
async def test_more_than_four_gib_in_one_request(world: World, way: str) -> None:
    """Counted to the byte; the device walks every page and moves nothing."""
    nbytes = 4 * GIB + 3 * PAGE
    noreserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve
    memory = mmap.mmap(-1, nbytes, flags=flags)
    emu = {"size": "8GiB", "data": "none", "mdts": 0}
    async with world.open(emu=emu, max_transfer=64 * MIB) as ns:
        most = ns.controller.capabilities.max_transfer_bytes
        async with ns.register(memory) as reg:
            before = served(ns)
            moved = await getattr(ns, way)(reg, offset=PAGE)
            assert moved == nbytes
            assert is_fair(served(ns) - before, -(-nbytes // most))
            done = ns.controller.statistics()
            assert (done.read_bytes, done.write_bytes) == (
                (nbytes, 0) if way == "read" else (0, nbytes)
            )
    memory.close()


@pytest.mark.few
async def test_more_than_four_gib_without_memory(world: World) -> None:
    nbytes = 4 * GIB + PAGE
    last = PAGE + nbytes
    mark = pattern(PAGE, 7)
    async with world.open(emu={"size": "8GiB"}) as ns:
        for offset in (0, PAGE, 4 * GIB - PAGE, 4 * GIB, 4 * GIB + PAGE, last):
            await ns.write(mark, offset=offset)
        assert await ns.write_zeroes(offset=PAGE, nbytes=nbytes) == nbytes
        seen = bytearray(PAGE)
        for offset in (PAGE, 4 * GIB - PAGE, 4 * GIB, 4 * GIB + PAGE):
            await ns.read(seen, offset=offset)
            assert seen == bytes(PAGE)
        for offset in (0, last):
            await ns.read(seen, offset=offset)
            assert seen == mark
        assert await ns.verify(offset=PAGE, nbytes=nbytes) == nbytes
