"""``aiougds bench --suite``, ``top`` and ``trace`` with a drive behind the helper."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import aiougds.blocking
from aiougds.cli import main
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import node


def told(*words: str) -> dict[str, Any]:
    """Run a command in this process: another interpreter would take seconds here."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(words) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@contextmanager
def runtime() -> Generator[Path]:
    """Keep statistics segments in memory, as a login would have it."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        os.environ["XDG_RUNTIME_DIR"] = name
        yield Path(name)
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before


@check(limit_s=120)
def suites_run_on_a_drive(ground: Ground) -> None:
    path = node(ground, "nv0")
    grid = ("--sizes", "4KiB", "--tasks", "1,2", "--peers", "none", "--repeat", "1")
    short = ("--duration", "100ms", "--warmup", "10ms", "--modes", "inline,interrupt")
    found = told("bench", path, "--suite", "sync,poll", *grid, *short, "--json")
    for suite in found["suites"]:
        device = suite["device"]
        assert (device["address"], device["transport"]) == (path, "kmod")
        assert device["label"].startswith("EMULATED DRIVE")
        assert {cell["side"] for cell in suite["cells"]} == {
            "aiougds inline",
            "aiougds interrupt",
        }
        for cell in suite["cells"]:
            assert cell["metrics"]["latency"]["median"] > 0


@check(limit_s=60)
def a_drive_is_watched_by_its_node(ground: Ground) -> None:
    path = node(ground, "nv0")
    with (
        runtime(),
        aiougds.blocking.open(path) as ns,
        ns.allocate(4096) as reg,
    ):
        capabilities = ns.controller.capabilities
        assert capabilities.statistics_segment, capabilities.statistics_segment_reason
        for _ in range(10):
            ns.read(reg, offset=0)
        seen = told("top", path, "--once", "--json", "--interval", "10ms")
        (one,) = seen["controllers"]
        assert (one["pid"], one["transport"]) == (os.getpid(), "kmod")
        assert one["pci_address"] == ground.address("nv0")
        assert sum(queue["commands"] for queue in one["queues"]) == 10
        ns.controller.trace(60)
        ns.read(reg, offset=0)
        (line,) = ns.controller.timelines()
        assert line.completed_ns >= (line.doorbell_ns or 0) >= line.queued_ns > 0
