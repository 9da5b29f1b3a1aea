"""The command line as users run it: in a process of its own, piped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ARGUMENTS = ("-W", "error", "-m", "aiougds.cli")
# A program that reads and writes until it is ended; it says "ready" first.
BUSY = """
import asyncio, aiougds

async def main():
    async with aiougds.open("emu:?size=1MiB&latency=100us") as ns:
        async with ns.allocate(65536) as reg:
            print("ready", flush=True)
            while True:
                await ns.read(reg[:4096], offset=0)
                await ns.write(reg, offset=0)
                await asyncio.sleep(0.001)

asyncio.run(main())
"""


class CommandLine:
    """Runs ``aiougds`` in a folder; nothing of the user's shell changes its output."""

    __slots__ = ("environment", "folder")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIOUGDS_", "COLUMNS", "FORCE_COLOR", "NO_COLOR"))
        } | {"TMPDIR": str(folder), "TERM": "xterm-256color"}

    def start(self, *args: object) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, *ARGUMENTS, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    def __call__(self, *args: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with self.start(*args) as process:
            try:
                out, err = process.communicate(timeout=50)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def succeed(self, *args: object) -> str:
        """Run a command that has to succeed and to complain about nothing."""
        done = self(*args)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def fail(self, status: int, *args: object) -> str:
        """Run a command that has to fail in one line; return that line."""
        done = self(*args)
        assert done.returncode == status, done
        *usage, line = done.stderr.splitlines()
        assert line.startswith("aiougds"), done
        assert status == 2 or not usage, done
        return line
