"""Debian's kernels, unpacked into the cache and never installed."""

from __future__ import annotations

import re
import subprocess
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vm.bed.cache import cache_folder, made_once

# The kernels that guests run. A meta package is named after its line, and the release's
# own line is what plain linux-image-amd64 means.
LINES = ("6.1", "6.12")
METAS = ("linux-image-{line}-amd64", "linux-image-amd64")

DRIVERS = ("block", "char", "dma-buf", "gpu/drm/vgem", "gpu/drm/drm", "infiniband")
MORE_DRIVERS = ("md/dm-mod", "net/dummy", "nvme", "uio", "vfio", "virtio")
TREES = ("arch", "block", "crypto", "fs", "lib", "net", "virt")
WANTED = re.compile(
    r"\./(boot/(vmlinuz|config)|lib/modules/[^/]+/"
    rf"(modules\.|kernel/drivers/({'|'.join((*DRIVERS, *MORE_DRIVERS))})"
    rf"|kernel/({'|'.join(TREES)})/))"
)


class KernelUnavailable(Exception):
    """The package sources have no kernel of this line, and neither has the cache."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One unpacked kernel: an image, its modules, and headers to build against."""

    line: str
    release: str
    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        return self.folder / "lib" / "modules" / self.release

    @property
    def sources(self) -> Path:
        """What ``make -C`` wants: the headers that the flavours share."""
        (common,) = self.folder.glob("usr/src/linux-headers-*-common")
        return common

    @property
    def objects(self) -> Path:
        """What ``make O=`` wants: the configuration of this flavour."""
        return self.folder / "usr" / "src" / f"linux-headers-{self.release}"


def output(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise KernelUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def fields(package: str) -> dict[str, str]:
    """Return what the package lists say about the newest version of a package."""
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", package],
        capture_output=True,
        text=True,
    ).stdout
    lines = (line.partition(": ") for line in shown.splitlines())
    return {name: value for name, colon, value in lines if colon}


def depends(package: str, pattern: str) -> str:
    """Return the one dependency of a package whose name matches."""
    listed = fields(package).get("Depends", "")
    names = [re.split(r"[ (]", name.strip())[0] for name in re.split(r"[,|]", listed)]
    found = [name for name in names if re.fullmatch(pattern, name)]
    if not found:
        raise KernelUnavailable(f"{package} depends on nothing like {pattern}")
    return found[0]


def release_of(line: str) -> str | None:
    """Return the release that the package sources have now: ``6.1.0-57-amd64``."""
    for meta in METAS:
        listed = fields(meta.format(line=line)).get("Depends", "")
        found = re.match(r"linux-image-(\d[^ ,]*)", listed)
        if found and found[1].startswith(f"{line}."):
            return found[1]
    return None


def unpack(package: Path, into: Path, wanted: re.Pattern[str] | None) -> None:
    """Unpack a ``.deb``, or what of it is wanted."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as source:
        assert source.stdout is not None
        with tarfile.open(fileobj=source.stdout, mode="r|") as archive:
            for member in archive:
                if wanted is None or wanted.match(member.name):
                    archive.extract(member, into, set_attrs=member.isfile())


def fetch(release: str, folder: Path) -> None:
    """Download and unpack an image and what modules are built against."""
    headers = f"linux-headers-{release}"
    image = f"linux-image-{release}"
    common = depends(headers, r"linux-headers-.*-common")
    kbuild = depends(headers, r"linux-kbuild-.*")
    output("apt-get", "download", "-q", image, headers, common, kbuild, cwd=folder)
    for package in sorted(folder.glob("*.deb")):
        is_image = package.name.startswith("linux-image-")
        unpack(package, folder, WANTED if is_image else None)
        package.unlink()
    output("depmod", "-b", str(folder), release)


def unpacked(line: str) -> Kernel | None:
    """Return the newest kernel of a line that the cache has."""
    folders = cache_folder("kernels").glob(f"{line}.*")
    found = sorted(folders, key=lambda folder: folder.stat().st_mtime)
    return Kernel(line, found[-1].name, found[-1]) if found else None


@cache
def kernel(line: str) -> Kernel:
    """Return the newest kernel of a line, downloaded if the cache lacks it."""
    release = release_of(line)
    if release is None:
        known = unpacked(line)
        if known is None:
            raise KernelUnavailable(
                f"no package linux-image-* of Linux {line} is known here, and none is"
                f" in {cache_folder('kernels')}; run apt-get update, or add Debian's"
                " security sources"
            )
        return known
    folder = cache_folder("kernels") / release
    with made_once(folder) as partial:
        if partial is not None:
            fetch(release, partial)
    return Kernel(line, release, folder)
