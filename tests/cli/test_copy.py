"""``aiougds copy``: any length, verified, and nothing overwritten by accident."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from helpers.command_line import CommandLine

from aiougds import RegistrationSlice
from aiougds.cli import main
from aiougds.cli._ends import FileEnd, NamespaceEnd, Sink

KIB, MIB = 1 << 10, 1 << 20
SIZES = (0, 1, 511, 512, 4095, 4096, 4097, MIB - 1, MIB, MIB + 5, 9 * MIB - 3)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(random.Random(2).randbytes(3 * MIB + 777))
    return path


def filled(path: Path, nbytes: int) -> bytes:
    """Make an image of bytes that are nothing known."""
    data = random.Random(3).randbytes(nbytes)
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("lba", [512, 4096])
@pytest.mark.parametrize("nbytes", SIZES)
def test_there_and_back(tmp_path: Path, nbytes: int, lba: int) -> None:
    """Also: what follows the copied bytes in the last block is kept."""
    source, image, back = tmp_path / "source", tmp_path / "image", tmp_path / "back"
    data = random.Random(nbytes).randbytes(nbytes)
    source.write_bytes(data)
    before = filled(image, 10 * MIB)
    address = f"emu:{image}?lba={lba}"
    assert main(["copy", str(source), address, "--offset", "8KiB"]) == 0
    after = image.read_bytes()
    assert after[8192 : 8192 + nbytes] == data
    assert after[:8192] == before[:8192]
    assert after[8192 + nbytes :] == before[8192 + nbytes :]
    if nbytes:
        args = ["--offset", "8KiB", "--nbytes", str(nbytes)]
        assert main(["copy", address, str(back), *args]) == 0
        assert back.read_bytes() == data


def test_it_says_what_it_did(aiougds: CommandLine, source: Path) -> None:
    out = aiougds.succeed("copy", source, "emu:new.img?size=8MiB")
    assert out.startswith("copied 3.0 MiB (3146505 bytes) in ")
    assert out.endswith("read back and verified\n")
    out = aiougds.succeed("copy", source, "emu:other.img?size=8MiB", "--no-verify")
    assert out.endswith(", not verified\n")


def test_bytes_from_anywhere_in_a_namespace(aiougds: CommandLine, source: Path) -> None:
    out = aiougds.folder / "part"
    where = ("--offset", 4097, "--nbytes", 2 * MIB + 1)
    aiougds.succeed("copy", f"emu:{source}", out, *where)
    assert out.read_bytes() == source.read_bytes()[4097 : 4097 + 2 * MIB + 1]


def test_a_whole_namespace_by_default(aiougds: CommandLine, source: Path) -> None:
    """A file's last, partial block reads as zeros behind its end."""
    out = aiougds.folder / "all"
    aiougds.succeed("copy", f"emu:{source}?lba=512", out)
    data = source.read_bytes()
    assert out.read_bytes() == data + bytes(-len(data) % 512)


def test_between_namespaces(aiougds: CommandLine, tmp_path: Path) -> None:
    data = filled(tmp_path / "a", 2 * MIB)
    where = ("--offset", 512, "--nbytes", MIB + 9)
    aiougds.succeed("copy", "emu:a?lba=512", "emu:b?size=4MiB", *where)
    after = (tmp_path / "b").read_bytes()
    assert after[: MIB + 9] == data[512 : 512 + MIB + 9]
    assert not any(after[MIB + 9 :])


def test_a_namespace_by_its_id(aiougds: CommandLine, source: Path) -> None:
    target = "emu:n.img?namespaces=1:4MiB,4:4MiB"
    aiougds.succeed("copy", source, target, "--nsid", 4)
    data = source.read_bytes()
    assert (aiougds.folder / "n.img.ns4").read_bytes()[: len(data)] == data
    assert not any((aiougds.folder / "n.img").read_bytes())


