"""Run a script in a process of its own, and judge how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

HEADER: Final = """
import asyncio, gc, os, signal, sys, threading, time
import aiougds
from aiougds import blocking
from aiougds.testing import Fault, inject
BLOCK = 4096
# Ignored, where the tests run in the background of a shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def run_script(
    body: str, *arguments: str, timeout_s: float = 50, options: tuple[str, ...] = ()
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


def run_scripts(
    bodies: Iterable[str],
    *arguments: str,
    timeout_s: float = 50,
    options: tuple[str, ...] = (),
) -> list[subprocess.CompletedProcess[str]]:
    """Run scripts that have nothing to do with each other side by side."""
    with ThreadPoolExecutor(4) as pool:
        return list(
            pool.map(
                lambda body: run_script(
                    body, *arguments, timeout_s=timeout_s, options=options
                ),
                bodies,
            )
        )


def check_quiet(ended: subprocess.CompletedProcess[str]) -> str:
    """Assert a normal end without a word on stderr; return what it printed."""
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def check_all_quiet(
    bodies: Iterable[str], *arguments: str, options: tuple[str, ...] = ()
) -> list[str]:
    """Run scripts side by side; each must end well and without a word."""
    return [check_quiet(e) for e in run_scripts(bodies, *arguments, options=options)]
