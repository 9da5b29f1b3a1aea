"""Rich at a terminal, plain lines when piped, and plain without rich."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from helpers.command_line import CommandLine

WITHOUT_RICH = (
    "import sys; sys.modules['rich'] = None\n"
    "from aiougds.cli import main; sys.exit(main(sys.argv[1:]))"
)
ESCAPE = "\x1b["


def at_a_terminal(aiougds: CommandLine, *start: str, **environment: str) -> str:
    """Run the demo with a terminal for its output; return all that it wrote."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *start, "demo", "--size", "4MiB"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=aiougds.environment | environment,
        cwd=aiougds.folder,
    ) as process:
        os.close(theirs)
        wrote = b""
        try:
            while part := os.read(ours, 65536):
                wrote += part
        except OSError:  # how a terminal tells that nobody has it open any more
            pass
        assert process.wait(timeout=50) == 0, wrote
    os.close(ours)
    return wrote.decode().replace("\r\n", "\n")


def test_rich_at_a_terminal(aiougds: CommandLine) -> None:
    out = at_a_terminal(aiougds, "-m", "aiougds.cli", COLUMNS="80")
    assert ESCAPE in out
    assert "━" in out  # a progress bar
    assert "VERIFIED: 130 chunks" in out
    assert "…" not in out  # no word is cut


@pytest.mark.parametrize(
    ("start", "term"),
    [(("-c", WITHOUT_RICH), "xterm"), (("-m", "aiougds.cli"), "dumb")],
    ids=["without rich", "dumb terminal"],
)
def test_plain_otherwise(
    aiougds: CommandLine, start: tuple[str, ...], term: str
) -> None:
    out = at_a_terminal(aiougds, *start, TERM=term)
    assert ESCAPE not in out
    assert "━" not in out
    assert out.splitlines()[-1].startswith("VERIFIED: 130 chunks")


def test_piped_without_rich(aiougds: CommandLine) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RICH, "info", "emu:?size=1MiB"],
        capture_output=True,
        text=True,
        check=True,
        env=aiougds.environment,
    )
    assert done.stdout.startswith("Controller emu:?size=1MiB\n")
    assert done.stderr == ""
