"""Memory that may be locked, and large pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds.cli._host import access
from aiougds.cli._host.checks.finding import Finding, ok, warn
from aiougds.cli._units import MIB, as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System

SMALL: Final = 64 * MIB
HUGE: Final = "/sys/kernel/mm/hugepages/hugepages-2048kB"


def memlock(system: System) -> Iterator[Finding]:
    """RLIMIT_MEMLOCK: registered host memory is charged to it."""
    limit = access.memory_lock(system)
    if limit is None:
        yield ok("memlock", "no limit")
        return
    text = f"{as_bytes(limit)} may be registered"
    if access.capable(system, access.CAP_IPC_LOCK):
        yield ok("memlock", f"{text}, more with CAP_IPC_LOCK, which this process has")
    elif limit >= SMALL:
        yield ok("memlock", text)
    else:
        yield warn(
            "memlock",
            f"{text} at once; more is refused with ENOMEM",
            "'@ugds - memlock unlimited' in /etc/security/limits.d/ugds.conf and a new "
            "login; for a service LimitMEMLOCK=infinity; for a container --ulimit "
            "memlock=-1",
        )


def hugepages(system: System) -> Iterator[Finding]:
    """2 MiB pages: preferred for the memory of batches."""
    total = system.number(f"{HUGE}/nr_hugepages")
    free = system.number(f"{HUGE}/free_hugepages") or 0
    if free:
        yield ok("hugepages", f"{free} of {total} pages of 2 MiB are free")
        return
    state = "all are in use" if total else "none are set aside"
    yield warn(
        "hugepages",
        f"{state}: small pages serve, with more of the IOMMU's and TLB's time",
        "sysctl vm.nr_hugepages=64; to keep it: a line in /etc/sysctl.d/ugds.conf",
    )
