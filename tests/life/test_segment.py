"""The file that others see: whose it is, who may read it, and that it goes away."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, until

import aiougds
from aiougds import _glance, _segment
from aiougds._options import open_options

pytestmark = [pytest.mark.anyio, pytest.mark.few]

LEFT_BEHIND = """
import asyncio, os, signal, aiougds

async def main():
    async with aiougds.open("emu:?size=1MiB") as ns:
        print(ns.controller.capabilities.statistics_segment, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def names(folder: Path) -> list[str]:
    home = folder / "aiougds"
    return sorted(os.listdir(home)) if home.exists() else []


async def test_it_shows_what_is_done(runtime: Path, live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        for _ in range(10):
            await ns.read(reg, offset=0)
        await ns.write(reg[:BLOCK], offset=0)
        (seen,) = _glance.everything(str(runtime))
        mine = ns.controller.statistics()
        assert seen.latencies == mine.latencies
        assert seen.queues == mine.queues
        assert (seen.pid, seen.alive, seen.state) == (os.getpid(), True, "live")
        assert seen.address == ns.controller.address
        assert seen.path == ns.controller.capabilities.statistics_segment
        assert ns.controller.capabilities.statistics_segment_reason == ""

        def told() -> bool:
            told = _glance.look(seen.path).told
            return (told["reads"], told["writes"], told["mappings"]) == (10, 1, 1)

        await until(told)  # housekeeping's next look


async def test_wake_ups_are_shown_in_every_mode(runtime: Path, live: Live) -> None:
    async with live("latency=1ms") as ns, ns.allocate(BLOCK) as reg:
        path = ns.controller.capabilities.statistics_segment
        while not ns.controller.statistics().wakeups:
            await ns.read(reg, offset=0)
        mine = ns.controller.statistics()

        def told() -> bool:
            told = _glance.look(path).told
            names = ("reads", "wakeups", "inline_completions")
            return all(told[name] == getattr(mine, name) for name in names)

        await until(told)


async def test_it_is_for_its_user_alone(runtime: Path, live: Live) -> None:
    async with live():
        (name,) = names(runtime)
        home = runtime / "aiougds"
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


async def test_it_goes_with_the_controller(runtime: Path, live: Live) -> None:
    async with live() as ns:
        path = ns.controller.capabilities.statistics_segment
        assert os.path.exists(path)
        async with live():
            assert len(names(runtime)) == 2
        assert len(names(runtime)) == 1
    assert names(runtime) == []


async def test_a_controller_that_does_not_open_leaves_none(runtime: Path) -> None:
    with pytest.raises(aiougds.OpenError):
        await aiougds.open("emu:?size=1MiB&csts=2", admin_timeout_s=0.1)
    assert names(runtime) == []


@pytest.mark.parametrize("option", ["statistics", "statistics_segment"])
async def test_opting_out(runtime: Path, live: Live, option: str) -> None:
    options = {option: False}
    async with live(**options) as ns:  # type: ignore[arg-type]
        assert names(runtime) == []
        capabilities = ns.controller.capabilities
        assert capabilities.statistics_segment == ""
        assert f"{option}=False" in capabilities.statistics_segment_reason


def test_opting_out_by_the_environment() -> None:
    options = open_options({}, {"AIOUGDS_STATISTICS_SEGMENT": "0"})
    assert options.statistics_segment is False


async def test_no_runtime_directory(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, reason in (
        ("", "no XDG_RUNTIME_DIR"),
        (str(tmp_path / "none"), "No such file"),
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        async with live() as ns:
            capabilities = ns.controller.capabilities
            assert capabilities.statistics_segment == ""
            assert reason in capabilities.statistics_segment_reason


async def test_a_folder_that_others_can_write(runtime: Path, live: Live) -> None:
    home = runtime / "aiougds"
    home.mkdir()
    home.chmod(0o777)
    async with live() as ns:
        assert names(runtime) == []
        reason = ns.controller.capabilities.statistics_segment_reason
        assert "can be written by others" in reason


async def test_a_disk_is_no_place_for_it(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True)
    if kind.strip() in ("tmpfs", "ramfs"):
        pytest.skip("temporary files are in memory here")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with live() as ns, ns.allocate(BLOCK) as reg:
        assert names(tmp_path) == []
        reason = ns.controller.capabilities.statistics_segment_reason
        assert "not in memory" in reason
        await ns.read(reg, offset=0)  # kept all the same
        assert ns.controller.statistics().latency("read").commands == 1


def test_what_a_killed_process_left_is_swept(runtime: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert left.exists(), done
    (seen,) = _glance.everything(str(runtime))
    assert not seen.alive
    mine = _segment.make()
    assert names(runtime) == [Path(mine.path).name]
    mine.remove()


def test_what_is_held_is_not_swept(runtime: Path) -> None:
    """A lock says so also where process numbers mean something else."""
    mine = _segment.make()
    mine.describe({})
    other = Path(mine.path).with_name("999999999-1.stats")
    os.rename(mine.path, other)
    _segment.sweep(str(runtime / "aiougds"))
    assert other.exists()
    os.close(mine.fd)
    _segment.sweep(str(runtime / "aiougds"))
    assert not other.exists()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_child_leaves_it_alone(runtime: Path, live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        pid = os.fork()
        if not pid:
            try:
                ns.controller._device.segment.remove()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(names(runtime)) == 1
        await ns.read(reg, offset=0)
        assert _glance.everything(str(runtime))[0].latencies[0].commands == 1


async def test_read_while_it_is_written(runtime: Path, live: Live) -> None:
    """No number falls, and what belongs together fits together."""
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        path = ns.controller.capabilities.statistics_segment
        last = 0
        for _ in range(200):
            await ns.read_many([(reg[:BLOCK], i * BLOCK) for i in range(8)])
            seen = _glance.look(path)
            now = sum(row.commands for row in seen.latencies)
            assert now > last
            assert seen.told["read_bytes"] == seen.told["reads"] * BLOCK
            last = now
            await anyio.sleep(0)


def broken(good: bytes) -> dict[str, bytes]:
    """Return what is no segment, by what is wrong with it."""
    text = 1024
    head = bytearray(good[:4096])

    def with_words(at: int, *words: int) -> bytes:
        changed = bytearray(good)
        changed[at : at + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
        return bytes(changed)

    def saying(what: bytes) -> bytes:
        return good[:text] + what.ljust(4096 - text, b"\0") + good[4096:]

    return {
        "empty": b"",
        "half a head": good[:100],
        "half a page": good[:1000],
        "a page": bytes(head),
        "without its rows": good[:8192],
        "other": b"x" * 8192,
        "pairs": with_words(20, 0xFFFFFFFF),
        "wide pairs": with_words(48, 4096, 0xFFFFFFFF),
        "no pairs": with_words(48, 4096, 0),
        "far rows": with_words(56, 0xFFFFFFF0),
        "wide rows": with_words(60, 0xFFFFFFFF),
        "all wide": with_words(40, *[0xFFFFFFFF] * 9),
        "a list": saying(b"[]"),
        "deep": saying(b"[" * 3000),
        "half a text": saying(b'{"address": "emu:'),
        "bad text": saying(b"\xff\xfe"),
    }


async def test_broken_ones_are_refused(runtime: Path, live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        mine = Path(ns.controller.capabilities.statistics_segment)
        good = mine.read_bytes()
    path = runtime / "aiougds" / "1-1.stats"
    path.write_bytes(good)
    assert _glance.look(str(path)).latencies
    assert _glance.record(str(path), 0.001) == ([], 0)
    for what, raw in broken(good).items():
        path.write_bytes(raw)
        with pytest.raises(ValueError):
            pytest.fail(f"{what}: {_glance.look(str(path))}")
    for raw in (good[:8192], good[:72] + b"\xff" * 12 + good[84:], good[:76]):
        path.write_bytes(raw)
        with pytest.raises(ValueError):
            _glance.record(str(path), 0.001)


def test_an_endless_address_does_not_hide_it(runtime: Path) -> None:
    mine = _segment.make()
    for address, command in (("emu:", "c" * 5000), ("é" * 4000, "c" * 5000)):
        os.pwrite(mine.fd, bytes(4096), 0)
        mine.describe({"address": address, "command": command, "vectors": 3})
        text = os.pread(mine.fd, 3072, 1024).rstrip(b"\0")
        assert len(text) < 3072
        told = json.loads(text)
        assert address.startswith(told["address"])
        assert (told["command"], told["vectors"]) == ("", 3)
    mine.remove()
