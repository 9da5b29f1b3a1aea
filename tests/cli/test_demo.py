"""``aiougds demo``: it verifies, says so, and cleans up; and it can fail."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from helpers.command_line import CommandLine

from aiougds.cli import main
from aiougds.cli._cache import Cache, Measured

ESCAPE = "\x1b"


def left_behind(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_it_ends_in_verified_and_leaves_nothing(
    aiougds: CommandLine, tmp_path: Path
) -> None:
    out = aiougds.succeed("demo", "--size", "8MiB")
    assert out.splitlines()[-1] == (
        "VERIFIED: 132 chunks, 8.5 MiB, every byte is what was stored"
    )
    assert "page cache, not an SSD" in out
    assert re.search(r"lone await of 4 KiB +2,000 +[\d.]+ [MG]B/s", out)
    assert ESCAPE not in out
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_json_has_stable_names(aiougds: CommandLine, loop: str) -> None:
    told = json.loads(
        aiougds.succeed("demo", "--size", "4MiB", "--json", "--loop", loop)
    )
    assert told["verified"] is True
    assert told["loop"] == loop
    assert told["chunks"] == 2 + 128
    assert told["bytes"] == (4 << 20) + 128 * 4096
    assert (told["mismatches"], told["iommu_faults"]) == ([], 0)
    assert len(told["measurements"]) == 5
    for row in told["measurements"]:
        assert set(row) == {
            "name", "count", "bytes", "seconds", "bytes_per_s", "latency_us"
        }  # fmt: skip
        latency = row["latency_us"]
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
        assert row["bytes_per_s"] == pytest.approx(
            row["bytes"] / row["seconds"], rel=0.01
        )


def test_path_is_made_and_removed(aiougds: CommandLine, tmp_path: Path) -> None:
    aiougds.succeed("demo", "--size", "2MiB", "--path", tmp_path / "kv")
    assert left_behind(tmp_path) == []


def test_what_exists_is_not_touched(aiougds: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "link"):
        line = aiougds.fail(1, "demo", "--path", tmp_path / name)
        assert "exists; the demo only writes to a file that it makes itself" in line
    assert (tmp_path / "mine").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_impossible_sizes(aiougds: CommandLine, tmp_path: Path) -> None:
    assert "less than one chunk of 2 MiB" in aiougds.fail(2, "demo", "--size", "1MiB")
    line = aiougds.fail(1, "demo", "--size", "1000TiB")
    assert "free" in line
    assert "--path" in line
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("kind", ["text", "json"])
def test_one_wrong_bit_is_not_verified(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    restore: Callable[..., Awaitable[list[Measured]]] = Cache.restore

    async def and_flip(self: Cache, advance: Callable[[int], None]) -> list[Measured]:
        measured = await restore(self, advance)
        self._reg.view[3 << 20] ^= 1
        return measured

    monkeypatch.setattr(Cache, "restore", and_flip)
    args = ["demo", "--size", "4MiB", "--path", str(tmp_path / "kv"), "-o", kind]
    assert main(args) == 1
    out, err = capfd.readouterr()
    assert "NOT VERIFIED: 1 of 130 chunks differ (layer 1 tokens 0-511)" in err
    if kind == "json":
        told = json.loads(out)
        assert told["verified"] is False
        assert told["mismatches"] == ["layer 1 tokens 0-511"]
    else:
        assert "VERIFIED" not in out
    assert left_behind(tmp_path) == []
