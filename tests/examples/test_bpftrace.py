"""The scripts for bpftrace count what a process did. Root, and bpftrace, needed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from documents.pages import run_by

from aiougds import _native

pytestmark = pytest.mark.once

SCRIPTS = Path(__file__).parents[2] / "examples" / "bpftrace"
READS = 100
VICTIM = f"""
import asyncio, os, sys, aiougds
from aiougds.testing import Fault, inject

async def main():
    opening = aiougds.open("emu:?size=1MiB", statistics=len(sys.argv) == 1)
    async with opening as ns, ns.allocate(8192) as reg:
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        for i in range({READS}):
            await ns.read(reg[:4096], offset=i % 256 * 4096)
        await ns.read_many([(reg[:4096], 0), (reg[4096:], 4096)])
        with inject(ns, Fault.status("write", sct=2, sc=0x80)):
            try:
                await ns.write(reg, offset=0)
            except aiougds.MediaError:
                print("done", flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("bpftrace") is None,
    reason="bpftrace is run by root",
)


def test_the_notes_are_readable() -> None:
    """By the tool for it, and no more arguments than bpftrace takes on x86-64: six."""
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    notes = subprocess.run(
        ["readelf", "-n", _native.__file__],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    found = re.findall(
        r"Provider: aiougds\s+Name: (\w+)\s+Location.*\s+Arguments: (.*)", notes
    )
    sizes = {
        (name, tuple(word.split("@")[0] for word in arguments.split()))
        for name, arguments in found
    }
    assert sizes == {
        ("submit", ("2", "4")),
        ("complete", ("2", "1", "4", "2", "8", "8")),
    }


@pytest.fixture
def watched() -> Callable[..., str]:
    def run(*command: str, without: tuple[str, ...] = ()) -> str:
        """Return what bpftrace says of the process above; PID stands for it."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, *without], **pipes)  # type: ignore[call-overload]
        with victim:
            pid = victim.stdout.readline().strip()
            made = [word.replace("PID", pid) for word in command]
            pipes["stderr"] = subprocess.STDOUT
            with subprocess.Popen(made, **pipes) as tracer:  # type: ignore[call-overload]
                said = ""
                while "Attaching" not in said:
                    line = tracer.stdout.readline()
                    if not line:
                        victim.kill()
                        pytest.skip(f"it cannot attach here: {said}")
                    said += line
                # It says so before it does; a probe that is there stops the program.
                # All of them are there when for a while no more came.
                seen = [0, 0, 0, 0, 0]
                while len(set(seen[-5:])) > 1 or not seen[-1]:
                    assert len(seen) < 400, "no probe was attached"
                    signal.sigtimedwait([], 0.05)
                    seen.append(attached(tracer.pid))
                victim.stdin.write("\n")
                victim.stdin.flush()
                assert victim.stdout.readline() == "done\n"
                signal.sigtimedwait([], 1)  # it looks now and then, and at its end not
                tracer.send_signal(signal.SIGINT)
                said += tracer.communicate(timeout=30)[0]
            victim.stdin.write("\n")
            victim.stdin.flush()
            assert victim.wait(30) == 0
        return said

    return run


def script(name: str) -> tuple[str, ...]:
    return ("bpftrace", "-p", "PID", str(SCRIPTS / name))


def attached(pid: int) -> int:
    """Return how many events of the kernel it has open for its probes."""
    links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return sum("perf_event" in link for link in links)


@needs_root
@pytest.mark.few
def test_latencies(watched: Callable[..., str]) -> None:
    said = watched(*script("latency.bt"))
    counts = {
        int(opcode): sum(map(int, re.findall(r"\)\s+(\d+) \|", body)))
        for opcode, body in re.findall(
            r"@latency_ns\[(\d+), \d+\]:((?:\s+\[.*\|)+)", said.replace("|\n\n", "|\n@")
        )
    }
    assert f"@bytes[2]: {(READS + 2) * 4096}" in said
    assert counts[1] == 1


@needs_root
def test_doorbells(watched: Callable[..., str]) -> None:
    said = watched(*script("doorbells.bt"))
    numbers = map(int, re.findall(r"\)\s+(\d+) \|", said))
    assert sum(numbers) in (READS + 1, READS + 2)  # a batch of two may ring twice


@needs_root
def test_slow_ones_and_failures(watched: Callable[..., str]) -> None:
    said = watched(*script("slow.bt"), "60000000")
    lines = re.findall(r"queue \d+ opcode (\d+) bytes (\d+) status (\w+) took", said)
    assert lines == [("1", "8192", "0x280")]


@needs_root
def test_without_statistics_there_are_no_times(watched: Callable[..., str]) -> None:
    said = watched(*script("latency.bt"), without=("statistics",))
    assert f"@bytes[2]: {(READS + 2) * 4096}" in said
    assert "latency_ns" not in said
    said = watched(*script("slow.bt"), "60000000", without=("statistics",))
    assert "WARNING" not in said
    lines = re.findall(r"queue \d+ opcode (\d+) .* status (\w+) took (\d+) us", said)
    assert lines == [("1", "0x280", "0")]


def histograms(said: str) -> dict[str, int]:
    """How much was counted, by the name of the map; keys aside."""
    found: dict[str, int] = {}
    name = ""
    for line in said.splitlines():
        if key := re.match(r"@(\w+)\[", line):
            name = key[1]
        elif count := re.match(r"[\[(].*[\])]\s+(\d+) \|", line):
            found[name] = found.get(name, 0) + int(count[1])
    return found


@needs_root
def test_what_the_page_shows(watched: Callable[..., str], tmp_path: Path) -> None:
    """How docs/how-to/observability.md finds the library, and its two looks."""
    (block,) = run_by("examples/test_bpftrace.py")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    finds, *looks = block.source.splitlines()
    ours = f"PATH={tmp_path}:$PATH\n{finds}"
    counted = [
        histograms(watched("sh", "-e", "-c", f"{ours}\nexec {look}")) for look in looks
    ]
    reads, commands = counted
    assert reads == {"read_ns": READS + 2}
    # A line a doorbell; a batch of two may ring twice, and the write is one more.
    assert set(commands) == {"commands"}
    assert commands["commands"] in (READS + 2, READS + 3)
