"""What docs/how-to/lmcache.md shows runs as it stands, with our files and sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents.pages import Block, run_by

from .lmcache_server import Server

pytestmark = pytest.mark.timeout(400)

HERE = "integrations/test_lmcache_documented.py"


def block(word: str) -> Block:
    (found,) = [one for one in run_by(HERE) if word in one.source]
    return found


def smaller(source: str, folder: Path) -> str:
    """The same, in a folder and memory that a test may have."""
    for old, new in {
        "/data/kv.img?size=200GiB": f"{folder}/kv.img?size=256MiB",
        "/data/try.img?size=1GiB": f"{folder}/try.img?size=512MiB",
        "/dev/ugds_drv0#serial=S3EVX123": f"emu:{folder}/slab.img?size=1GiB",
        "--l1-size-gb 200 ": "--l1-size-gb 1 ",
    }.items():
        source = source.replace(old, new)
    assert str(folder) in source
    return source


def test_the_benchmark_verifies_every_byte(tmp_path: Path) -> None:
    source = smaller(block("bench l2").source, tmp_path)
    done = subprocess.run(
        ["sh", "-e", "-c", source],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LMCACHE_DISABLE_BANNER": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "All 32 keys data verified OK" in done.stdout


def words_of(program: str, word: str, folder: Path) -> list[str]:
    """What a block calls a program with, as the shell makes it."""
    said = folder / program
    said.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="ascii")
    said.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", smaller(block(word).source, folder)],
        capture_output=True, text=True, check=True,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done.stdout.rstrip("\0").split("\0")


def test_the_server_stores_and_retrieves(tmp_path: Path) -> None:
    """Its options but for the size of LMCache's memory."""
    program, *options = words_of("lmcache", "lmcache server", tmp_path)
    assert program == "server"
    assert options[:2] == ["--l1-size-gb", "20"]
    server = Server(tmp_path, "--l2-store-policy", "skip_l1", *options[2:])
    try:
        assert server.bench(0, 8, interval="0.2")["Checksum OK"] == 8
        before = len(server.text())
        server.bench(0, 8, interval="0")
        assert server.hits(before) == [("0", "4")] * 16
    finally:
        server.stop()


def test_the_server_opens_its_gds_tier(tmp_path: Path) -> None:
    """Over a file. What goes through it wants a GPU: see test_lmcache_gds.py."""
    name = "aiougds-lmcache-server"
    options = words_of(name, name, tmp_path)
    server = Server(tmp_path, *options)
    try:
        assert "aiougds slab opened at emu:" in server.text()
        assert "GDS L1 tier enabled" in server.text()
        assert (tmp_path / "slab.img").stat().st_size == 1 << 30
    finally:
        server.stop()
