"""What a check stands on: the guest's devices, drivers, programs and monitor."""

from __future__ import annotations

import json
import mmap
import re
import subprocess
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from vm.guest.kmsg import KernelLog, Message
from vm.guest.pattern import SECTOR, pattern
from vm.guest.qmp import Qmp

SHARE = Path("/run/vm")
PCI = Path("/sys/bus/pci")
Device = dict[str, object]


class Module(TypedDict):
    """A kernel module to load, and its parameters."""

    path: str
    parameters: list[str]


class Plan(TypedDict):
    """What the host wants done; ``plan.json`` in the share."""

    release: str
    modules: list[Module]
    checks: list[str]
    selected: list[str]
    programs: dict[str, str]
    packages: dict[str, str]
    devices: dict[str, Device]
    slots: dict[str, int]
    iommu: bool
    boots: str | None


def read_plan() -> Plan:
    plan: Plan = json.loads((SHARE / "plan.json").read_text())
    return plan


@dataclass(frozen=True)
class Ground:
    """What is here. Devices go by the names that the machine was given."""

    plan: Plan = field(repr=False)
    log: KernelLog = field(repr=False)
    seen: list[Message] = field(repr=False)

    @cached_property
    def qmp(self) -> Qmp:
        """QEMU's monitor."""
        return Qmp()

    @property
    def iommu(self) -> bool:
        """Whether DMA addresses are translated."""
        return self.plan["iommu"]

    def device(self, name: str) -> Device:
        """Return what ``device_add`` makes a device of again."""
        return dict(self.plan["devices"][name])

    def folder(self, name: str) -> Path:
        """Return the sysfs folder of a PCI device; behind a port, that of its port."""
        at = PCI / "devices" / f"0000:00:{self.plan['slots'][name]:02x}.0"
        if str(self.plan["devices"][name]["bus"]).startswith("port-"):
            inside = sorted(at.resolve().glob("????:??:??.?"))
            if not inside:
                raise FileNotFoundError(f"{name} is not plugged in")
            return inside[0]
        return at

    def is_present(self, name: str) -> bool:
        """Whether the bus has a device: not while it is unplugged."""
        try:
            return self.folder(name).exists()
        except FileNotFoundError:
            return False

    def address(self, name: str) -> str:
        """Return the PCI address of a device: ``0000:00:0a.0``."""
        return self.folder(name).name

    def bind(self, name: str, driver: str) -> None:
        """Have ``driver`` and no other take a device."""
        folder = self.folder(name)
        (folder / "driver_override").write_text(driver)
        self.release(name)
        (PCI / "drivers_probe").write_text(folder.name)
        if self.driver(name) != driver:
            has = self.driver(name)
            raise RuntimeError(f"{driver} did not take {name}; its driver: {has}")

    def release(self, name: str) -> None:
        """Take a device from the driver that has it, if one has."""
        folder = self.folder(name)
        if (folder / "driver").exists():
            (folder / "driver" / "unbind").write_text(folder.name)

    def driver(self, name: str) -> str | None:
        link = self.folder(name) / "driver"
        return link.resolve().name if link.exists() else None

    def kernel_disk(self, name: str, timeout_s: float = 10) -> Path:
        """Return the block device of a controller that the kernel's driver has."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for path in sorted(self.folder(name).glob("nvme/nvme*/nvme*n1")):
                node = Path("/dev") / re.sub(r"c\d+n", "n", path.name)
                if node.exists():
                    return node
            time.sleep(0.05)  # the kernel looks for namespaces in its own time
        raise FileNotFoundError(f"the kernel shows no disk of {name}")

    def run(self, *command: str, timeout_s: float = 60) -> str:
        """Run a program to its end; what it printed is in the error if it fails."""
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode:
            raise AssertionError(f"{command} ended {done.returncode}:\n{done.stdout}")
        return done.stdout

    def program(self, name: str) -> str:
        """Return the path of a C program that the run has built."""
        return self.plan["programs"][name]

    def load(self, module: Module) -> None:
        self.run("insmod", module["path"], *module["parameters"])

    def bar(self, name: str, number: int = 2) -> mmap.mmap:
        """Map a BAR of a device that no driver has claimed; enable the device first."""
        path = self.folder(name) / f"resource{number}"
        with path.open("r+b", buffering=0) as file:
            return mmap.mmap(file.fileno(), path.stat().st_size)

    def far_side(self, peer: str) -> Path:
        """Return the file behind a peer's memory: what arrived, seen from outside."""
        return SHARE / "peers" / peer

    def original(self, node: str, offset: int, nbytes: int) -> bytes:
        """Return the bytes that a namespace (``nv0-1``) had when the guest began."""
        first, skip = divmod(offset, SECTOR)
        count = -(-(skip + nbytes) // SECTOR)
        return pattern(node, first, count)[skip : skip + nbytes]

    def messages(self) -> list[Message]:
        """Return what the kernel has said since the check began."""
        self.seen.extend(self.log.new())
        return list(self.seen)


def here() -> Ground:
    """Return the ground of a script that runs in a guest."""
    return Ground(read_plan(), KernelLog(), [])
