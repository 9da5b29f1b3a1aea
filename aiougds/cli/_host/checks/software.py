"""Python, the kernel, and the module."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING, Final

from aiougds.cli._host.checks.finding import Finding, fail, ok, warn
from aiougds.cli._host.functions import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System

EXTRAS: Final = ("rich", "uvloop", "trio")
TRIED_FROM: Final = (6, 1)


def python(system: System) -> Iterator[Finding]:
    """The interpreter, and the optional packages."""
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    del system
    have = [name for name in EXTRAS if find_spec(name)]
    lack = [name for name in EXTRAS if name not in have]
    text = f"aiougds {version('aiougds')} on Python {platform.python_version()}"
    if have:
        text += f", with {', '.join(have)}"
    if lack:
        text += f"; optional, not installed: {', '.join(lack)}"
    yield ok("python", text)


def release(system: System) -> str:
    """Return what ``uname -r`` says."""
    return system.text("/proc/sys/kernel/osrelease") or ""


def kernel(system: System) -> Iterator[Finding]:
    """Its version."""
    name = release(system)
    numbers = re.match(r"(\d+)\.(\d+)", name)
    if numbers and (int(numbers[1]), int(numbers[2])) >= TRIED_FROM:
        yield ok("kernel", name)
        return
    oldest = ".".join(map(str, TRIED_FROM))
    fix = f"use a kernel from {oldest} on"
    yield warn("kernel", f"{name or 'unknown'}: older than was tried", fix)


def config(system: System, option: str) -> bool | None:
    """Return whether the kernel was built with an option; None where nobody tells."""
    name = release(system)
    text = system.text(f"/boot/config-{name}") or system.text(
        f"/lib/modules/{name}/config"
    )
    if text is None:
        packed = system.data("/proc/config.gz")
        if packed is None:
            return None
        text = gzip.decompress(packed).decode(errors="replace")
    return re.search(rf"^CONFIG_{option}=[ym]$", text, re.MULTILINE) is not None


def module(system: System) -> Iterator[Finding]:
    """Whether the module is loaded, or can be."""
    if system.exists(f"/sys/module/{OURS}"):
        version = system.text(f"/sys/module/{OURS}/version")
        yield ok("module", f"{OURS} {version or ''}".strip() + " is loaded")
        return
    listed = system.text(f"/lib/modules/{release(system)}/modules.dep") or ""
    built = re.search(rf"^\S*\b{OURS}\.ko\S*(?=:)", listed, re.MULTILINE)
    if built is None:
        yield fail(
            "module",
            f"{OURS} is not loaded, and there is none for this kernel",
            "build it for this kernel and install it, with DKMS or make -C kmod "
            "modules modules_install && depmod; the kernel's headers are needed",
        )
        return
    text = f"{OURS} is not loaded; {built[0]} can be"
    if _signed_only(system):
        text += ", if it is signed: this kernel loads no other"
        fix = f"sign it (DKMS does, with an enrolled key), then modprobe {OURS}"
    else:
        fix = f"modprobe {OURS}; at each boot: a line {OURS} in "
        fix += "/etc/modules-load.d/ugds.conf"
    yield fail("module", text, fix)


def _signed_only(system: System) -> bool:
    if system.text("/sys/module/module/parameters/sig_enforce") == "Y":
        return True
    locked = system.text("/sys/kernel/security/lockdown") or "[none]"
    return "[none]" not in locked
