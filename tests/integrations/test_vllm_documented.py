"""What docs/how-to/vllm.md shows runs as it stands, with our model, files and ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from documents.pages import Block, run_by, the_one

from .lmcache_server import Server, adapter, free_port
from .test_vllm_tier import Tier, key

pytestmark = pytest.mark.timeout(900)

HERE = "integrations/test_vllm_documented.py"
PROMPT = " ".join(f"w{(17 * i * i + 5 * i) % 500}" for i in range(1300))
# That the same prompt comes from LMCache, and not from the engine's own memory.
OPTIONS = "--dtype float32 --max-model-len 2048 --enforce-eager"
OPTIONS += " --no-enable-prefix-caching"
NO_GPU = "CPU Offloading is currently only supported on CUDA-alike"
OFFLOADING = [block for block in run_by(HERE) if "OffloadingConnector" in block.source]


@contextmanager
def serving(source: str, model: Path, folder: Path, port: int) -> Iterator[Path]:
    """Run the commands; give the log of what ``vllm`` in them says."""
    program = folder / "vllm"
    script = Path(__file__).with_name("vllm_serve.py")
    run = shlex.join([sys.executable, "-P", str(script)])
    program.write_text(f'#!/bin/sh\nexec {run} "$@" --port {port} {OPTIONS}\n')
    program.chmod(0o755)
    log = folder / "vllm.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-e", "-c", f"exec {source.replace('MODEL', str(model))}"],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {
                "PATH": f"{folder}:{os.environ['PATH']}", "VLLM_CPU_KVCACHE_SPACE": "1",
                "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
            },
        )  # fmt: skip
        try:
            yield log
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):  # one that failed waits for its workers
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(log: Path, *words: str) -> str:
    """Wait until it says one of these; return all that it said."""
    end = time.monotonic() + 300
    while not any(word in (said := log.read_text(errors="replace")) for word in words):
        assert time.monotonic() < end, said[-4000:]
        time.sleep(0.5)
    return said


def completion(port: int, model: Path) -> str:
    asked = {"model": str(model), "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        said: str = json.load(answer)["choices"][0]["text"]
    return said


def test_a_prompt_comes_back_through_lmcache(model: Path, tmp_path: Path) -> None:
    """The server as its own page has it; its port instead of the usual one."""
    # 4 layers of 4 heads of 64 in float32: 256 tokens are 2 MiB.
    spec = adapter(f"emu:{tmp_path}/kv?size=128MiB", slot_bytes=2 << 20)
    server = Server(tmp_path, "--l2-store-policy", "skip_l1", "--l2-adapter", spec)
    source = the_one("docs/how-to/vllm.md", HERE, "LMCacheMPConnector").source
    assert "5555" in source
    port = free_port()
    try:
        here = source.replace("5555", str(server.port))
        with serving(here, model, tmp_path, port) as log:
            until(log, "Application startup complete", "initialization failed")
            first = completion(port, model)
            end = time.monotonic() + 60
            while ("0", "5") not in server.hits():  # its L1 lets go when L2 has it
                assert time.monotonic() < end, server.hits()
                assert completion(port, model) == first
    finally:
        server.stop()
    assert first.strip()


def test_they_are_three() -> None:
    assert len(OFFLOADING) == 2
    assert len(run_by(HERE)) == 3


def configured(block: Block) -> dict[str, Any]:
    """The secondary tier that a block configures."""
    (text,) = re.findall(r"'(\{.*\})'", block.source, re.DOTALL)
    (tier,) = json.loads(text)["kv_connector_extra_config"]["secondary_tiers"]
    found: dict[str, Any] = tier
    return found


@pytest.mark.parametrize("block", OFFLOADING, ids=lambda block: block.name)
def test_the_tier_that_is_configured(block: Block, model: Path, tmp_path: Path) -> None:
    """vLLM takes all of it, and ends where it asks for a GPU; the tier moves blocks."""
    ours = f"{tmp_path}/kv.img?size=64MiB"
    here = re.sub(r"/data/kv\.img\?size=\w+", ours, block.source)
    assert ours in here
    here = here.replace("10737418240", "107374182")
    with serving(here, model, tmp_path, free_port()) as log:
        said = until(log, NO_GPU, "Application startup complete")
    assert NO_GPU in said
    assert "TieringOffloadingSpec" in said
    (tmp_path / "kv.img").unlink(missing_ok=True)
    tier = Tier(tmp_path, **configured(block) | {"addresses": f"emu:{ours}"})
    try:
        tier.rows[:] = 7
        assert tier.run([key(1)], [0], load=False).success
        tier.rows[:] = 0
        assert tier.run([key(1)], [1], load=True).success
        assert (tier.rows[1] == 7).all()
    finally:
        tier.tier.shutdown()
