"""What is kept between runs, and shared by all that run at the same time."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def cache_folder(*parts: str) -> Path:
    """Return a folder of the cache: ``UGDS_VM_CACHE``, else below ``~/.cache``."""
    named = os.environ.get("UGDS_VM_CACHE")
    top = Path(named) if named else Path.home() / ".cache" / "aiougds-vm"
    folder = top.joinpath(*parts).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock on ``path`` against other processes and threads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def made_once(final: Path) -> Generator[Path | None]:
    """Give a folder to fill that becomes ``final``, or None where that is there.

    A run that fails half-way leaves nothing behind: ``final`` appears complete or not
    at all.
    """
    with locked(final.parent / f".{final.name}.lock"):
        if final.is_dir():
            yield None
            return
        partial = final.parent / f".{final.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(final)
