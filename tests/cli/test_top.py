"""``aiougds top``: seen from a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command_line import BUSY, CommandLine

INTERVALS = ("300ms", "3s", "15s")  # until a busy machine lets the process do something


@pytest.fixture
def runtime(aiougds: CommandLine) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    aiougds.environment["XDG_RUNTIME_DIR"] = str(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def busy(aiougds: CommandLine, runtime: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdout=subprocess.PIPE,
        text=True,
        env=aiougds.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_json(aiougds: CommandLine, busy: subprocess.Popen[str]) -> None:
    for interval in INTERVALS:
        args = ("--once", "--json", "--interval", interval)
        told = json.loads(aiougds.succeed("top", busy.pid, *args))
        assert told["schema"] == 1
        (seen,) = told["controllers"]
        if seen["totals"]["reads"] and len(seen["recent"]) > 1:
            break
    assert (seen["pid"], seen["state"]) == (busy.pid, "live")
    assert seen["address"] == "emu:?size=1MiB&latency=100us"
    assert seen["totals"]["reads"] > 0
    assert seen["per_second"]["reads"] >= 0
    recent = {row["command"]: row for row in seen["recent"]}
    assert recent.keys() == {"read", "write"}
    assert recent["read"]["io_class"] == "normal"
    assert 100 <= recent["read"]["p50_us"] <= recent["read"]["p99_us"]
    used = [queue for queue in seen["queues"] if queue["commands"]]
    assert used
    assert used[0]["recent"]["commands"] > 0


def test_text(aiougds: CommandLine, busy: subprocess.Popen[str]) -> None:
    for interval in INTERVALS:
        out = aiougds.succeed("top", "emu:", "--once", "--interval", interval)
        words = [line.split()[:4] for line in out.splitlines()]
        if ["normal", "read", "4", "KiB"] in words:
            break
    assert f"process {busy.pid}" in out
    assert "queue pairs in use" in out
    assert ["normal", "read", "4", "KiB"] in words


def test_it_ends_with_what_it_watches(
    aiougds: CommandLine, busy: subprocess.Popen[str]
) -> None:
    with aiougds.start("top", "--json", "--interval", "50ms") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["controllers"][0]["pid"] == busy.pid
        busy.kill()
        busy.wait()
        *_, last = process.stdout.read().splitlines()
        assert json.loads(last)["controllers"] == []
        assert process.wait() == 0


def test_nothing_to_see(aiougds: CommandLine, runtime: Path) -> None:
    assert "no process" in aiougds.fail(1, "top", "--once")


def test_another_target(aiougds: CommandLine, busy: subprocess.Popen[str]) -> None:
    there = f"there are: {busy.pid} emu:"
    for target, why in (
        (os.getpid(), "shows no controller here"),
        (1 << 30, f"there is no process {1 << 30}"),
        ("emu:other", "nothing here is 'emu:other'"),
    ):
        line = aiougds.fail(1, "top", target)
        assert why in line
        assert there in line


def test_a_process_of_another_version(aiougds: CommandLine, runtime: Path) -> None:
    (runtime / "aiougds").mkdir()
    path = runtime / "aiougds" / f"{os.getpid()}-1.stats"
    path.write_bytes(b"UGDSTALY" + bytes([9]) + bytes(8192))
    line = aiougds.fail(1, "top", os.getpid())
    assert f"{path}: it has layout 9; this version reads 1" in line


def test_a_process_of_somebody_else(
    aiougds: CommandLine, busy: subprocess.Popen[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with subprocess.Popen(["sleep", "60"], user=65534) as other:
        line = aiougds.fail(1, "top", other.pid)
        other.kill()
    assert f"process {other.pid} belongs to user 65534" in line


def test_text_of_a_process_steers_no_terminal(
    aiougds: CommandLine, runtime: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, b"\x1b[2J\n\xff"],
        stdout=subprocess.PIPE,
        text=True,
        env=aiougds.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        out = aiougds.succeed("top", process.pid, "--once", "--interval", "50ms")
        process.kill()
    assert out.splitlines()[1] == r"  -c \x1b[2J\n\udcff"


def test_what_is_no_segment_is_passed_over(
    aiougds: CommandLine, busy: subprocess.Popen[str], runtime: Path
) -> None:
    home = runtime / "aiougds"
    (home / "1-1.stats").write_bytes(b"")
    (home / "1-2.stats").write_bytes(b"UGDSTALY" + bytes(100))
    os.mkfifo(home / "1-3.stats")
    (home / "1-4.stats").symlink_to(f"{busy.pid}-1.stats")
    (home / "1-5.stats").mkdir()
    told = json.loads(aiougds.succeed("top", "--once", "--json", "--interval", "50ms"))
    assert [seen["pid"] for seen in told["controllers"]] == [busy.pid]


def test_no_runtime_directory(aiougds: CommandLine) -> None:
    aiougds.environment.pop("XDG_RUNTIME_DIR", None)
    said = aiougds.fail(2, "top")
    assert "XDG_RUNTIME_DIR is not set" in said
    assert f"/run/user/{os.geteuid()}" in said
    aiougds.environment["XDG_RUNTIME_DIR"] = "/nowhere"
    assert "interval" in aiougds.fail(2, "top", "--interval", "0")
