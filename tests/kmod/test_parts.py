"""The parts of the kernel module that need no kernel, built here and tried."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

HERE = Path(__file__).parent
KMOD = HERE.parent.parent / "kmod"
FLAGS = (
    "-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
    "-Wno-sign-compare", "-Wno-override-init",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("test", sorted(path.stem for path in HERE.glob("test_*.c")))
def test_part_of_the_module(test: str, tmp_path: Path) -> None:
    program = tmp_path / test
    build = ["cc", *FLAGS, f"-I{HERE}", f"-I{KMOD}", f"{HERE / test}.c"]
    subprocess.run([*build, "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not ok" not in done.stdout
