"""A machine made of files: the parts of sysfs, procfs and /dev that commands look at.

Laid out as a kernel does it: real folders below /sys/devices, links elsewhere.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from aiougds.cli._host.system import System

MIB = 1 << 20
ROOT_PORT = "0000:00:01.0"


class Machine:
    """Builds a tree; everything is addressed as on a real machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.numbers = 0  # of device numbers handed out
        for folder in (
            "sys/class/block",
            "sys/block",
            "dev/mapper",
            "run",
            "proc/self",
        ):
            self.at(folder).mkdir(parents=True)
        for driver in ("nvme", "ugds_drv", "vfio-pci"):
            self.driver(driver)
        self.put("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
        self.put("/proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n")
        self.put("/proc/sys/kernel/osrelease", "6.1.0-57-amd64\n")
        self.put(
            "/proc/self/status",
            "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0\nCapEff:\t000001ffffffffff\n",
        )
        limit = (
            "Max locked memory         8388608              8388608              bytes"
        )
        self.put(
            "/proc/self/limits", f"Limit  Soft Limit  Hard Limit  Units\n{limit}\n"
        )

    def at(self, name: str) -> Path:
        """Return where a name of the machine is."""
        return self.root / name.lstrip("/")

    def put(self, name: str, text: str | bytes = "") -> Path:
        """Write a file."""
        path = self.at(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def add(self, name: str, line: str) -> None:
        """Write one more line."""
        with self.at(name).open("a") as file:
            file.write(line + "\n")

    def link(self, name: str, target: str) -> None:
        """Make a relative link, as sysfs has them."""
        path = self.at(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(self.at(target), path.parent))

    def driver(self, name: str) -> None:
        """Load a PCI driver."""
        for attribute in ("bind", "unbind"):
            self.put(f"/sys/bus/pci/drivers/{name}/{attribute}")

    def function(
        self,
        address: str,
        kind: str = "0x010802",
        driver: str | None = None,
        group: int | None = None,
        numa: int = 0,
        vendor: str = "0x8086",
    ) -> str:
        """Add a PCI function below the root port; return its folder."""
        if not self.at(f"/sys/bus/pci/devices/{ROOT_PORT}").exists():
            self._device(ROOT_PORT, f"/sys/devices/pci0000:00/{ROOT_PORT}", "0x060400")
        folder = f"/sys/devices/pci0000:00/{ROOT_PORT}/{address}"
        self._device(address, folder, kind)
        self.put(f"{folder}/vendor", f"{vendor}\n")
        self.put(f"{folder}/numa_node", f"{numa}\n")
        self.put(f"{folder}/driver_override", "(null)\n")
        if driver is not None:
            self.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")
        if group is not None:
            self.iommu_group(group, [address])
        return folder

    def _device(self, address: str, folder: str, kind: str) -> None:
        self.put(f"{folder}/class", f"{kind}\n")
        self.put(f"{folder}/vendor", "0x8086\n")
        self.put(f"{folder}/device", "0x0a54\n")
        self.link(f"/sys/bus/pci/devices/{address}", folder)

    def iommu_group(
        self, number: int, addresses: list[str], kind: str = "DMA-FQ"
    ) -> None:
        """Put functions into a group."""
        group = f"/sys/kernel/iommu_groups/{number}"
        self.put(f"{group}/type", f"{kind}\n")
        for address in addresses:
            self.link(f"{group}/devices/{address}", f"/sys/bus/pci/devices/{address}")
            folder = self.at(f"/sys/bus/pci/devices/{address}").resolve()
            inside = str(folder).removeprefix(str(self.root.resolve()))
            self.link(f"{inside}/iommu_group", group)

    def nvme(
        self,
        address: str = "0000:65:00.0",
        name: str = "nvme0",
        serial: str = "S1",
        sizes: tuple[int, ...] = (64 * MIB,),
        group: int | None = None,
    ) -> str:
        """Add a drive with the nvme driver and its namespaces; return its folder."""
        folder = self.function(address, driver="nvme", group=group)
        controller = f"{folder}/nvme/{name}"
        self.put(f"{controller}/serial", f"{serial:<20}\n")
        self.put(f"{controller}/model", f"{'Model X':<40}\n")
        self.put(f"{controller}/firmware_rev", "1.0     \n")
        self.link(f"/sys/class/nvme/{name}", controller)
        self.put(f"/dev/{name}")
        for nsid, size in enumerate(sizes, 1):
            self.disk(f"{name}n{nsid}", f"{controller}/{name}n{nsid}", size, nsid)
        subsystem = f"/sys/devices/virtual/nvme-subsystem/nvme-subsys{name[4:]}"
        self.at(subsystem).mkdir(parents=True)
        self.link(f"{subsystem}/{name}", controller)
        self.link(f"/sys/class/nvme-subsystem/{Path(subsystem).name}", subsystem)
        return folder

    def disk(self, name: str, folder: str, size: int, nsid: int | None = None) -> None:
        """Add a block device with its node."""
        self.numbers += 1
        self.put(f"{folder}/dev", f"259:{self.numbers}\n")
        self.put(f"{folder}/size", f"{size // 512}\n")
        self.put(f"{folder}/queue/logical_block_size", "512\n")
        self.at(f"{folder}/holders").mkdir()
        if nsid is not None:
            self.put(f"{folder}/nsid", f"{nsid}\n")
        self.link(f"/sys/class/block/{name}", folder)
        self.link(f"/sys/block/{name}", folder)
        with self.put(f"/dev/{name}").open("r+b") as file:
            file.truncate(size)

    def partition(self, disk: str, number: int = 1) -> str:
        """Add a partition to a disk; return its name."""
        name = f"{disk}p{number}"
        self.numbers += 1
        folder = self.inside(f"/sys/class/block/{disk}") + f"/{name}"
        self.put(f"{folder}/dev", f"259:{self.numbers}\n")
        self.put(f"{folder}/partition", f"{number}\n")
        self.at(f"{folder}/holders").mkdir()
        self.link(f"/sys/class/block/{name}", folder)
        self.put(f"/dev/{name}")
        return name

    def inside(self, name: str) -> str:
        """Return the name that links lead to."""
        return str(self.at(name).resolve()).removeprefix(str(self.root.resolve()))

    def stacked(self, name: str, *below: str, **attributes: str) -> None:
        """Stack a virtual disk (dm-0, md0) on others; ``dm__uuid`` is dm/uuid."""
        folder = f"/sys/devices/virtual/block/{name}"
        self.disk(name, folder, 32 * MIB)
        for key, value in attributes.items():
            self.put(f"{folder}/{key.replace('__', '/')}", f"{value}\n")
        if "dm__name" in attributes:
            self.link(f"/dev/mapper/{attributes['dm__name']}", f"/dev/{name}")
        for disk in below:
            where = self.inside(f"/sys/class/block/{disk}")
            self.link(f"{where}/holders/{name}", folder)

    def mount(
        self, source: str, point: str, number: str = "0:99", kind: str = "ext4"
    ) -> None:
        """Mount, as mountinfo of this process tells it."""
        line = f"40 27 {number} / {point} rw,relatime shared:1 - {kind} {source} rw"
        self.add("/proc/self/mountinfo", line)

    def number(self, disk: str) -> str:
        """Return the device number of a block device."""
        return self.at(f"/sys/class/block/{disk}/dev").read_text().strip()

    def process(self, pid: int, name: str, *nodes: str) -> None:
        """Start a process that has nodes open."""
        self.put(f"/proc/{pid}/comm", f"{name}\n")
        folder = self.at(f"/proc/{pid}/fd")
        folder.mkdir()
        for fd, node in enumerate(nodes, 3):
            (folder / str(fd)).symlink_to(node)


class Kernel(System):
    """A kernel that binds and unbinds drivers, and fails where it is told to."""

    __slots__ = ("busy", "failing", "log", "machine")

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.root)
        self.machine = machine
        self.busy: set[str] = set()  # nodes that somebody has claimed
        self.failing: dict[str, int | BaseException] = {}  # by end of path
        self.log: list[str] = []

    def claim(self, node: str) -> int:
        if node in self.busy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), node)
        return super().claim(node)

    def write(self, name: str, text: str) -> None:
        self.log.append(f"{text.strip()} > {name}")
        for end, error in self.failing.items():
            if name.endswith(end):
                if isinstance(error, BaseException):
                    raise error
                raise OSError(error, os.strerror(error), name)
        path = self.path(name)
        assert path.exists(), f"no attribute {name}"
        value = text.strip()
        if name.endswith("/driver_override"):
            path.write_text(f"{value or '(null)'}\n")
        elif name.endswith("/unbind"):
            self._unbind(name.split("/")[-2], value)
        elif name.endswith("/bind"):
            self._bind(name.split("/")[-2], value)
        else:
            raise AssertionError(name)

    def _unbind(self, driver: str, address: str) -> None:
        folder = self.machine.inside(f"/sys/bus/pci/devices/{address}")
        if self.target(f"{folder}/driver") != driver:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self.path(f"{folder}/driver").unlink()
        for child in ("nvme", "ugds_drv"):
            if self.exists(f"{folder}/{child}"):
                self.path(f"{folder}/{child}").rename(self.path(f"{folder}/.{child}"))

    def _bind(self, driver: str, address: str) -> None:
        folder = self.machine.inside(f"/sys/bus/pci/devices/{address}")
        override = self.text(f"{folder}/driver_override")
        if override != driver and (override != "(null)" or driver != "nvme"):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self.machine.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")
        if driver == "nvme" and self.exists(f"{folder}/.nvme"):
            self.path(f"{folder}/.nvme").rename(self.path(f"{folder}/nvme"))
        if driver == "ugds_drv":
            self.machine.put(f"{folder}/ugds_drv/ugds_drv0/dev", "240:0\n")
            self.machine.put("/dev/ugds_drv0").chmod(0o660)
