"""``aiougds bench``: what it measures, what it prints, and what it refuses."""

from __future__ import annotations

import json
import random
import signal
import time
from itertools import islice, pairwise
from pathlib import Path

import pytest
from helpers.command_line import CommandLine

from aiougds.cli._load import Direction, Pattern, Plan

MIB = 1 << 20
SHORT = ("--duration", "150ms", "--warmup", "20ms")


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "inline"),
        ("--mode", "poll", "--depth", 3),
        ("--mode", "interrupt", "--size", "64KiB", "--depth", 4),
        ("--uvloop", "--pattern", "sequential"),
        ("--loop", "trio", "--depth", 2),
        ("--batch", 32),
        ("--batch", 200, "--depth", 2, "--size", "512", "--uvloop"),
    ],
    ids=lambda args: " ".join(map(str, args)),
)
def test_reads(aiougds: CommandLine, args: tuple[object, ...]) -> None:
    address = "emu:?size=8MiB&lba=512"
    told = json.loads(aiougds.succeed("bench", address, *SHORT, *args, "--json"))
    plan, read = told["plan"], told["read"]
    assert told["write"] is None
    assert plan["span"] == 8 * MIB
    assert read["operations"] == read["awaits"] * max(1, plan["batch"])
    assert read["iops"] == pytest.approx(read["operations"] / told["seconds"], rel=0.02)
    assert read["bytes_per_s"] == pytest.approx(read["iops"] * plan["size"], rel=0.02)
    latency = list(read["latency_us"].values())
    assert list(read["latency_us"]) == [
        "min", "mean", "p50", "p90", "p95", "p99", "p99_9", "max"
    ]  # fmt: skip
    del latency[1]  # the mean may lie anywhere between min and max
    assert latency == sorted(latency)
    assert latency[0] > 0
    assert told["cpu_us_per_operation"] > 0
    commands = told["controller"]["commands"]
    assert commands >= read["operations"]


def test_mixed(aiougds: CommandLine) -> None:
    args = ("--rw", "mixed", "--mix", 50, "--depth", 2, "--duration", "500ms")
    told = json.loads(aiougds.succeed("bench", "emu:new?size=8MiB", *args, "--json"))
    assert told["read"]["operations"]
    assert told["write"]["operations"]
    assert any((aiougds.folder / "new").read_bytes())


@pytest.mark.parametrize(
    ("rw", "mix", "share"),
    [("read", 25, 0), ("write", 25, 1), ("mixed", 25, 0.75), ("mixed", 100, 0)],
)
def test_the_share_of_writes(rw: Direction, mix: int, share: float) -> None:
    plan = Plan(
        size=4096, depth=1, batch=0, rw=rw, mix=mix, pattern="random", span=MIB,
        duration_s=1, warmup_s=0, seed=1,
    )  # fmt: skip
    writing = plan.writing(random.Random(1))
    assert sum(writing) / len(writing) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("pattern", ["random", "sequential"])
@pytest.mark.parametrize("batch", [0, 1, 7, 200])
def test_offsets_are_blocks_of_the_span(pattern: Pattern, batch: int) -> None:
    plan = Plan(
        size=8192, depth=4, batch=batch, rw="read", mix=0, pattern=pattern,
        span=MIB + 4096, duration_s=1, warmup_s=0, seed=1,
    )  # fmt: skip
    first, second = islice(plan.rounds(random.Random(1), 3), 2)
    assert set(first) == set(second) == set(range(0, MIB, 8192))
    assert len(first) % max(1, batch) == 0
    if pattern == "sequential":
        offsets = [*first, *second]
        assert offsets[0] == 3 * MIB // 4
        assert all((b - a) % MIB == 8192 for a, b in pairwise(offsets))


def test_writes_in_batches(aiougds: CommandLine) -> None:
    args = ("--rw", "write", "--batch", 16, *SHORT)
    out = aiougds.succeed("bench", "emu:new?size=8MiB", *args)
    assert "random write, 4 KiB, batches of 16, 1 at a time" in out


def test_text_for_people(aiougds: CommandLine) -> None:
    out = aiougds.succeed("bench", "emu:?size=8MiB", *SHORT)
    assert "random read, 4 KiB, single awaits, 1 at a time, adaptive on asyncio" in out
    for name in ("IOPS", "bandwidth", "p50", "p99.9", "max", "CPU: "):
        assert name in out
    assert "not an SSD" in out
    assert "\x1b" not in out


def test_reading_changes_nothing_and_needs_no_leave_to_write(
    aiougds: CommandLine, tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    data = b"XFSB" + bytes(MIB - 4)
    image.write_bytes(data)
    image.chmod(0o400)
    aiougds.succeed("bench", f"emu:{image}", *SHORT)
    assert image.read_bytes() == data


@pytest.mark.parametrize("rw", ["write", "mixed"])
@pytest.mark.parametrize("start", [b"XFSB", b"SQLite format 3\0", b"\x89HDF\r\n\x1a\n"])
def test_writing_over_what_is_known_is_refused(
    aiougds: CommandLine, tmp_path: Path, rw: str, start: bytes
) -> None:
    image = tmp_path / "data"
    data = start.ljust(MIB, b"\0")
    image.write_bytes(data)
    line = aiougds.fail(1, "bench", "emu:data", "--rw", rw, *SHORT)
    assert "nothing was written" in line
    assert image.read_bytes() == data
    serial = line.rpartition("--serial ")[2]
    aiougds.succeed("bench", "emu:data", "--rw", rw, "--serial", serial, *SHORT)


def test_sizes_that_do_not_fit(aiougds: CommandLine) -> None:
    def fail(*args: object) -> str:
        return aiougds.fail(2, "bench", "emu:?size=1MiB", *args)

    assert "not a multiple of the block size" in fail("--size", 5000)
    assert "--span 2097152 is outside 4096 (--size) .. 1048576" in fail(
        "--span", "2MiB"
    )
    assert "--span 4096 is outside 65536" in fail("--span", 4096, "--size", "64KiB")
    assert "not allowed with" in fail("--uvloop", "--loop", "trio")


def test_a_span_keeps_to_the_first_bytes(aiougds: CommandLine) -> None:
    args = ("--rw", "write", "--span", "64KiB", *SHORT)
    aiougds.succeed("bench", "emu:new?size=1MiB", *args)
    after = (aiougds.folder / "new").read_bytes()
    assert any(after[: 64 << 10])
    assert not any(after[64 << 10 :])


def test_too_slow_to_measure_is_an_error(aiougds: CommandLine) -> None:
    slow = "emu:?size=1MiB&latency=300ms"
    args = ("--warmup", "100ms", "--duration", "10ms")
    assert "not one operation began" in aiougds.fail(1, "bench", slow, *args)


def test_an_interrupt_drains_and_ends(aiougds: CommandLine) -> None:
    args = ("bench", "emu:new?size=8MiB", "--duration", 60, "--depth", 16)
    began = time.monotonic()
    with aiougds.start(*args, "--mode", "interrupt") as process:
        while not (aiougds.folder / "new").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == ("", "aiougds: error: interrupted\n")
    assert time.monotonic() - began < 30
