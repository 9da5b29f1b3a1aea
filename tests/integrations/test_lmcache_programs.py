"""LMCache's programs with our adapter: its benchmarks, its server, and a kill -9."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lmcache_server import CHUNK, Server, adapter, numbers, program, run

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for one in made:
        one.stop()


@pytest.mark.parametrize("flush", ["put", "lazy"])
@pytest.mark.parametrize(
    ("keys", "kib", "in_flight"), [(8, 1024, 1), (64, 64, 4), (5, 12, 3)]
)
def test_the_benchmark_of_adapters_verifies_every_byte(
    tmp_path: Path, keys: int, kib: int, in_flight: int, flush: str
) -> None:
    spec = adapter(f"emu:{tmp_path}/kv?size=256MiB", slot_bytes=kib << 10, flush=flush)
    text = run(
        program("lmcache"), "bench", "l2", "--l2-adapter", spec, "--num-keys",
        str(keys), "--data-size-kb", str(kib), "--in-flight", str(in_flight),
        "--rounds", "2", "--no-skip-verify", "--lookup-max-hit-rate", "0.5",
    )  # fmt: skip
    assert f"All {keys * in_flight} keys data verified OK" in text
    assert numbers(text)["Rounds timed out"] == 0
    assert text.count(f"loaded={keys * in_flight}/{keys * in_flight}") == 3


def test_every_retrieve_comes_from_the_store(
    tmp_path: Path, servers: list[Server]
) -> None:
    """A working set of four times L1, which keeps nothing (skip_l1)."""
    l1_gb = 0.0625
    sequences = int(4 * l1_gb * (1 << 30) / (4 * CHUNK))
    server = Server(
        tmp_path, "--l2-store-policy", "skip_l1", "--l2-adapter",
        adapter(f"emu:{tmp_path}/kv?size=512MiB"), l1_gb=l1_gb,
    )  # fmt: skip
    servers.append(server)
    report = server.bench(0, sequences, interval="0.2")
    assert report["Total requests"] == sequences
    assert report["Checksum OK"] == sequences  # what was retrieved is what was stored
    assert report["Checksum FAIL"] == 0
    # A retrieve may come before its store is over, and then from L1; those of a second
    # client, which begins where L1 has forgotten, come from the store, all of them.
    assert server.hits().count(("0", "4")) > sequences // 2
    before = len(server.text())
    server.bench(0, sequences, interval="0")
    hits = server.hits(before)
    assert len(hits) == 2 * sequences
    # On a busy machine L1 may not have let go yet of what was retrieved just before.
    assert set(hits) <= {("0", "4"), ("4", "0")}
    assert hits.count(("0", "4")) > 0.9 * len(hits)


def test_a_killed_server_loses_nothing_that_it_published(
    tmp_path: Path, servers: list[Server]
) -> None:
    spec = adapter(f"emu:{tmp_path}/kv?size=512MiB", checksum="xxh3")
    options = ("--l2-store-policy", "skip_l1", "--l2-adapter", spec)
    server = Server(tmp_path, *options)
    whole = server.bench(0, 16, interval="0.2")
    assert whole["Checksum OK"] == 16
    load = subprocess.Popen(
        server.bench_command(16, 4000, "--interval", "0"), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        before = len(server.text())
        end = time.monotonic() + 60
        while len(server.text()) - before < 4000:
            assert time.monotonic() < end, "no load"
            time.sleep(0.05)
        server.kill()
    finally:
        load.kill()
        load.wait()
    again = Server(tmp_path, *options)
    servers.append(again)
    again.bench(0, 16, interval="0")
    # Everything is retrieved, from the store, which verified each checksum.
    assert again.hits() == [("0", "4")] * 32
    assert "was not loaded" not in again.text()
