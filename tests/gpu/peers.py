"""cuFile and KvikIO, for the bars: both in compatibility mode, from the page cache.

Opened with O_DIRECT, both would read the disk.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from aiougds._gpu import peers as package

COMPAT: Final = {
    "properties": {"allow_compat_mode": True, "force_compat_mode": True},
}


def prepare(folder: Path) -> None:
    """Ask for compatibility mode, before either is imported."""
    config = folder / "cufile.json"
    config.write_text(json.dumps(COMPAT))
    os.environ["CUFILE_ENV_PATH_JSON"] = str(config)
    os.environ["KVIKIO_COMPAT_MODE"] = "ON"
    disk = folder.stat().st_dev
    entry = Path(f"/run/udev/data/b{os.major(disk)}:{os.minor(disk)}")
    if os.geteuid() == 0 and not entry.parent.exists():
        entry.parent.mkdir(parents=True)
        entry.write_text("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n")


class Cufile(package.Cufile):
    """As ``aiougds bench`` has it."""

    name = "cuFile read (compat)"


class Kvikio(package.Kvikio):
    """As ``aiougds bench`` has it."""

    name = "KvikIO read (compat)"


def peers(path: Path) -> tuple[list[Cufile | Kvikio], dict[str, str]]:
    """Return the peers that can be had, and why others cannot."""
    found: list[Cufile | Kvikio] = []
    missing: dict[str, str] = {}
    for kind in (Cufile, Kvikio):
        try:
            found.append(kind(path))
        except Exception as exc:  # noqa: BLE001 (theirs, whatever it is)
            missing[kind.name] = f"{type(exc).__name__}: {exc}"
    return found, missing
