"""What ``aiougds bind`` remembers of a function until ``aiougds unbind``.

A file per function below /run, which a boot empties, in the format that udev imports:
so the link by serial number needs no program of ours when the node appears. The serial
number is what the nvme driver read before it let go; the module knows no command.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiougds.cli._host.system import System

FOLDER: Final = "/run/aiougds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How it was before."""

    serial: str
    model: str
    driver: str
    override: str  # "" for none
    incarnation: int  # of its folder in sysfs: another drive in the slot has another


_KEYS: Final = {
    "UGDS_SERIAL": "serial",
    "UGDS_MODEL": "model",
    "UGDS_PREVIOUS_DRIVER": "driver",
    "UGDS_PREVIOUS_OVERRIDE": "override",
    "UGDS_INCARNATION": "incarnation",
}


def incarnation(system: System, address: str) -> int:
    """Return what tells this function from a later one at the same address."""
    folder = system.follow(f"/sys/bus/pci/devices/{address}")
    return system.identity(folder)


def link_name(serial: str) -> str:
    """Return the serial number as a file name that udev leaves as it is."""
    return re.sub(r"[^A-Za-z0-9.+=@:_-]", "_", serial).lstrip(".") or "_"


def load(system: System, address: str) -> Record | None:
    """Return what is remembered of this very function; None for an earlier one's."""
    lines = (system.text(f"{FOLDER}/{address}") or "").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    values = {name: found.get(key) for key, name in _KEYS.items()}
    if None in values.values():
        return None
    kept = Record(
        serial=values["serial"] or "",
        model=values["model"] or "",
        driver=values["driver"] or "",
        override=values["override"] or "",
        incarnation=int(values["incarnation"] or "0"),
    )
    try:
        return kept if kept.incarnation == incarnation(system, address) else None
    except OSError:
        return None


def save(system: System, address: str, kept: Record) -> None:
    """Write it, whole or not at all."""
    lines = {key: str(getattr(kept, name)) for key, name in _KEYS.items()}
    lines["UGDS_SERIAL_LINK"] = link_name(kept.serial)
    text = "".join(
        f"{key}={''.join(c for c in value if c.isprintable())}\n"
        for key, value in lines.items()
    )
    path = system.path(f"{FOLDER}/{address}")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{address}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def forget(system: System, address: str) -> None:
    """Remove it, if it is there."""
    system.path(f"{FOLDER}/{address}").unlink(missing_ok=True)
