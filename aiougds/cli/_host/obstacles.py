"""Why a driver must not be taken from a drive: who uses it, and what lies on it.

Use is never overridden: the disk would vanish under a kernel or a program that is in
the middle of something. Contents are, by whoever names the drive's serial number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aiougds.cli._host.blocks import BLOCK, Layer, node_of, stack
from aiougds.cli._host.functions import siblings
from aiougds.cli._host.holders import holder_of
from aiougds.cli._host.scene import Scene, look_around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.blocks import Disk
    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.processes import Process
    from aiougds.cli._host.system import System

Kind = Literal[
    "mounted", "swap", "holder", "claimed", "exported", "functions", "process",
    "partitioned", "signature", "unreadable", "shared", "unknown",
]  # fmt: skip
# Content, and what breaks no kernel: allowed for whoever says the serial number.
OVERRIDABLE: Final = frozenset[Kind](
    ("process", "partitioned", "signature", "unreadable", "shared")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One reason, who it is, and how it is removed."""

    kind: Kind
    device: str
    holder: str
    remedy: str

    @property
    def overridable(self) -> bool:
        """Whether the serial number overrides it."""
        return self.kind in OVERRIDABLE

    def __str__(self) -> str:
        return f"{self.device} {self.holder}"


def uses(
    system: System, function: Function, scene: Scene | None = None
) -> list[Obstacle]:
    """Return who uses a function, as far as sysfs and procfs tell."""
    if scene is None:
        scene = look_around(system, [function])
    found = list(_of_the_function(system, function))
    for disk in function.disks:
        for layer in stack(system, disk, scene.loops):
            node = node_of(system, layer.name)
            found += _mounted(system, node, layer, disk, scene)
            if layer.name in scene.swapped:
                holder = "is swapped to" + _over(layer, disk)
                found.append(_use("swap", node, holder, f"swapoff {node}"))
            found += _stacked(system, layer)
    found += [
        _use("process", process.node, f"is open in {process}", _end(process))
        for process in scene.opened(function.nodes)
    ]
    found += _exported(system, function)
    return list(dict.fromkeys(found))


def _use(kind: Kind, device: str, holder: str, remedy: str) -> Obstacle:
    return Obstacle(kind=kind, device=device, holder=holder, remedy=remedy)


def _end(process: Process) -> str:
    return f"end process {process.pid} ({process.name}), or have it close the device"


def _over(layer: Layer, disk: Disk) -> str:
    """Say what the user may not see: that dm-0 lies on the disk in question."""
    if layer.kind in ("disk", "partition"):
        return ""
    return f" and lies on {disk.node}"


def _mounted(
    system: System,
    node: str,
    layer: Layer,
    disk: Disk,
    scene: Scene,
) -> Iterator[Obstacle]:
    number = system.text(f"{BLOCK}/{layer.name}/dev")
    points = [
        mount.point
        for mount in scene.mounted
        if layer.name in mount.sources or mount.device == number
    ]
    for point in dict.fromkeys(points):
        holder = f"is mounted at {point}" + _over(layer, disk)
        yield _use("mounted", node, holder, f"umount {point}")
    uuid = scene.members.get(layer.name)
    if uuid is None or points:
        return
    others = {name for name, other in scene.members.items() if other == uuid}
    where = next((m.point for m in scene.mounted if m.sources & others), None)
    holder = f"is part of Btrfs {uuid}, mounted" + (f" at {where}" if where else "")
    remedy = f"umount {where}" if where else "unmount that Btrfs where it is mounted"
    yield _use("mounted", node, holder + _over(layer, disk), remedy)


def _stacked(system: System, layer: Layer) -> Iterator[Obstacle]:
    if layer.kind == "holder":
        holder, remedy = holder_of(system, layer.name)
        yield _use("holder", node_of(system, layer.on), holder, remedy)
    elif layer.kind == "loop":
        holder = f"is behind the loop device /dev/{layer.name}"
        remedy = f"losetup --detach /dev/{layer.name}"
        yield _use("holder", node_of(system, layer.on), holder, remedy)


def _of_the_function(system: System, function: Function) -> Iterator[Obstacle]:
    if function.virtual_functions:
        yield _use(
            "functions",
            function.address,
            f"has {function.virtual_functions} virtual functions, which end with it",
            f"echo 0 > {function.folder}/sriov_numvfs",
        )
    for other in siblings(system, function):
        yield _use(
            "shared",
            f"/dev/{function.controller}",
            f"shares its namespaces with the controller /dev/{other}, which goes on "
            f"using them",
            f"bind the function of /dev/{other} too, or detach the namespaces from it",
        )


def _exported(system: System, function: Function) -> Iterator[Obstacle]:
    """The kernel's NVMe target opens a device without claiming it."""
    own = set(function.nodes)
    top = "/sys/kernel/config/nvmet/subsystems"
    for subsystem in system.names(top):
        for nsid in system.names(f"{top}/{subsystem}/namespaces"):
            place = f"{top}/{subsystem}/namespaces/{nsid}"
            node = system.text(f"{place}/device_path") or ""
            on = system.text(f"{place}/enable") == "1"
            if on and node and system.follow(node) in own:
                holder = f"is exported as namespace {nsid} of {subsystem}"
                yield _use("exported", node, holder, f"echo 0 > {place}/enable")
