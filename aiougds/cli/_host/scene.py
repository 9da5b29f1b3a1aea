"""What the whole machine mounts, swaps to and has open: read once for all drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiougds.cli._host.blocks import loops
from aiougds.cli._host.mounts import Mount, btrfs_members, mounts, swaps
from aiougds.cli._host.processes import Process, openers, owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.system import System


class Scene(NamedTuple):
    """Who may be using something."""

    mounted: list[Mount]
    swapped: set[str]
    members: dict[str, str]  # of mounted Btrfs: device to UUID
    loops: dict[str, list[str]]  # block device to the loop devices over it
    processes: list[Process]

    def opened(self, nodes: Sequence[str]) -> list[Process]:
        """Return who has one of the nodes open."""
        return [process for process in self.processes if process.node in nodes]


def look_around(system: System, functions: Sequence[Function]) -> Scene:
    """Read it, as far as it concerns some functions."""
    nodes = {node for function in functions for node in function.nodes}
    found = openers(system, nodes)
    for function in functions:
        if function.node is not None and function.node_folder is not None:
            told = owner(system, function.node_folder, function.node)
            found += [told] if told is not None and told not in found else []
    return Scene(
        mounts(system), swaps(system), btrfs_members(system), loops(system), found
    )
