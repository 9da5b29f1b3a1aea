"""Run a script in a process of its own, and judge how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Final

HEADER: Final = """
import asyncio, gc, os, signal, sys, threading, time
import aiougds
from aiougds import blocking
from aiougds.testing import Fault, inject
BLOCK = 4096
"""


def run_script(
    body: str, *arguments: str, timeout_s: float = 15, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Return how the script ended; fail when it does not."""
    return subprocess.run(
        [sys.executable, *options, "-c", HEADER + textwrap.dedent(body), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )


def check_quiet(ended: subprocess.CompletedProcess[str]) -> str:
    """Assert a normal end without a word on stderr; return what it printed."""
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout
