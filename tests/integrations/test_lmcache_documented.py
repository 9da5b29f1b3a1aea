"""What docs/how-to/lmcache.md shows runs as it stands, with our files and sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents.pages import ROOT, Block, blocks_of

from .lmcache_server import Server

pytestmark = pytest.mark.timeout(400)

PAGE = ROOT / "docs" / "how-to" / "lmcache.md"
HERE = "integrations/test_lmcache_documented.py"


def block(word: str) -> Block:
    (found,) = [b for b in blocks_of(PAGE) if b.run_by == HERE and word in b.source]
    return found


def smaller(source: str, folder: Path) -> str:
    """The same, in a folder and memory that a test may have."""
    for old, new in {
        "/data/kv.img?size=200GiB": f"{folder}/kv.img?size=256MiB",
        "/data/try.img?size=1GiB": f"{folder}/try.img?size=512MiB",
    }.items():
        source = source.replace(old, new)
    assert str(folder) in source
    return source


def test_the_page_has_a_server_and_a_benchmark() -> None:
    assert len([b for b in blocks_of(PAGE) if b.run_by == HERE]) == 2


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


def test_the_server_stores_and_retrieves(tmp_path: Path) -> None:
    """Its options as the shell makes them, but for the size of LMCache's memory."""
    said = tmp_path / "lmcache"
    said.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="ascii")
    said.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", smaller(block("lmcache server").source, tmp_path)],
        capture_output=True, text=True, check=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    program, *options = done.stdout.rstrip("\0").split("\0")
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
