"""What lies on the disks of a function, looked at while nobody else can claim them."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiougds._signatures import HEAD_BYTES, TAIL_BYTES, Found, find
from aiougds.cli._failures import CommandError
from aiougds.cli._guard import DISK_KINDS
from aiougds.cli._host.obstacles import Obstacle

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiougds.cli._host.blocks import Disk
    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.obstacles import Kind
    from aiougds.cli._host.system import System


@contextmanager
def claimed(system: System, function: Function) -> Generator[list[Obstacle]]:
    """Claim all disks for the time of the block, and give what stands in the way.

    Held until after the unbind, a claim leaves no moment for a mount in between.
    """
    found: list[Obstacle] = []
    fds: list[int] = []
    try:
        for disk in function.disks:
            fd = _claim(system, disk, found)
            if fd is not None:
                fds.append(fd)
                found += _look(disk, fd)
        yield found
    finally:
        for fd in fds:
            os.close(fd)


def _claim(system: System, disk: Disk, found: list[Obstacle]) -> int | None:
    try:
        return system.claim(disk.node)
    except PermissionError as error:
        raise CommandError(
            f"{disk.node} cannot be looked at: {error.strerror}; run this as root"
        ) from error
    except OSError as error:
        if error.errno == errno.EBUSY:
            found.append(_claimed_by_another(disk))
        else:
            text = f"cannot be opened: {error.strerror}"
            found.append(_unreadable(disk, text, kind="unknown"))
        return None


def _claimed_by_another(disk: Disk) -> Obstacle:
    return Obstacle(
        kind="claimed",
        device=disk.node,
        holder="is claimed by the kernel or a program (a mount, an array, a ZFS pool, "
        "a file system's journal, or an exclusive open)",
        remedy=f"lsblk {disk.node} and zpool status may show who; stop that use",
    )


def _unreadable(disk: Disk, text: str, kind: Kind = "unreadable") -> Obstacle:
    return Obstacle(
        kind=kind,
        device=disk.node,
        holder=text,
        remedy="make it readable, so that it can be seen to be free",
    )


def _look(disk: Disk, fd: int) -> list[Obstacle]:
    found: list[Obstacle] = []
    if disk.partitions:
        found.append(
            Obstacle(
                kind="partitioned",
                device=disk.node,
                holder=f"has partitions: {', '.join(disk.partitions)}",
                remedy=_wipe(disk),
            )
        )
    if not disk.nbytes:
        text = "has no size: its format (metadata?) is none that the kernel can read"
        return [*found, _unreadable(disk, text)]
    try:
        head = _read(fd, 0, min(disk.nbytes, HEAD_BYTES))
        size = min(disk.nbytes, TAIL_BYTES)
        tail = _read(fd, disk.nbytes - size, size)
    except OSError as error:
        return [*found, _unreadable(disk, f"cannot be read: {error.strerror}")]
    held = [item for item in find(head, tail, disk.nbytes) if item.kind in DISK_KINDS]
    if disk.partitions:  # that is what the table says; once is enough
        held = [item for item in held if item.kind != "partition table"]
    return found + [_signature(disk, item) for item in held]


def _signature(disk: Disk, item: Found) -> Obstacle:
    return Obstacle(
        kind="signature",
        device=disk.node,
        holder=f"holds {item.name} ({item.kind}, at byte {item.offset})",
        remedy=_wipe(disk),
    )


def _wipe(disk: Disk) -> str:
    return f"if its data is no longer wanted: wipefs --all {disk.node}"


def _read(fd: int, offset: int, nbytes: int) -> bytes:
    parts: list[bytes] = []
    while nbytes:
        part = os.pread(fd, nbytes, offset)
        if not part:
            raise OSError(errno.EIO, "it ends before its size")
        parts.append(part)
        offset += len(part)
        nbytes -= len(part)
    return b"".join(parts)
