"""What a newcomer copies from the pages, in a clone of this tree: ``clone.py``.

As it stands, in the order of each page, in one shell, with no environment there before.
What takes minutes does a part of it here, which an environment variable of the tool's
own chooses; all of it is what CI runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.pages import ROOT, Block, run_by

# CI runs this beside all tests, on what they leave of the processors: no clocks.
TESTS = "-k 'refused or layout' --of-each=1 -o timeout=600"
PART = {"NOXSESSION": "lint", "PYTEST_ADDOPTS": TESTS}
# Of the environment that runs this: a newcomer has none.
NOT_THEIRS = ("VIRTUAL_ENV", "PYTHON", "PIP_REQUIRE", "NOX_", "UV_", "COLUMNS")
LEFT_BEHIND = (".git", ".nox", ".venv", "build", "_build", "__pycache__")


def lay_clone(folder: Path) -> None:
    """What git has, or would, as it lies here; an sdist has no more than that."""
    if not (ROOT / ".git").exists():
        ignore = shutil.ignore_patterns(*LEFT_BEHIND)
        shutil.copytree(ROOT, folder, symlinks=True, ignore=ignore)
    else:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in listed.split("\0"):
            if name and (ROOT / name).exists():
                copy = folder / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy, follow_symlinks=False)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


def environment() -> dict[str, str]:
    """Without the programs of the environment that this runs in."""
    own = str(Path(sys.executable).parent)
    path = [one for one in os.environ["PATH"].split(":") if one != own]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(NOT_THEIRS)
    }
    return kept | PART | {"PATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1"}


def by_page() -> Iterator[tuple[str, list[Block]]]:
    for path, blocks in groupby(run_by("dist/clone.py"), lambda block: block.path):
        yield str(path.relative_to(ROOT)), list(blocks)


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        clone = Path(made, "aiougds")
        lay_clone(clone)
        for page, blocks in by_page():
            shutil.rmtree(clone / ".venv", ignore_errors=True)
            commands = "".join(block.source for block in blocks)
            print(f"{page}:\n{commands}", flush=True)
            began = time.monotonic()
            run = ["sh", "-e", "-c", commands]
            done = subprocess.run(
                run, cwd=clone, env=environment(), stdin=subprocess.DEVNULL
            )
            if done.returncode:
                raise SystemExit(f"{page} fails: {done.returncode}")
            print(f"{page}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
