"""The programs of examples/: run as their readers run them, or imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"


def command(name: str, *args: object) -> list[str]:
    """Return what runs it; a warning is an error."""
    script = str(EXAMPLES / f"{name}.py")
    return [sys.executable, "-W", "error", script, *map(str, args)]


def run(name: str, *args: object, **env: str) -> str:
    """Run it to its end, and return what it printed."""
    done = subprocess.run(
        command(name, *args),
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | {"PYTHONSAFEPATH": "1"} | env,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@contextmanager
def imported(name: str) -> Iterator[ModuleType]:
    """Import it for as long as a ``with``."""
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    try:
        spec.loader.exec_module(found)
        yield found
    finally:
        del sys.modules[spec.name]
