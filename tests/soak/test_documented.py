"""What docs/how-to/bench.md shows: whole runs of the suites, which take minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents.pages import run_by

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

# For a device that there is not, and the grids of a whole night.
INSTEAD = {
    "/dev/ugds_drv0": "emu:data.bin",
    "--suite sync,batch": "--suite sync,batch --quick",
}


def test_every_suite_is_measured_kept_and_drawn(tmp_path: Path) -> None:
    (block,) = run_by("soak/test_documented.py")
    commands = block.source
    for shown, meant in INSTEAD.items():
        assert shown in commands
        commands = commands.replace(shown, meant)
    program = tmp_path / "bin" / "aiougds"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aiougds.cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "data.bin").write_bytes(bytes(64 << 20))
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    for suite in ("setup", "sync", "batch", "stream", "poll"):
        assert suite in done.stdout
    assert (tmp_path / "run.json").stat().st_size > 1000
    assert len(list((tmp_path / "figures").iterdir())) >= 2
