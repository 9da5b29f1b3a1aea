#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the Debian package of the kernel module: ``build.py FOLDER``; needs dpkg-deb.

The package brings the module's source to DKMS, which builds and signs it for each
kernel; the udev rule, the group, the unit that binds drives at boot and its files.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KMOD = HERE.parent
SOURCES = ("*.c", "*.h", "Kbuild", "Makefile", "dkms.conf", "uapi/*.h")
FILES = {
    "60-ugds.rules": "usr/lib/udev/rules.d/60-ugds.rules",
    "package/ugds.sysusers": "usr/lib/sysusers.d/ugds.conf",
    "package/aiougds-bind.service": "usr/lib/systemd/system/aiougds-bind.service",
    "package/aiougds.default": "etc/default/aiougds",
    "package/devices.toml": "etc/aiougds/devices.toml",
}
SCRIPTS = ("postinst", "postrm", "prerm")
CONTROL = """\
Package: ugds-drv-dkms
Version: {version}
Architecture: all
Maintainer: aiougds maintainers <aiougds@localhost>
Section: kernel
Priority: optional
Depends: dkms (>= 3), kmod, passwd
Recommends: udev, linux-headers-amd64 | linux-headers-arm64 | linux-headers-generic
Description: kernel helper of aiougds, built with DKMS
 ugds_drv gives an NVMe drive to one process, which drives its queues from user
 space: registers, queue memory, pinned host and GPU memory, interrupts.
 .
 With it come the udev rule and the group of its device nodes, and a unit that
 gives configured drives to it at boot. The aiougds command line, which the unit
 calls, is a Python program of its own: pip install aiougds.
"""


def version() -> str:
    """Return the version that DKMS is told."""
    found = re.search(r'PACKAGE_VERSION="(.+)"', (KMOD / "dkms.conf").read_text())
    assert found is not None
    return found[1]


def lay_out(root: Path) -> None:
    """Put everything where it is to be on a machine."""
    source = root / "usr" / "src" / f"ugds_drv-{version()}"
    for pattern in SOURCES:
        for path in sorted(KMOD.glob(pattern)):
            if not path.name.endswith(".mod.c"):  # left by a build in place
                install(path, source / path.relative_to(KMOD))
    for name, where in FILES.items():
        install(KMOD / name, root / where)
    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(CONTROL.format(version=version()))
    kept = (f"/{where}\n" for where in FILES.values() if where.startswith("etc/"))
    (control / "conffiles").write_text("".join(kept))
    for name in SCRIPTS:
        text = (HERE / name).read_text().replace("@VERSION@", version())
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    for folder in (path for path in root.rglob("*") if path.is_dir()):
        folder.chmod(0o755)


def install(path: Path, where: Path) -> None:
    """Copy a file that everybody may read."""
    where.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, where)
    where.chmod(0o644)


def build(folder: Path) -> Path:
    """Build it; return where it is."""
    package = folder / f"ugds-drv-dkms_{version()}_all.deb"
    with tempfile.TemporaryDirectory() as scratch:
        lay_out(Path(scratch) / "root")
        command = ["dpkg-deb", "--root-owner-group", "--build", f"{scratch}/root"]
        subprocess.run([*command, str(package)], check=True, stdout=subprocess.DEVNULL)
    return package


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    arguments.add_argument("folder", type=Path, help="where the package is put")
    into: Path = arguments.parse_args().folder.resolve()
    if not into.is_dir():
        arguments.error(f"{into} is no folder: make it first")
    if shutil.which("dpkg-deb") is None:
        arguments.error("dpkg-deb is missing: it comes with Debian's dpkg")
    print(build(into))
