"""Disks of a controller, and all that is stacked on them: partitions, mappings, arrays.

With native multipath a namespace is a disk of its subsystem (``nvme0n1``) and each
controller has a hidden path to it (``nvme0c1n1``): what is used is the disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System

SECTOR: Final = 512  # of the attribute "size", whatever the block size is
BLOCK: Final = "/sys/class/block"
_NAMESPACE: Final = re.compile(r"(nvme\d+)(c\d+)?(n\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A namespace that the kernel's driver shows."""

    name: str
    nsid: int | None
    nbytes: int
    lba_bytes: int | None
    partitions: tuple[str, ...]

    @property
    def node(self) -> str:
        """The device node."""
        return f"/dev/{self.name}"


class Layer(NamedTuple):
    """A disk, or something that lies on one; ``on`` is what it lies on directly."""

    name: str
    on: str
    kind: str  # disk, partition, holder, loop


def disks_of(system: System, controller: str) -> tuple[Disk, ...]:
    """Return the namespaces that belong to ``/sys/.../nvme/nvmeX``."""
    names: dict[str, None] = {}
    for entry in system.names(controller):
        match = _NAMESPACE.fullmatch(entry)
        if match is None:
            continue
        head = match[1] + match[3]
        shown = match[2] is None or system.exists(f"{BLOCK}/{head}")
        names[head if shown else entry] = None
    return tuple(_disk(system, name) for name in names)


def _disk(system: System, name: str) -> Disk:
    folder = f"{BLOCK}/{name}"
    return Disk(
        name=name,
        nsid=system.number(f"{folder}/nsid"),
        nbytes=(system.number(f"{folder}/size") or 0) * SECTOR,
        lba_bytes=system.number(f"{folder}/queue/logical_block_size"),
        partitions=tuple(
            entry
            for entry in system.names(folder)
            if system.exists(f"{folder}/{entry}/partition")
        ),
    )


def stack(system: System, disk: Disk, loops: dict[str, list[str]]) -> list[Layer]:
    """Return the disk and all that lies on it, each once, from below."""
    layers = {disk.name: Layer(disk.name, disk.name, "disk")}

    def climb(name: str) -> None:
        for layer in _directly_on(system, name, loops):
            if layer.name not in layers:
                layers[layer.name] = layer
                climb(layer.name)

    climb(disk.name)
    return list(layers.values())


def _directly_on(
    system: System, name: str, loops: dict[str, list[str]]
) -> Iterator[Layer]:
    folder = f"{BLOCK}/{name}"
    for entry in system.names(folder):
        if system.exists(f"{folder}/{entry}/partition"):
            yield Layer(entry, name, "partition")
    for holder in system.names(f"{folder}/holders"):
        yield Layer(holder, name, "holder")
    for loop in loops.get(name, ()):
        yield Layer(loop, name, "loop")


def loops(system: System) -> dict[str, list[str]]:
    """Map block devices to the loop devices over them, which are no holders of them."""
    found: dict[str, list[str]] = {}
    for name in system.names("/sys/block"):
        backing = system.text(f"/sys/block/{name}/loop/backing_file")
        if backing and backing.startswith("/dev/"):
            found.setdefault(kernel_name(system, backing), []).append(name)
    return found


def kernel_name(system: System, node: str) -> str:
    """Return ``dm-0`` for ``/dev/mapper/home``, ``nvme0n1`` for a link by-id."""
    return system.follow(node).rpartition("/")[2]


def node_of(system: System, name: str) -> str:
    """Return the node that people know: ``/dev/mapper/home`` for ``dm-0``."""
    title = system.text(f"{BLOCK}/{name}/dm/name")
    return f"/dev/mapper/{title}" if title else f"/dev/{name}"
