"""What is mounted and what is swapped to, in every mount namespace that can be seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aiougds.cli._host.blocks import kernel_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System


class Mount(NamedTuple):
    """A line of mountinfo."""

    device: str  # MAJOR:MINOR; of no disk (0:N) for Btrfs, overlay, ZFS and the like
    point: str
    kind: str
    sources: frozenset[str]  # kernel names of the block devices that it names


def _plain(text: str) -> str:
    """Undo the octal escapes of procfs."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mounts(system: System) -> list[Mount]:
    """Return what is mounted, each once."""
    found: dict[Mount, None] = {}
    for where in _namespaces(system):
        for line in (system.text(where) or "").splitlines():
            mount = _parse(system, line)
            if mount is not None:
                found[mount] = None
    return list(found)


def _namespaces(system: System) -> Iterator[str]:
    """A mountinfo of each mount namespace: containers mount what we do not see."""
    yield "/proc/self/mountinfo"
    seen = {system.link("/proc/self/ns/mnt")}
    for pid in system.names("/proc"):
        if not pid.isdigit():
            continue
        namespace = system.link(f"/proc/{pid}/ns/mnt")
        if namespace is not None and namespace not in seen:
            seen.add(namespace)
            yield f"/proc/{pid}/mountinfo"


def _parse(system: System, line: str) -> Mount | None:
    # 36 35 8:1 / /home rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw
    before, dash, after = line.partition(" - ")
    fields, more = before.split(" "), after.split(" ")
    if not dash or len(fields) < 6 or len(more) < 2:
        return None
    # bcachefs names all its devices in one field: /dev/sda:/dev/sdb
    sources = [_plain(part) for part in more[1].split(":")]
    return Mount(
        device=fields[2],
        point=_plain(fields[4]),
        kind=more[0],
        sources=frozenset(
            kernel_name(system, source)
            for source in sources
            if source.startswith("/dev/")
        ),
    )


def btrfs_members(system: System) -> dict[str, str]:
    """Map the devices of every mounted Btrfs to its UUID; mountinfo names only one."""
    folder = "/sys/fs/btrfs"
    return {
        device: uuid
        for uuid in system.names(folder)
        for device in system.names(f"{folder}/{uuid}/devices")
    }


def swaps(system: System) -> set[str]:
    """Return kernel names of swap devices. A swap file lies in what is mounted."""
    lines = (system.text("/proc/swaps") or "").splitlines()[1:]
    return {
        kernel_name(system, _plain(fields[0]))
        for line in lines
        if (fields := line.split()) and len(fields) > 1 and fields[1] != "file"
    }
