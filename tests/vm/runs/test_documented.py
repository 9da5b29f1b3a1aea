"""What the pages tell somebody with root and a drive to do, and with this bed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents.pages import ROOT, the_one
from vm.bed.cache import cache_folder
from vm.bed.machine import Blocks, Controller, Machine, Peer
from vm.bed.run import GuestRun

HERE = "vm/runs/test_documented.py"
PAGE = "docs/contributing/guests.md"

RUNS = (
    GuestRun(
        "documented-6.12",
        ("vm.checks.documented",),
        machine=Machine((Controller("nv0", (Blocks(mib=24),)),), (Peer("peer0", 16),)),
        modules=("kmod/ugds_drv.ko", "tests/vm/kmod/peer/peerbar.ko"),
        quick=True,
    ),
)


def shell(commands: str, programs: dict[str, str], folder: Path, **env: str) -> str:
    """Run a block in the checkout, where programs of these names are those."""
    for name, run in programs.items():
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
        file.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | env,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(300)
def test_sessions_choose_guests(tmp_path: Path) -> None:
    """In this environment, and told to choose only: what boots is all around here."""
    block = the_one(PAGE, HERE, "nox -s vm")
    nox = f"'{sys.executable}' -m nox --no-venv --no-install"
    said = shell(
        block.source,
        {"nox": nox},
        tmp_path,
        PYTEST_ADDOPTS="--collect-only -q",
        NOX_SCRIPT_MODE="none",
    )
    chosen = [set(part.split()) for part in said.split("Running session vm")[1:]]
    nodes = [{word for word in one if word.startswith("tests/vm/")} for one in chosen]
    quick, full, named, with_kvm = nodes
    assert quick == with_kvm
    assert quick < full
    assert 0 < len(named) < len(quick)
    assert all("6.12" in node and "pattern" in node for node in named)


@pytest.mark.full
@pytest.mark.timeout(0)  # a guest ends in its own time
def test_the_bed_by_hand(tmp_path: Path) -> None:
    """Kernels are unpacked, modules built, a check and a script run in guests."""
    block = the_one(PAGE, HERE, "python tests/vm")
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nprint('HERE:', os.path.exists('/sys/module/ugds_drv'))\n"
    )
    said = shell(
        block.source.replace("script.py", str(script)),
        {"python": f"'{sys.executable}'"},
        tmp_path,
    )
    assert "ugds_drv.ko" in said
    assert "passed two_processors" in said
    assert "HERE: True" in said
    assert "ended well" in said
    assert str(cache_folder("runs")) in said
