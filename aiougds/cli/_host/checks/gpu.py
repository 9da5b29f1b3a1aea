"""GPUs: their driver, the room that their memory has on the bus, the way to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds.cli._host.checks import acs
from aiougds.cli._host.checks.finding import Finding, ok, warn
from aiougds.cli._host.checks.software import config
from aiougds.cli._host.functions import DEVICES, functions
from aiougds.cli._units import MIB, as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System

VENDORS: Final = {0x10DE: "NVIDIA", 0x1002: "AMD"}
CLASSES: Final = (0x03, 0x12)  # display, and processing accelerators
OPEN_SINCE: Final = (550, 40, 7)  # nvidia_p2p_* is exported to GPL modules from here on
SMALL_BAR: Final = 256 * MIB
_MEM, _PREFETCH, _UNSET = 0x200, 0x2000, 0x20000000
STILL: Final = "reads into host memory work all the same"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU on the bus; ``bar_bytes`` of its memory can be reached from others."""

    address: str
    vendor: str
    driver: str | None
    bar_bytes: int
    placed: bool  # the bridges had room for it


def gpus(system: System) -> list[Gpu]:
    """Return the GPUs whose memory can be read into."""
    found: list[Gpu] = []
    for address in sorted(system.names(DEVICES)):
        folder = f"{DEVICES}/{address}"
        vendor = VENDORS.get(system.number(f"{folder}/vendor") or 0)
        kind = (system.number(f"{folder}/class") or 0) >> 16
        if vendor and kind in CLASSES:
            driver = system.target(f"{folder}/driver")
            nbytes, placed = _bar(system.text(f"{folder}/resource") or "")
            found.append(Gpu(address, vendor, driver, nbytes, placed))
    return found


def _bar(resource: str) -> tuple[int, bool]:
    """Return the size of the largest prefetchable BAR, and whether it is placed."""
    best, placed = 0, False
    for line in resource.splitlines()[:6]:
        start, end, flags = (int(field, 16) for field in line.split()[:3])
        if flags & _MEM and flags & _PREFETCH and end - start + 1 > best:
            best, placed = end - start + 1, bool(start) and not flags & _UNSET
    return best, placed


def gpu(system: System) -> Iterator[Finding]:
    """Drivers, and each GPU's room on the bus."""
    present = gpus(system)
    if not present:
        yield ok("gpu", f"none found; {STILL}")
        return
    vendors = {card.vendor for card in present}
    if "NVIDIA" in vendors:
        yield _nvidia(system)
    if "AMD" in vendors:
        yield _amd(system)
    for card in present:
        yield _room(card)


def _nvidia(system: System) -> Finding:
    told = (system.text("/proc/driver/nvidia/version") or "").split("\n")[0]
    number = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?\b", told)
    oldest = "550.40.07"
    fix = f"install NVIDIA's open kernel modules, {oldest} or later; {STILL}"
    if number is None:
        return warn("gpu driver", "the nvidia driver is not loaded", fix)
    version = tuple(int(part or "0") for part in number.groups())
    if "Open Kernel Module" not in told:
        text = (
            f"nvidia {number[0]} is the closed kernel module: it lets no GPL module map"
        )
        return warn("gpu driver", text, fix)
    if version < OPEN_SINCE:
        text = (
            f"nvidia {number[0]} (open) is older than {oldest}: no GPL module may map"
        )
        return warn("gpu driver", text, fix)
    return ok("gpu driver", f"nvidia {number[0]}, open kernel modules")


def _amd(system: System) -> Finding:
    if not system.exists("/sys/module/amdgpu"):
        fix = f"modprobe amdgpu; {STILL}"
        return warn("gpu driver", "the amdgpu driver is not loaded", fix)
    return ok("gpu driver", "amdgpu, through dma-buf")


def _room(card: Gpu) -> Finding:
    name = f"gpu {card.address}"
    firmware = "turn on 'Above 4G decoding' and 'Resizable BAR' in the firmware"
    if not card.placed:
        text = (
            f"{card.vendor}: its memory has no address on the bus (no room for its BAR)"
        )
        return warn(name, text, f"{firmware}, or boot with pci=realloc; {STILL}")
    text = (
        f"{card.vendor}: {as_bytes(card.bar_bytes)} can be reached from other devices"
    )
    if card.bar_bytes <= SMALL_BAR:
        return warn(name, f"{text}, which is all that can be registered", firmware)
    return ok(name, text)


def p2p(system: System) -> Iterator[Finding]:
    """Whether drives may talk to GPUs: the kernel's part, and bridges on the way."""
    present = gpus(system)
    if not present:
        yield ok("p2p", "not needed: there is no GPU")
        return
    built = config(system, "PCI_P2PDMA")
    if built is None:
        yield ok("p2p", "whether the kernel has CONFIG_PCI_P2PDMA cannot be seen")
    elif built:
        yield ok("p2p", "the kernel has CONFIG_PCI_P2PDMA")
    else:
        yield warn(
            "p2p",
            "the kernel has no CONFIG_PCI_P2PDMA: amdgpu exports system memory instead",
            f"use a kernel that has it (nvidia does not need it); {STILL}",
        )
    for address in [drive.address for drive in functions(system)]:
        bridges = acs.redirecting(system, address)
        if bridges:
            yield warn(
                "p2p",
                f"ACS sends what {address} writes to a GPU through the root complex, "
                f"at {', '.join(bridges)}: slower, and not forwarded by every platform",
                f"pci=disable_acs_redir={';'.join(bridges)} on the kernel's command "
                f"line, or ACS off in the firmware",
            )
