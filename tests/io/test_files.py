"""Files that somebody else made, of any length, as namespaces."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.other import write_and_end
from helpers.world import MIB, World

from aiougds import AddressError, MediaError, RangeError

_libc = ctypes.CDLL(None, use_errno=True)


@pytest.mark.few
@pytest.mark.parametrize(
    "length", [1, 511, 512, 513, 4095, 4096, 4097, 8192, 100_000, MIB + 1]
)
async def test_any_length_can_be_read(
    world: World, tmp_path: Path, length: int
) -> None:
    """The last block is filled up with zeros; the file does not grow."""
    path = tmp_path / "file"
    data = pattern(length, 1)
    path.write_bytes(data)
    async with world.open(path, readonly=True) as ns:
        lba = 4096 if length % 4096 == 0 else 512
        assert ns.lba_bytes == lba
        assert ns.size == -(-length // lba) * lba
        seen = bytearray(b"\xff" * ns.size)
        assert await ns.read(seen, offset=0) == ns.size
        assert seen == data + bytes(ns.size - length)
        tail = bytearray(lba)
        await ns.read(tail, offset=ns.size - lba)
        assert tail == seen[-lba:]
        with pytest.raises(RangeError, match="past the end"):
            await ns.read(tail, offset=ns.size)
    assert path.read_bytes() == data


async def test_a_partial_last_block_is_not_written(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    data = pattern(3 * 512 + 100, 2)
    path.write_bytes(data)
    async with world.open(path) as ns:
        await ns.write(b"x" * 512, offset=512)
        for offset, nbytes in ((3 * 512, 512), (2 * 512, 1024)):
            with pytest.raises(MediaError) as caught:
                await ns.write(b"y" * nbytes, offset=offset)
            assert (caught.value.sct, caught.value.sc) == (2, 0x80)
        with pytest.raises(MediaError):
            await ns.write_zeroes(offset=3 * 512, nbytes=512)
        seen = bytearray(512)
        await ns.read(seen, offset=3 * 512)
        assert seen == data[3 * 512 :] + bytes(412)
    assert path.read_bytes() == data[:512] + b"x" * 512 + data[1024:]


async def test_bytes_survive_a_process_that_just_ends(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "disk"
    data = pattern(2 * PAGE, 8)
    write_and_end(world.address(path, size=MIB), data)
    async with world.open(path) as ns:
        seen = bytearray(len(data))
        await ns.read(seen, offset=PAGE)
        assert seen == data


async def test_a_block_size_of_ones_own(world: World, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pattern(3 * PAGE, 3))
    async with world.open(path, emu={"lba": 512}) as ns:
        assert (ns.lba_bytes, ns.size) == (512, 3 * PAGE)
        seen = bytearray(512)
        await ns.read(seen, offset=2 * PAGE + 512)
        assert seen == pattern(3 * PAGE, 3)[2 * PAGE + 512 : 2 * PAGE + 1024]


async def test_a_file_is_made_sparse(world: World, tmp_path: Path) -> None:
    path = tmp_path / "new"
    async with world.open(path, emu={"size": "1GiB"}) as ns:
        assert ns.size == 1 << 30
        await ns.write(pattern(PAGE, 4), offset=ns.size - PAGE)
    assert path.stat().st_size == 1 << 30
    assert path.stat().st_blocks * 512 < MIB


async def test_deallocated_blocks_give_room_back(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with world.open(path, emu={"size": 8 * MIB}) as ns:
        await ns.write(pattern(8 * MIB, 5), offset=0)
        await ns.flush()
        full = path.stat().st_blocks
        await ns.deallocate(offset=MIB, nbytes=6 * MIB)
        assert path.stat().st_blocks < full
        seen = bytearray(2 * PAGE)
        await ns.read(seen, offset=MIB - PAGE)
        assert seen == pattern(8 * MIB, 5)[MIB - PAGE : MIB] + bytes(PAGE)


@pytest.mark.parametrize("name", ["with space", "100%", "what?", "a&b=c", "déjà vu"])
async def test_names_of_files(world: World, tmp_path: Path, name: str) -> None:
    """A question mark begins the options: it is written as %3F, and % as %25."""
    path = tmp_path / name
    path.write_bytes(pattern(PAGE, 6))
    async with world.open(path) as ns:
        seen = bytearray(PAGE)
        await ns.read(seen, offset=0)
        assert seen == pattern(PAGE, 6)


async def test_a_cold_file(world: World, tmp_path: Path) -> None:
    """Not in the page cache, so nothing can complete on the spot."""
    import os

    path = tmp_path / "disk"
    data = pattern(4 * MIB, 7)
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    async with world.open(path) as ns, ns.allocate(PAGE) as reg:
        for number in random.Random(8).sample(range(1024), 64):
            await ns.read(reg, offset=number * PAGE)
            assert reg.view == data[number * PAGE : (number + 1) * PAGE]


def is_cached(path: Path) -> bool:
    """Whether the page cache has the first block; asking does not bring it there."""
    held = ctypes.c_ubyte()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_COPY) as view,
    ):
        first = ctypes.c_char.from_buffer(view)
        at = ctypes.c_void_p(ctypes.addressof(first))
        code = _libc.mincore(at, ctypes.c_size_t(PAGE), ctypes.byref(held))
        del first  # or the view cannot be closed
    assert code == 0, os.strerror(ctypes.get_errno())
    return bool(held.value & 1)


def stays_cached(folder: Path) -> bool:
    """Whether files there are in memory anyhow."""
    path = folder / "probe"
    path.write_bytes(bytes(PAGE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return is_cached(path)


async def direct_is_refused(world: World, folder: Path) -> bool:
    """Whether the file system has no O_DIRECT: then opening says so."""
    path = folder / "probe"
    path.write_bytes(bytes(PAGE))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        with pytest.raises(OSError, match="cannot be opened with O_DIRECT"):
            async with world.open(path, emu={"direct": 1}):
                pass
        return True
    return False


async def test_direct_goes_past_the_page_cache(world: World, tmp_path: Path) -> None:
    """Memory that O_DIRECT does not take, and ends of files, go through it."""
    if await direct_is_refused(world, tmp_path):
        return
    path = tmp_path / "file"
    emu: dict[str, object] = {"size": "3MiB", "direct": 1}
    async with world.open(path, emu=emu) as ns, ns.allocate(3 * MIB) as reg:
        assert path.stat().st_blocks * 512 >= 3 * MIB, "it is allocated"
        reg.view[:] = pattern(3 * MIB, 1)
        await ns.write(reg, offset=0)
        await ns.flush()
        reg.view[:] = bytes(3 * MIB)
        await ns.read(reg, offset=0)
        assert stays_cached(tmp_path) or not is_cached(path)
        assert reg.view == pattern(3 * MIB, 1)
        # Each of these is in pieces whose addresses are multiples of four.
        await ns.write(reg[4 : 4 + 5 * PAGE], offset=PAGE)
        await ns.read(reg[8 : 8 + 5 * PAGE], offset=PAGE)
        assert reg.view[8 : 8 + 5 * PAGE] == pattern(3 * MIB, 1)[4 : 4 + 5 * PAGE]
    whole = bytearray(pattern(3 * MIB, 1))
    whole[PAGE : 6 * PAGE] = pattern(3 * MIB, 1)[4 : 4 + 5 * PAGE]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("length", [511, 4097, MIB + 700])
async def test_direct_reads_any_length(
    world: World, tmp_path: Path, length: int
) -> None:
    if await direct_is_refused(world, tmp_path):
        return
    path = tmp_path / "file"
    path.write_bytes(pattern(length, 1))
    async with (
        world.open(path, emu={"direct": 1}, readonly=True) as ns,
        ns.allocate(-(-ns.size // PAGE) * PAGE) as reg,
    ):
        await ns.read(reg[: ns.size], offset=0)
        assert reg.view[:length] == pattern(length, 1)
        assert not any(reg.view[length : ns.size])


async def test_memory_is_not_direct(world: World) -> None:
    with pytest.raises(AddressError, match="direct=1"):
        async with world.opening("emu:?size=1MiB&direct=1"):
            pass


async def test_much_that_is_written_is_on_its_way_early(
    world: World, tmp_path: Path
) -> None:
    """It is told to begin while more is written, by several threads; all is there."""
    path = tmp_path / "file"
    async with (
        world.open(path, emu={"size": "24MiB", "threads": 4}) as ns,
        ns.allocate(24 * MIB) as reg,
    ):
        reg.view[:] = pattern(24 * MIB, 3)
        pieces = [(reg[at : at + MIB], at) for at in range(0, 24 * MIB, MIB)]
        random.Random(4).shuffle(pieces)
        await ns.write_many(pieces)
        await ns.flush()
    assert path.read_bytes() == pattern(24 * MIB, 3)
