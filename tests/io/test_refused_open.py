"""Addresses and options that cannot be: an error that says which and what is valid."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.other import holding, opened_as_nobody
from helpers.world import MIB, World, emu_address

from aiougds import (
    AddressError,
    AddressInUseError,
    AddressIsDirectoryError,
    AddressNotFoundError,
    AddressPermissionError,
    CapabilityError,
    OpenError,
    OptionError,
    UGDSError,
)

pytestmark = pytest.mark.few


async def refuse(
    world: World, address: str, kind: type[UGDSError], words: str, **options: object
) -> UGDSError:
    with pytest.raises(kind, match=words) as caught:
        async with world.opening(address, **options):
            raise AssertionError(f"{address} was opened")
    return caught.value


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("file:data", "no known scheme; .*valid are: .*emu:"),
        ("data.bin", "no known scheme"),
        ("", "no known scheme"),
        ("emo:data", "did you mean 'emu:'"),
        ("emu:?sise=1MiB", "no option 'sise'.*did you mean 'size'.*valid are: .*mdts"),
        ("emu:?size", "'size' .* not of the form option=value"),
        ("emu:?size=", "not of the form option=value"),
        ("emu:?size=1MiB&size=2MiB", "'size' is given twice"),
        ("emu:?size=big", "size='big' is not a size such as"),
        ("emu:?size=-5", "size='-5' is not a size"),
        ("emu:?size=18446744073709551616", "more than 2..63 - 1 bytes"),
        ("emu:?size=99999999TiB", "more than 2..63 - 1 bytes"),
        ("emu:?size=1MiB&latency=1e9s", "is not a time such as"),
        ("emu:?size=1MiB&latency=99999999999s", "more than 2..63 - 1 ns"),
        ("emu:?size=0", "size=0 bytes is not a positive multiple of the block size"),
        ("emu:?size=1000", "size=1000 bytes .* block size 4096"),
        ("emu:?size=1MiB&lba=1000", "lba='1000' is not a power of two in 512"),
        ("emu:?size=1MiB&lba=256", "lba='256' is not a power of two in 512"),
        ("emu:?size=1MiB&lba=131072", "in 512 .. 65536"),
        ("emu:?mdts=21", "mdts='21' is not an integer in 0 .. 20"),
        ("emu:?mdts=x", "mdts='x' is not an integer"),
        ("emu:?mqes=0", r"mqes='0' is not an integer in 1 \.\. 65535"),
        ("emu:?mqes=65536", r"in 1 \.\. 65535"),
        ("emu:?step=2", "step='2' is neither 0 nor 1"),
        ("emu:?latency=5", "latency='5' is not a time such as"),
        ("emu:?arbitration=fair", "arbitration='fair' is neither rr nor wrr"),
        ("emu:?data=some", "data='some' is neither none nor full"),
        ("emu:?mpsmin=3&mpsmax=2", "mpsmax is below mpsmin"),
        ("emu:?namespaces=0", "'0' is not ID"),
        ("emu:?namespaces=a", "'a' is not ID"),
        ("emu:?namespaces=1,1", "names 1 twice"),
        ("emu:?namespaces=1:1000", "namespace 1: size=1000 bytes"),
        ("emu:?namespaces=" + ",".join(map(str, range(1, 34))), "33 .* more than 32"),
    ],
)
async def test_malformed_addresses(world: World, address: str, words: str) -> None:
    error = await refuse(world, address, AddressError, words)
    assert isinstance(error, ValueError)


async def test_an_address_is_a_string(world: World) -> None:
    await refuse(world, Path("data"), AddressError, "is a string")  # type: ignore[arg-type]


async def test_a_file_without_a_scheme_gets_a_hint(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(PAGE))
    await refuse(world, str(path), AddressError, f"For a file: 'emu:{path}'")


async def test_transports_of_later_versions(world: World) -> None:
    words = "later version.*/dev/ugds_drv0.*'emu:PATH'"
    await refuse(world, "vfio:0000:65:00.0", CapabilityError, words)


async def test_addresses_of_the_kernel_helper(world: World) -> None:
    for address, words in (
        ("/dev/ugds_drv", "followed by a number"),
        ("/dev/ugds_drv0x", "followed by a number"),
        ("/dev/ugds/", "names no device"),
        ("/dev/ugds_drv0?depth=4", "no options, but .* gives 'depth'"),
    ):
        await refuse(world, address, AddressError, words)
    for address in ("/dev/ugds_drv4096", "/dev/ugds/by-serial/nothing"):
        await refuse(world, address, AddressNotFoundError, "aiougds bind ADDRESS")


async def test_missing_files(world: World, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    error = await refuse(
        world, f"emu:{missing}", AddressNotFoundError, r"missing does not.*size=1GiB"
    )
    assert isinstance(error, FileNotFoundError)
    for address in (f"emu:{missing}/file?size=1MiB", f"emu:{missing}/file"):
        await refuse(world, address, AddressNotFoundError, f"directory {missing}")
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    await refuse(world, f"emu:{path}/below", AddressNotFoundError, "not a path")
    assert not missing.exists()


async def test_a_directory(world: World, tmp_path: Path) -> None:
    for address in (f"emu:{tmp_path}", f"emu:{tmp_path}?size=1MiB"):
        error = await refuse(world, address, AddressIsDirectoryError, "is a directory")
        assert isinstance(error, IsADirectoryError)


async def test_sizes_of_existing_files(world: World, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * PAGE))
    await refuse(
        world,
        f"emu:{path}?size=1MiB",
        AddressError,
        "has 12288 bytes, but size=1048576",
    )
    path.write_bytes(b"")
    for address in (f"emu:{path}", f"emu:{path}?size=1MiB"):
        await refuse(world, address, AddressError, "is empty, .*; remove it")
    assert path.read_bytes() == b""


@pytest.fixture
def files_of_64_mib() -> Iterator[None]:
    """A limit that stands for a file system's, until the test is over."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_size_that_cannot_be_leaves_no_file(
    world: World, tmp_path: Path, files_of_64_mib: None
) -> None:
    path = tmp_path / "file"
    words = f"cannot make {path} 68719476736 bytes long: .* give a smaller size"
    for direct in (0, 1):
        address = f"emu:{path}?size=64GiB&direct={direct}"
        error = await refuse(world, address, OpenError, words)
        assert error.errno == errno.EFBIG
        assert not path.exists()
    address = f"emu:{path}?size=1MiB&namespaces=1,7:64GiB"
    await refuse(world, address, OpenError, "file.ns7 68719476736 bytes")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_held_is_not_removed(world: World, tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "file.ns7"
    address = f"emu:{path}?size=1MiB&namespaces=1,7:2MiB"
    async with world.open(other, emu={"size": 2 * MIB}):
        await refuse(world, address, AddressInUseError, "file.ns7 .* this process")
        assert list(tmp_path.iterdir()) == [other]
    assert other.stat().st_size == 2 * MIB


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that everybody may look into: not below root's own, say."""

    def reachable(base: Path) -> bool:
        return all(
            folder.is_dir() and folder.stat().st_mode & 0o001
            for folder in (base, *base.parents)
        )

    bases = (Path(name) for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"))
    with tempfile.TemporaryDirectory(dir=next(filter(reachable, bases))) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_permissions(world: World, public_folder: Path) -> None:
    path = public_folder / "secret"
    path.write_bytes(bytes(PAGE))
    path.chmod(0o000)
    said = opened_as_nobody(world.address(path))
    assert said.startswith(f"{AddressPermissionError.__name__} True ")
    assert str(path) in said
    path.chmod(0o444)
    said = opened_as_nobody(world.address(path))
    assert said.startswith(f"{AddressPermissionError.__name__} True ")
    assert opened_as_nobody(world.address(path), readonly=True) == "opened\n"
    public_folder.chmod(0o700)
    if os.geteuid() == 0:
        said = opened_as_nobody(world.address(path))
        assert said.startswith(f"{AddressPermissionError.__name__} True ")
        assert "search permission" in said


def test_a_file_that_another_process_holds(world: World, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pattern(PAGE, 1))

    async def body(pid: int) -> None:
        for options in ({}, {"readonly": True}):
            error = await refuse(
                world, world.address(path), AddressInUseError, rf"\b{pid}\b", **options
            )
            assert isinstance(error, BlockingIOError)
            assert str(path) in str(error)

    async def free() -> None:
        async with world.open(path) as ns:
            await ns.write(bytes(PAGE), offset=0)

    with holding(world.address(path)) as pid:
        world.run(body(pid))
    world.run(free())
    assert path.read_bytes() == bytes(PAGE)


def test_readers_share_a_file_with_other_processes(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(pattern(PAGE, 2))

    async def body(pid: int) -> None:
        async with world.open(path, readonly=True) as ns:
            seen = bytearray(PAGE)
            await ns.read(seen, offset=0)
            assert seen == pattern(PAGE, 2)
        await refuse(world, world.address(path), AddressInUseError, rf"\b{pid}\b")

    with holding(world.address(path), readonly=True) as pid:
        world.run(body(pid))


async def test_a_file_that_this_process_holds(world: World, tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with world.open(path, emu={"size": MIB}):
        await refuse(world, emu_address(path), AddressInUseError, "this process")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dept": 5}, "no option 'dept'; did you mean 'depth'"),
        ({"depth": 1}, r"depth=1 is outside 2 \.\. 65536"),
        ({"depth": "64"}, "depth='64': an integer is needed"),
        ({"depth": True}, "depth=True: an integer"),
        ({"mode": "quick"}, "mode='quick' is not known.*adaptive, inline, interrupt"),
        ({"completion": "quick"}, "completion='quick' is not known"),
        ({"mode": "poll", "completion": "inline"}, "contradict"),
        ({"max_transfer": 100}, "max_transfer=100 is outside 4096"),
        ({"spin_us": -1}, "spin_us=-1 is outside"),
        ({"readonly": 1}, "readonly=1: True or False"),
        ({"arbitration": "fair"}, "arbitration='fair' is not known.*rr, wrr"),
        ({"queue_priority": "top"}, "queue_priority='top' is not known.*high, low"),
        ({"hang_timeout_s": 0}, "hang_timeout_s=0 is outside"),
        ({"hang_timeout_s": float("nan")}, "hang_timeout_s=nan is outside"),
    ],
)
async def test_options_of_open(
    world: World, options: dict[str, object], words: str
) -> None:
    error = await refuse(world, world.address(), OptionError, words, **options)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("require_direct=True", {"require_direct": True}),
        ("give spin_us", {"completion": "inline", "spin_us": 0}),
    ],
)
async def test_a_promise_that_cannot_be_kept_makes_no_file(
    world: World, tmp_path: Path, words: str, options: dict[str, object]
) -> None:
    path = tmp_path / "data"
    address = f"emu:{path}?size=1MiB"
    await refuse(world, address, CapabilityError, words, **options)
    assert not path.exists()


