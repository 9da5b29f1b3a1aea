"""vLLM on a CPU, LMCache's server, our store: what is restored says the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .lmcache_server import Server, adapter

pytestmark = pytest.mark.timeout(900)


def engine(model: Path, port: int) -> dict[str, Any]:
    """Run an engine in a process of its own."""
    script = str(Path(__file__).with_name("vllm_engine.py"))
    done = subprocess.run(
        [sys.executable, "-P", script, str(model), str(port)],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
            "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def test_a_restored_prefix_says_the_same(model: Path, tmp_path: Path) -> None:
    plain = engine(model, 0)
    # 4 layers of 4 heads of 64 in float32: 256 tokens are 2 MiB.
    spec = adapter(f"emu:{tmp_path}/kv?size=128MiB", slot_bytes=2 << 20)
    options = ("--l2-store-policy", "skip_l1", "--l2-adapter", spec)
    server = Server(tmp_path, *options)
    try:
        first = engine(model, server.port)
    finally:
        server.stop()
    again = Server(tmp_path, *options)  # whose L1 is empty
    try:
        second = engine(model, again.port)
        hits = again.hits()
    finally:
        again.stop()
    assert first["cached"] in (0, None)
    assert second["cached"] == 1280  # five chunks
    assert hits == [("0", "5")]
    assert plain["tokens"] == first["tokens"] == second["tokens"]
    for one, other in zip(plain["logprobs"], second["logprobs"], strict=True):
        assert one.keys() == other.keys()
        for token in one:
            assert other[token] == pytest.approx(one[token], abs=1e-4)
