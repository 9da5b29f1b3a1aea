"""``aiougds top`` at a terminal: as wide and high as it is, and left with ^C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from cli.test_top import busy, runtime  # noqa: F401 (fixtures)
from helpers.command_line import ARGUMENTS, CommandLine

from aiougds.cli._screen import printable

HOME = "\x1b[H"
BELOW = "\x1b[J"
PATIENCE_S = 40


class Terminal:
    """A terminal with ``aiougds top`` in it."""

    def __init__(self, columns: int, rows: int, aiougds: CommandLine) -> None:
        self.fd, theirs = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, *ARGUMENTS, "top", "--interval", "50ms"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=aiougds.environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.wrote = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(
            self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
        )

    def read(self) -> bool:
        """Take what was written; False: nobody has it open any more."""
        assert select.select([self.fd], [], [], PATIENCE_S)[0], self.wrote
        try:
            self.wrote += os.read(self.fd, 65536).decode()
        except OSError:
            return False
        return True

    def frame(self, fits: Callable[[list[str]], bool]) -> list[str]:
        """Return the lines of the first whole frame to come that fits."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.read():
            frames = self.wrote.split(HOME)[1:]
            self.wrote = HOME + frames[-1] if frames else self.wrote
            for text in frames:
                lines = plain(text).split("\n")
                if BELOW in text and fits(lines):
                    return lines
        raise AssertionError(f"no such frame: {self.wrote!r}")

    def end(self) -> str:
        while self.read():
            pass
        return plain(self.wrote)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n")


@pytest.fixture
def terminal(
    aiougds: CommandLine,
    busy: subprocess.Popen[str],  # noqa: F811
) -> Iterator[Callable[[int, int], Terminal]]:
    opened: list[Terminal] = []

    def start(columns: int, rows: int) -> Terminal:
        opened.append(Terminal(columns, rows, aiougds))
        return opened[-1]

    yield start
    for one in opened:
        one.process.kill()
        one.process.wait()
        os.close(one.fd)


def has_commands(lines: list[str]) -> bool:
    return any(line.split()[:2] == ["normal", "write"] for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_it_fits(
    terminal: Callable[[int, int], Terminal],
    busy: subprocess.Popen[str],  # noqa: F811
    columns: int,
) -> None:
    lines = terminal(columns, 50).frame(has_commands)
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert f"process {busy.pid}" in text
    assert "quarantined 0" in text
    (head,) = [line.split() for line in lines if line.startswith("  queue")]
    assert {"per", "p99"} <= set(head)
    assert ("kind" in head) == (columns >= 80)


def test_it_is_cut_at_the_lower_edge(
    terminal: Callable[[int, int], Terminal],
) -> None:
    lines = terminal(80, 8).frame(lambda lines: "more lines)" in lines[6])
    assert len(lines) == 8
    assert lines[7] == ""  # the cursor's


def test_it_follows_the_size(terminal: Callable[[int, int], Terminal]) -> None:
    there = terminal(200, 50)
    wide = there.frame(has_commands)
    assert max(map(len, wide)) > 60
    there.resize(40, 50)
    there.frame(lambda lines: has_commands(lines) and max(map(len, lines)) <= 40)


def test_it_is_left_without_a_complaint(
    terminal: Callable[[int, int], Terminal],
) -> None:
    there = terminal(80, 24)
    there.frame(has_commands)
    os.kill(there.process.pid, signal.SIGINT)
    assert "error" not in there.end()
    assert there.process.wait(PATIENCE_S) == 130


def test_it_says_that_a_process_ended(
    terminal: Callable[[int, int], Terminal],
    busy: subprocess.Popen[str],  # noqa: F811
) -> None:
    there = terminal(80, 24)
    there.frame(has_commands)
    busy.kill()
    busy.wait()
    assert "It has ended." in there.end()
    assert there.process.wait(PATIENCE_S) == 0


def test_what_steers_a_terminal_is_spelt_out() -> None:
    assert printable("a\x1b[2J\n\udcffé") == r"a\x1b[2J\n\udcffé"