def test_refusals_of_arguments(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = source.parent
    monkeypatch.chdir(folder)
    data = source.read_bytes()
    image = folder / "n.img"
    before = filled(image, MIB)

    def fail(status: int, *args: object) -> str:
        assert main(["copy", *map(str, args)]) == status
        out, err = capfd.readouterr()
        assert out == ""
        return err

    assert "for two files use cp" in fail(2, "a", "b")
    assert "the same controller" in fail(2, "emu:n.img", "emu:./n.img")
    assert "nope: No such file" in fail(1, "nope", "emu:n.img")
    assert "is a directory" in fail(1, folder, "emu:n.img")
    assert "room for 1048576 from byte 0" in fail(1, source, "emu:n.img")
    line = fail(2, source, "emu:n.img", "--offset", 100, "--nbytes", 1)
    assert "use a multiple of 4096" in line
    assert "is more than the" in fail(2, source, "emu:n.img", "--nbytes", "1GiB")
    assert "past the end" in fail(2, "emu:n.img", "out", "--offset", "2MiB")
    assert "is the file behind" in fail(1, image, "emu:n.img")
    assert image.read_bytes() == before
    assert source.read_bytes() == data
    assert sorted(os.listdir(folder)) == ["n.img", "source"]


def test_a_file_that_exists_needs_force(aiougds: CommandLine, source: Path) -> None:
    target = aiougds.folder / "out"
    target.write_bytes(b"precious")
    line = aiougds.fail(1, "copy", f"emu:{source}", target, "--nbytes", 8)
    assert "--force" in line
    assert target.read_bytes() == b"precious"
    aiougds.succeed("copy", f"emu:{source}", target, "--nbytes", 8, "--force")
    assert target.read_bytes() == source.read_bytes()[:8]
    link = aiougds.folder / "link"
    link.symlink_to(target)
    line = aiougds.fail(1, "copy", f"emu:{source}", link, "--nbytes", 8, "--force")
    assert "no regular file" in line


def test_a_filesystem_is_not_overwritten(
    aiougds: CommandLine, source: Path, tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    before = bytearray(4 * MIB)
    before[0:4] = b"XFSB"
    image.write_bytes(before)
    line = aiougds.fail(1, "copy", source, "emu:disk.img")
    assert "holds XFS (filesystem, at byte 0); nothing was written" in line
    assert "wipefs --all disk.img" in line
    assert image.read_bytes() == before
    serial = line.rpartition("--serial ")[2]
    line = aiougds.fail(1, "copy", source, "emu:disk.img", "--serial", "S123")
    assert "is not the serial number" in line
    assert image.read_bytes() == before
    aiougds.succeed("copy", source, "emu:disk.img", "--serial", serial)
    assert image.read_bytes()[: source.stat().st_size] == source.read_bytes()


@pytest.mark.parametrize("to_namespace", [True, False])
def test_verifying_finds_one_wrong_bit(
    to_namespace: bool,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What is written is not what was read: in the second of four chunks."""
    end = NamespaceEnd if to_namespace else FileEnd
    write: Callable[..., Awaitable[None]] = end.write

    async def wrong(
        self: Sink, buf: RegistrationSlice, offset: int, nbytes: int
    ) -> None:
        if offset == MIB:
            buf.view[12345] ^= 1
        await write(self, buf, offset, nbytes)

    monkeypatch.setattr(end, "write", wrong)
    out = source.parent / "out"
    new, old = f"emu:{out}?size=8MiB", f"emu:{source}"
    pair = (str(source), new) if to_namespace else (old, str(out))
    assert main(["copy", *pair]) == 1
    told = capfd.readouterr()
    assert "differs from" in told.err
    assert "1048576 bytes after the beginning" in told.err
    assert "verified" not in told.out
    if not to_namespace:
        assert os.listdir(source.parent) == ["source"]


def test_a_source_that_shrinks_is_an_error(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = FileEnd.read

    async def shrink(
        self: FileEnd, buf: RegistrationSlice, offset: int, nbytes: int
    ) -> None:
        os.truncate(source, MIB)
        await real(self, buf, offset, nbytes)

    monkeypatch.setattr(FileEnd, "read", shrink)
    assert main(["copy", str(source), "emu:?size=8MiB"]) == 1
    assert "it became shorter while it was copied" in capfd.readouterr().err
