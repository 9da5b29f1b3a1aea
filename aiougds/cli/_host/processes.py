"""Processes that have a device node open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds.cli._host.system import System


class Process(NamedTuple):
    """A process and the node that it has open."""

    pid: int
    name: str
    node: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def owner(system: System, folder: str, node: str) -> Process | None:
    """Return the owner of a node of ours, as the module tells everybody.

    It has the device for itself until it ends, whatever became of its file descriptor.
    """
    pid = system.number(f"{folder}/owner")
    if not pid or pid == os.getpid():
        return None
    return Process(pid, system.text(f"/proc/{pid}/comm") or "?", node)


def openers(system: System, nodes: Iterable[str]) -> list[Process]:
    """Return who else has one of the nodes open; others' processes only for root.

    A node is known by its path, and by its device number where a container has it
    under a name of its own.
    """
    paths = set(nodes)
    numbers = {number: node for node in paths if (number := system.device(node))}
    found: dict[tuple[int, str], Process] = {}
    for pid in system.names("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for fd in system.names(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{fd}"
            said = system.link(link)
            if said is None or not said.startswith("/dev/"):
                continue  # a stat of what is no device may wait for a dead server
            node = said if said in paths else numbers.get(system.device(link) or "")
            if node is not None:
                name = system.text(f"/proc/{pid}/comm") or "?"
                found[int(pid), node] = Process(int(pid), name, node)
    return list(found.values())