@pytest.mark.parametrize("size", ["", "&size=1MiB"])
@pytest.mark.parametrize("how", ["", "?readonly=1"])
async def test_what_is_only_read_is_not_made(
    world: World, tmp_path: Path, how: str, size: str
) -> None:
    address = f"emu:{tmp_path}/data" + (how + size if how else size.replace("&", "?"))
    error = await refuse(
        world, address, AddressNotFoundError, "only read is not made", readonly=not how
    )
    assert "size" not in str(error).removeprefix(address)


async def test_promises_that_cannot_be_kept(world: World) -> None:
    address = world.address()
    await refuse(
        world, address, CapabilityError, "require_direct=True", require_direct=True
    )
    await refuse(
        world, address, CapabilityError, "give spin_us", completion="inline", spin_us=0
    )
    for completion in ("adaptive", "inline", "interrupt", "poll"):
        options = {"completion": completion, "mode": completion}
        async with world.open(**options) as ns:
            assert ns.controller.capabilities.completion == completion
            await ns.read(bytearray(PAGE), offset=0)


async def test_options_from_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOUGDS_DEPTH", "7")
    monkeypatch.setenv("AIOUGDS_SHADOW_DOORBELLS", "0")
    async with world.open(emu={"shadow": 1}) as ns:
        assert ns.controller.capabilities.depth == 7
        assert not ns.controller.capabilities.shadow_doorbells
    async with world.open(depth=9) as ns:
        assert ns.controller.capabilities.depth == 9
    monkeypatch.setenv("AIOUGDS_DEPTH", "deep")
    await refuse(world, world.address(), OptionError, "AIOUGDS_DEPTH='deep'")


async def test_interrupts_from_the_paper_s_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mode(**options: str) -> str:
        async with world.opening(world.address(), **options) as ns:
            found: str = ns.controller.capabilities.completion
            return found

    for text in ("1", "on", "TRUE", "Yes"):
        monkeypatch.setenv("UGDS_INTERRUPT_MODE", text)
        assert await mode() == "interrupt"
        assert await mode(mode="inline") == "inline"
        assert await mode(completion="adaptive") == "adaptive"
    monkeypatch.setenv("AIOUGDS_MODE", "poll")
    assert await mode() == "poll"
    monkeypatch.delenv("AIOUGDS_MODE")
    for text in ("0", "off", "False", "no", ""):
        monkeypatch.setenv("UGDS_INTERRUPT_MODE", text)
        assert await mode() == "adaptive"
    monkeypatch.setenv("UGDS_INTERRUPT_MODE", "maybe")
    await refuse(world, world.address(), OptionError, "='maybe' is neither 1, on, true")
