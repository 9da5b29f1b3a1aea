"""What the host must have to run guests, and how it gets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from vm.bed.initramfs import BUSYBOX
from vm.bed.kernels import LINES, release_of

# Debian's package for each program that is called; a path where the name is not enough.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "depmod": "kmod",
    "dmsetup": "dmsetup",
    "lspci": "pciutils",
    "mke2fs": "e2fsprogs",
    "make": "make",
    "gcc-12": "gcc-12",
    "cc": "gcc",
    "xz": "xz-utils",
    "timeout": "coreutils",
    "/lib/systemd/systemd": "systemd",
    "udevadm": "udev",
}
LIBRARIES = {"libelf.so.1": "libelf1"}
INTERPRETER = 3  # PT_INTERP: a program that wants shared libraries


class Missing(Exception):
    """Something that guests need is not on this machine; the text says what."""


def is_static(path: Path) -> bool:
    """Whether an x86-64 program runs with nothing but itself: the initramfs is bare."""
    if not path.exists():
        return False
    data = path.read_bytes()
    table = int.from_bytes(data[32:40], "little")
    size, count = data[54], int.from_bytes(data[56:58], "little")
    kinds = (data[table + n * size] for n in range(count))
    return INTERPRETER not in kinds


def found(program: str) -> bool:
    places = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return shutil.which(program, path=places) is not None


def has_library(name: str) -> bool:
    folders = ("/lib", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
    return any(Path(folder, name).exists() for folder in folders)


def missing_packages() -> list[str]:
    """Return the packages that lack, by the names that Debian gives them."""
    packages = [name for program, name in PROGRAMS.items() if not found(program)]
    packages += [name for file, name in LIBRARIES.items() if not has_library(file)]
    if not is_static(BUSYBOX):
        packages.append("busybox-static")
    return packages


def apt(*arguments: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", *arguments]
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL).returncode == 0


def known_kernels() -> bool:
    """Whether the package lists are there: a machine may have none, or a part."""
    return all(release_of(line) for line in LINES)


def require() -> None:
    """Have what guests need, installed if we may; raise :class:`Missing` if not."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Missing(f"guests are x86-64: they need such a host, not {os.uname()}")
    packages = missing_packages()
    if packages and os.geteuid():
        raise Missing(
            f"the guest test bed needs these packages: {' '.join(packages)}\n"
            "install them, or run this as root: apt-get install -y"
            f" --no-install-recommends {' '.join(packages)}"
        )
    if os.geteuid() == 0 and not known_kernels():
        apt("update")
    if packages:
        install = ("install", "-y", "--no-install-recommends", *packages)
        if not apt(*install) and not (apt("update") and apt(*install)):
            raise Missing(f"apt-get cannot install {' '.join(packages)}")
