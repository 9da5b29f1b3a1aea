"""NVMe functions on the PCI bus, and what is known of them without a command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._host import record
from aiougds.cli._host.blocks import Disk, disks_of, kernel_name

if TYPE_CHECKING:
    from aiougds.cli._host.system import System

DEVICES: Final = "/sys/bus/pci/devices"
DRIVERS: Final = "/sys/bus/pci/drivers"
NVME_CLASS: Final = 0x010802
OURS: Final = "ugds_drv"
_ADDRESS: Final = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.I
)
_CONTROLLER: Final = re.compile(r"nvme\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """An NVMe function. What no driver tells is None, and never guessed."""

    address: str
    pci_id: str
    driver: str | None
    override: str | None
    controller: str | None  # nvme0
    node: str | None  # /dev/ugds_drv0
    node_folder: str | None  # of that node, in sysfs
    model: str | None
    serial: str | None
    firmware: str | None
    known_from: str | None  # nvme: its driver says so now; bind: it did at the bind
    numa_node: int | None
    iommu_group: str | None
    iommu_type: str | None
    iommu_members: tuple[str, ...]  # the other devices of the group
    virtual_functions: int
    disks: tuple[Disk, ...]

    @property
    def folder(self) -> str:
        """Its folder in sysfs."""
        return f"{DEVICES}/{self.address}"

    @property
    def nbytes(self) -> int | None:
        """What its namespaces hold; None where no driver tells."""
        return sum(disk.nbytes for disk in self.disks) if self.controller else None

    @property
    def nodes(self) -> list[str]:
        """All device nodes through which the drive may be used."""
        if self.driver == "vfio-pci" and self.iommu_group:
            return [f"/dev/vfio/{self.iommu_group}"]
        nodes = [f"/dev/{self.controller}"] if self.controller else []
        nodes += [self.node] if self.node else []
        for disk in self.disks:
            nodes += [disk.node, disk.node.replace("/dev/nvme", "/dev/ng")]
            nodes += [f"/dev/{part}" for part in disk.partitions]
        return nodes


def functions(system: System) -> list[Function]:
    """Return every NVMe function, in the order of their addresses."""
    return [
        read_function(system, address)
        for address in sorted(system.names(DEVICES))
        if system.number(f"{DEVICES}/{address}/class") == NVME_CLASS
    ]


def read_function(system: System, address: str) -> Function:
    """Read one."""
    folder = f"{DEVICES}/{address}"
    controller = _child(system, f"{folder}/nvme", "nvme")
    where = f"{folder}/nvme/{controller}"
    model = system.text(f"{where}/model") if controller else None
    serial = system.text(f"{where}/serial") if controller else None
    known_from = "nvme" if serial else None
    kept = record.load(system, address)
    if not controller and kept is not None:
        model, serial, known_from = kept.model, kept.serial, "bind"
    override = system.text(f"{folder}/driver_override")
    node_folder = _node_folder(system, folder)
    numa = system.number(f"{folder}/numa_node")
    group = system.target(f"{folder}/iommu_group")
    groups = f"/sys/kernel/iommu_groups/{group}"
    members = system.names(f"{groups}/devices") if group else []
    return Function(
        address=address,
        pci_id=_pci_id(system, folder),
        driver=system.target(f"{folder}/driver"),
        override=override if override not in (None, "", "(null)") else None,
        controller=controller,
        node=node_folder and f"/dev/{node_folder.rpartition('/')[2]}",
        node_folder=node_folder,
        model=model or None,
        serial=serial or None,
        firmware=system.text(f"{where}/firmware_rev") if controller else None,
        known_from=known_from,
        numa_node=numa if numa is not None and numa >= 0 else None,
        iommu_group=group,
        iommu_type=system.text(f"{groups}/type") if group else None,
        iommu_members=tuple(name for name in members if name != address),
        virtual_functions=system.number(f"{folder}/sriov_numvfs") or 0,
        disks=disks_of(system, where) if controller else (),
    )


def _child(system: System, folder: str, prefix: str) -> str | None:
    found = [name for name in system.names(folder) if name.startswith(prefix)]
    return found[0] if found else None


def _node_folder(system: System, folder: str) -> str | None:
    """The character device is a child of the function, below its class's name."""
    if system.target(f"{folder}/driver") != OURS:
        return None
    for name in system.names(folder):
        if system.path(f"{folder}/{name}").is_symlink():
            continue
        child = _child(system, f"{folder}/{name}", OURS)
        if child is not None:
            return f"{folder}/{name}/{child}"
    return None


def _pci_id(system: System, folder: str) -> str:
    parts = (system.text(f"{folder}/{name}") or "" for name in ("vendor", "device"))
    return ":".join(part.removeprefix("0x") or "?" for part in parts)


def find(system: System, name: str) -> Function:
    """Return the function that a PCI address or a device node names, and only that."""
    address = _ADDRESS.fullmatch(name)
    if address is not None:
        full = f"{address[1] or '0000'}:{address[2]}".lower()
        if not system.exists(f"{DEVICES}/{full}"):
            raise CommandError(f"{name}: no such PCI function; aiougds list shows them")
        if system.number(f"{DEVICES}/{full}/class") != NVME_CLASS:
            raise CommandError(
                f"{name} is not an NVMe function; aiougds list shows them"
            )
        return read_function(system, full)
    if not name.startswith("/dev/"):
        raise UsageError(
            f"{name!r} is neither a PCI address such as 0000:65:00.0 nor a device such "
            f"as /dev/nvme0, /dev/nvme0n1 or /dev/ugds_drv0"
        )
    wanted = kernel_name(system, name)
    own = [function for function in functions(system) if _named(function, wanted)]
    if not own:
        what = "does not exist" if not system.exists(name) else "is of no NVMe function"
        raise CommandError(f"{name} {what}; aiougds list shows them")
    if len(own) > 1:
        several = ", ".join(function.address for function in own)
        raise CommandError(
            f"{name} is reached through several functions; say which: {several}"
        )
    for disk in own[0].disks:
        if wanted in disk.partitions:
            raise CommandError(
                f"{name} is a partition of {disk.node}; a driver has the whole drive: "
                f"say {own[0].address}"
            )
    return own[0]


def _named(function: Function, wanted: str) -> bool:
    return f"/dev/{wanted}" in function.nodes


def siblings(system: System, function: Function) -> list[str]:
    """Return other controllers of its subsystem: other ways to the same namespaces."""
    if function.controller is None:
        return []
    top = "/sys/class/nvme-subsystem"
    for subsystem in system.names(top):
        members = [
            name
            for name in system.names(f"{top}/{subsystem}")
            if _CONTROLLER.fullmatch(name)
        ]
        if function.controller in members:
            return [name for name in members if name != function.controller]
    return []
