"""What a process may do: capabilities, groups, limits; and what a node answers it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiougds.cli._host.system import System

CAP_IPC_LOCK: Final = 14
CAP_SYS_RAWIO: Final = 17
API_MAJOR: Final = 1  # kmod/uapi/ugds_ioctl.h
_INFO: Final = 0xAF00  # _IO(0xAF, 0)
_INFO_LAYOUT: Final = struct.Struct("=IIHHIQQQIIIIIiIHHHHIQ")


@dataclass(frozen=True, slots=True)
class Answer:
    """What opening a node gave: the version of its interface, or an error."""

    version: tuple[int, int] | None
    error: int = 0

    @property
    def busy(self) -> bool:
        """Whether somebody has it open."""
        return self.error == errno.EBUSY


def ask(system: System, node: str) -> Answer:
    """Open a node, ask for the version, close it. The drive is not touched by that."""
    try:
        fd = os.open(system.path(node), os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return Answer(None, error.errno or errno.EIO)
    try:
        told = bytearray(_INFO_LAYOUT.size)
        struct.pack_into("=I", told, 0, len(told))
        fcntl.ioctl(fd, _INFO, told)
    except OSError as error:
        return Answer(None, error.errno or errno.EIO)
    finally:
        os.close(fd)
    fields = _INFO_LAYOUT.unpack(told)
    return Answer((fields[2], fields[3]))


def capable(system: System, capability: int) -> bool:
    """Whether this process has a capability in effect."""
    return bool(int(_status(system, "CapEff") or "0", 16) >> capability & 1)


def user(system: System) -> int:
    """Return the effective user."""
    return int((_status(system, "Uid") or "0 0").split()[1])


def groups(system: System) -> set[int]:
    """Return all groups of this process."""
    gids = (_status(system, "Gid") or "").split() + (
        _status(system, "Groups") or ""
    ).split()
    return {int(gid) for gid in gids}


def _status(system: System, key: str) -> str | None:
    for line in (system.text("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.strip()
    return None


def memory_lock(system: System) -> int | None:
    """Return the soft limit of locked memory in bytes; None for no limit."""
    for line in (system.text("/proc/self/limits") or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = line.split()[3]
            return None if soft == "unlimited" else int(soft)
    return None


def group_id(system: System, name: str) -> int | None:
    """Return the number of a group of /etc/group."""
    for line in (system.text("/etc/group") or "").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) > 2 and fields[2].isdigit():
            return int(fields[2])
    return None
