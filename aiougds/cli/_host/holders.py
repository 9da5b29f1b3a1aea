"""Names for what the kernel stacks on a disk, and the command that takes it down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiougds.cli._host.blocks import BLOCK

if TYPE_CHECKING:
    from aiougds.cli._host.system import System


def holder_of(system: System, name: str) -> tuple[str, str]:
    """Return what a holder (``dm-0``, ``md127``, ``bcache0``) is, and the remedy."""
    folder = f"{BLOCK}/{name}"
    if system.exists(f"{folder}/dm"):
        title = system.text(f"{folder}/dm/name") or name
        return _mapping(title, system.text(f"{folder}/dm/uuid") or "")
    if system.exists(f"{folder}/md"):
        level = system.text(f"{folder}/md/level") or ""
        kind = f"the MD array /dev/{name}" + (f" ({level})" if level else "")
        return f"is a member of {kind}", f"mdadm --stop /dev/{name}"
    if system.exists(f"{folder}/bcache"):
        stop = f"echo 1 > /sys/block/{name}/bcache/stop"
        return f"is part of the bcache device /dev/{name}", stop
    return f"is held by /dev/{name}", f"stop using /dev/{name} and take it down"


def _mapping(title: str, uuid: str) -> tuple[str, str]:
    if uuid.startswith("LVM-"):
        group = volume_group(title)
        held = f"is a physical volume of the LVM group {group} (active: {title})"
        return held, f"vgchange --activate n {group}"
    if uuid.startswith("CRYPT-"):
        kind = uuid.split("-")[1].replace("LUKS", "LUKS ")
        return f"is open as the {kind} mapping {title}", f"cryptsetup close {title}"
    if uuid.startswith("mpath-"):
        return f"is a path of the multipath map {title}", f"multipath -f {title}"
    return f"is part of the mapping {title}", f"dmsetup remove {title}"


def volume_group(title: str) -> str:
    """Return ``my-vg`` for ``my--vg-root``: LVM doubles the hyphens of names."""
    head = re.split(r"(?<!-)-(?!-)", title, maxsplit=1)[0]
    return head.replace("--", "-")
