"""Nothing is destroyed by accident: what is found, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import aiougds
from aiougds._signatures import SIGNATURES, Kind, Signature
from aiougds.cli._failures import RefusedError
from aiougds.cli._guard import ALL_KINDS, DISK_KINDS, guard, look, makes_it

MIB = 1 << 20
SIZE = 5 * MIB + 64 * 1024
PLACES = [(row, offset) for row in SIGNATURES for offset in row.offsets]

pytestmark = pytest.mark.asyncio


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(SIZE)
    return path


def plant(image: Path, offset: int, magic: bytes) -> int:
    place = offset if offset >= 0 else SIZE + offset
    with image.open("r+b") as file:
        file.seek(place)
        file.write(magic)
    return place


async def found_on(image: Path, lba: int = 4096) -> set[tuple[str, int]]:
    async with aiougds.open(f"emu:{image}?lba={lba}", readonly=True) as ns:
        return {(item.name, item.offset) for item in await look(ns)}


async def refusal(address: str, kinds: frozenset[Kind] = DISK_KINDS) -> str:
    async with aiougds.open(address) as ns:
        with pytest.raises(RefusedError) as caught:
            await guard(ns, address, made=False, serial=None, kinds=kinds)
        with pytest.raises(RefusedError, match="is not the serial number"):
            await guard(ns, address, made=False, serial="another", kinds=kinds)
        own = ns.controller.info.serial
        await guard(ns, address, made=False, serial=own, kinds=kinds)
        assert f"--serial {own}" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "offset"), PLACES, ids=[f"{row.name}@{at}" for row, at in PLACES]
)
async def test_each_signature_is_found_in_each_place(
    image: Path, row: Signature, offset: int
) -> None:
    place = plant(image, offset, row.magic)
    assert (row.name, place) in await found_on(image)
    line = await refusal(f"emu:{image}", ALL_KINDS)
    assert f"{row.name} ({row.kind}, at byte {place})" in line


@pytest.mark.parametrize("lba", [512, 4096, 65536])
async def test_an_empty_namespace_holds_nothing(image: Path, lba: int) -> None:
    assert await found_on(image, lba) == set()
    async with aiougds.open(f"emu:{image}") as ns:
        await guard(ns, f"emu:{image}", made=False, serial=None)


@pytest.mark.parametrize("blocks", [1, 2, 16, 511])
async def test_small_namespaces(blocks: int) -> None:
    async with aiougds.open(f"emu:?size={blocks * 512}&lba=512") as ns:
        assert await look(ns) == []


async def test_partition_tables(image: Path) -> None:
    plant(image, 510, b"\x55\xaa")
    assert await found_on(image) == {("MBR or boot sector", 510)}
    plant(image, 512, b"EFI PART")
    assert ("GPT", 512) in await found_on(image)


async def test_raid_members_with_their_superblock_at_the_end(image: Path) -> None:
    magic = bytes.fromhex("fc4e2ba9")
    version_1_0 = plant(image, (SIZE - 8192) // 4096 * 4096, magic)
    version_0_90 = plant(image, (SIZE // 65536 - 1) * 65536, magic)
    assert await found_on(image) == {
        ("Linux MD RAID 0.90/1.0", version_1_0),
        ("Linux MD RAID 0.90/1.0", version_0_90),
    }


@pytest.mark.parametrize("magic", ["0cb1ba0000000000", "0000000000bab10c"])
@pytest.mark.parametrize("at", [128 * 1024, 255 * 1024, 4 * MIB + 640 * 1024])
async def test_zfs_in_labels_at_both_ends(image: Path, at: int, magic: str) -> None:
    plant(image, at, bytes.fromhex(magic))
    assert await found_on(image) == {("ZFS", at)}


async def test_a_model_is_a_file_that_only_bench_refuses(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(5000, np.float32)}, path)
    assert await found_on(path, 512) == {("safetensors model", 8)}
    assert "safetensors model (file" in await refusal(f"emu:{path}", ALL_KINDS)
    async with aiougds.open(f"emu:{path}") as ns:
        await guard(ns, f"emu:{path}", made=False, serial=None, kinds=DISK_KINDS)


@pytest.mark.parametrize("tool", ["mke2fs", "mkswap"])
async def test_what_real_tools_make_is_found(image: Path, tool: str) -> None:
    """And it is gone after the ``wipefs`` that the refusal proposes."""
    needed = {name: shutil.which(name) for name in (tool, "wipefs")}
    for name in needed:
        if needed[name] is None:
            needed[name] = shutil.which(name, path="/usr/sbin:/sbin")
    if None in needed.values():
        pytest.skip(f"{tool} or wipefs is not installed")
    made = {
        "mke2fs": (["-q", "-F"], "ext2/ext3/ext4"),
        "mkswap": ([], "swap"),
    }
    args, name = made[tool]
    make = [str(needed[tool]), *args, str(image)]
    subprocess.run(make, check=True, timeout=30, capture_output=True)
    line = await refusal(f"emu:{image}")
    assert name in line
    assert f"wipefs --all {image}" in line
    wipe = [str(needed["wipefs"]), "--all", str(image)]
    subprocess.run(wipe, check=True, timeout=30, capture_output=True)
    assert await found_on(image) == set()


async def test_a_real_device_always_needs_its_serial_number() -> None:
    async with aiougds.open("emu:?size=1MiB") as ns:
        own = ns.controller.info.serial
        with pytest.raises(RefusedError, match=f"real device .*--serial {own}"):
            await guard(ns, "/dev/ugds_drv0", made=False, serial=None)
        await guard(ns, "/dev/ugds_drv0", made=False, serial=f" {own} ")


async def test_what_the_command_makes_needs_nothing(image: Path) -> None:
    assert makes_it("emu:")
    assert makes_it("emu:?size=1GiB")
    assert makes_it(f"emu:{image}.new?size=1GiB")
    assert not makes_it(f"emu:{image}")
    assert not makes_it("/dev/ugds_drv0")
    assert not makes_it("vfio:0000:65:00.0")
    # The second namespace of a controller whose first is gone.
    image.rename(f"{image}.ns2")
    assert not makes_it(f"emu:{image}?namespaces=1:1MiB,2:1MiB")
    link = image.with_name("link")
    link.symlink_to("nowhere")
    assert not makes_it(f"emu:{link}?size=1MiB")
