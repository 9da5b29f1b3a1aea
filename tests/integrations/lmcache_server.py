"""LMCache's server as a process of its own, and its benchmark against it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# 4 layers of 4 heads of 64: a chunk of 256 tokens is 1 MiB.
SHAPE = "(2,1024,16,4,64):float16:4"
CHUNK = 2 * 256 * 4 * 64 * 2 * 4


def program(name: str) -> str:
    """Return the path of a console script of this environment."""
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def adapter(address: str, **params: object) -> str:
    """Return ``--l2-adapter`` for ours."""
    given = {"addresses": address, "slot_bytes": CHUNK, **params}
    return json.dumps(
        {
            "type": "plugin",
            "module_path": "aiougds.lmcache",
            "class_name": "AiougdsL2Adapter",
            "adapter_params": given,
        }
    )


class Server:
    """``lmcache server`` with our adapter, and an L1 of a few MiB."""

    def __init__(self, folder: Path, *more: str, l1_gb: float = 0.0625) -> None:
        self.port, self.http = free_port(), free_port()
        self.log = folder / f"server-{self.port}.log"
        self._out = self.log.open("wb")
        command = [
            program("aiougds-lmcache-server"), "--port", str(self.port),
            "--http-port", str(self.http), "--l1-size-gb", str(l1_gb),
            "--eviction-policy", "LRU", "--no-l1-use-lazy",
            "--supported-transfer-mode", "auto", "--shm-name", f"aiougds{self.port}",
            "--prometheus-port", str(free_port()), *more,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LMCACHE_DISABLE_BANNER": "1"},
        )
        end = time.monotonic() + 90
        while "Uvicorn running" not in self.text():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"the server did not start:\n{self.text()}")
            time.sleep(0.1)

    def text(self) -> str:
        """Return what it wrote, without colours."""
        raw = self.log.read_text(errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", raw)

    def hits(self, since: int = 0) -> list[tuple[str, str]]:
        """Return of each retrieve how many chunks were in L1, and how many in L2."""
        return re.findall(r"\((\d+) L1, (\d+) L2\)", self.text()[since:])

    def bench(self, start: int, end: int, *, interval: str) -> dict[str, float]:
        """Run ``lmcache bench server``; return the numbers of its report."""
        command = self.bench_command(start, end, "--interval", interval)
        done = subprocess.run(command, **_QUIET)
        assert done.returncode == 0, done.stdout
        return numbers(done.stdout)

    def bench_command(self, start: int, end: int, *more: str) -> list[str]:
        return [
            program("lmcache"), "bench", "server", "--rpc-url",
            f"tcp://localhost:{self.port}", "--url", f"http://localhost:{self.http}",
            "--mode", "cpu", "--num-tokens", "1024", "--kvcache-shape-spec", SHAPE,
            "--start", str(start), "--end", str(end), *more,
        ]  # fmt: skip

    def kill(self) -> None:
        """Let it end as with a loss of power of the host's programs."""
        self.process.kill()
        self.process.wait()
        self._out.close()

    def stop(self) -> None:
        """Let it end in order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._out.close()


_QUIET = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "timeout": 240,
    "check": False,
    "env": os.environ | {"LMCACHE_DISABLE_BANNER": "1"},
}


def run(*command: str) -> str:
    """Run a program; return what it wrote."""
    done = subprocess.run(command, **_QUIET)
    assert done.returncode == 0, done.stdout
    out: str = done.stdout
    return out


def numbers(text: str) -> dict[str, float]:
    """Return the last value of each line ``name:  number`` of a report."""
    found = re.findall(r"^([^\n:]+):\s+([\d.]+)$", text, re.MULTILINE)
    return {name.strip(): float(value) for name, value in found}
