"""Disk images, a copy for each guest, and files that stand for memory."""

from __future__ import annotations

import shutil
from pathlib import Path

from vm.bed.cache import cache_folder, locked
from vm.bed.machine import MIB, SECTOR, Machine
from vm.bed.qemu import disk, node, peer_file
from vm.guest.pattern import pattern


def template(name: str, mib: int) -> Path:
    """Return the image to copy for a disk."""
    path = cache_folder("disks") / f"{name}-{mib}.img"
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            partial = path.with_suffix(".partial")
            step = MIB // SECTOR
            with partial.open("wb") as file:
                for first in range(0, mib * step, step):
                    file.write(pattern(name, first, step))
            partial.rename(path)
    return path


def make_storage(machine: Machine, share: Path) -> None:
    """Put into the share what the machine's disks and peers keep their bytes in."""
    for folder in ("disks", "peers"):
        (share / folder).mkdir(exist_ok=True)
    for controller in machine.controllers:
        for index, blocks in enumerate(controller.blocks):
            name = node(controller, index)
            if blocks.stored:
                shutil.copyfile(template(name, blocks.mib), disk(share, name))
    for peer in machine.peers:
        path = peer_file(share, peer.name)
        path.touch()
        with path.open("r+b") as file:
            file.truncate(peer.mib * MIB)
