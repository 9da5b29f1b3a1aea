"""Address translation: what an opener of a drive needs, and who shares its group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds.cli._host import access
from aiougds.cli._host.checks.finding import Finding, fail, ok, warn
from aiougds.cli._host.functions import DEVICES, OURS, functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.system import System

BRIDGE = 0x06  # base class; bridges are in the groups of what is below them


def iommu(system: System) -> Iterator[Finding]:
    """Whether bus addresses of drives are translated."""
    drives = functions(system)
    off = [drive for drive in drives if not translated(drive)]
    if drives and not off:
        yield ok("iommu", "translates for every NVMe function")
        return
    if not drives and system.names("/sys/class/iommu"):
        yield ok("iommu", "on; there is no NVMe function to translate for")
        return
    text = f"translates nothing for {_words(off)}" if off else "is off"
    if any(drive.iommu_type == "identity" for drive in off):
        text += " (passed through)"
    text += ": a drive reaches all memory, so its opener needs CAP_SYS_RAWIO"
    if system.text(f"/sys/module/{OURS}/parameters/allow_no_iommu") == "Y":
        text += ", or none, as allow_no_iommu is set: whoever may open it reads and "
        text += "writes all memory"
        fix = f"{turn_on(system)}; or load {OURS} without allow_no_iommu"
        yield warn("iommu", text, fix)
        return
    if access.capable(system, access.CAP_SYS_RAWIO):
        yield warn("iommu", f"{text}, which this process has", turn_on(system))
        return
    fix = f"{turn_on(system)}; or AmbientCapabilities=CAP_SYS_RAWIO in its systemd unit"
    yield fail("iommu", f"{text}, which this process has not", fix)


def translated(drive: Function) -> bool:
    """Whether the IOMMU is between this function and memory."""
    return (drive.iommu_type or "").startswith("DMA")


def _words(drives: list[Function]) -> str:
    first, *more = (drive.address for drive in drives)
    return f"{first} and {len(more)} more" if more else first


def turn_on(system: System) -> str:
    """Return what to say to the firmware and to the kernel."""
    cpus = system.text("/proc/cpuinfo") or ""
    if "GenuineIntel" in cpus:
        where = "VT-d in the firmware, intel_iommu=on"
    elif "AuthenticAMD" in cpus:
        where = "IOMMU in the firmware (amd_iommu=off must not be given), "
        where += "iommu.passthrough=0"
    else:
        where = "the IOMMU (SMMU) in the firmware, iommu.passthrough=0"
    return f"{where} on the kernel's command line, then boot"


def groups(system: System) -> Iterator[Finding]:
    """Functions that are not alone in their group: matters for VFIO, and for trust."""
    for drive in functions(system):
        others = [
            name
            for name in drive.iommu_members
            if (system.number(f"{DEVICES}/{name}/class") or 0) >> 16 != BRIDGE
        ]
        if not others:
            continue
        told = ", ".join(_member(system, name) for name in others)
        yield warn(
            "iommu group",
            f"{drive.address} shares group {drive.iommu_group} with {told}: they can "
            f"reach each other's memory, and VFIO is given all or none",
            "use a slot below a port with ACS (lspci -vv), or turn ACS on in the "
            "firmware",
        )


def _member(system: System, name: str) -> str:
    driver = system.target(f"{DEVICES}/{name}/driver")
    return f"{name} ({driver or 'no driver'})"
