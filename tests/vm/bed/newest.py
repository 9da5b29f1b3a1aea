"""The newest kernel's headers and their compiler, to build against and not to boot.

They want a newer C library than the host may have. So the packages that they depend on
are unpacked together into a folder, which make sees as its root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder, locked, made_once
from vm.bed.kernels import KernelUnavailable
from vm.bed.modules import BuildFailed, digest, sources_of

MIRROR = "http://deb.debian.org/debian"
SUITES = ("trixie", "trixie-backports")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
NAME = re.compile(r"linux-headers-(\d[\d.]*\+deb13-amd64)")
LISTS_LAST_S = 24 * 3600
# What a build calls besides the compiler, which the headers depend on.
TOOLS = ("base-files", "bash", "binutils", "coreutils", "dash", "dpkg", "findutils")
MORE_TOOLS = ("grep", "kmod", "make", "mawk", "perl-base", "sed", "tar", "xz-utils")


def apt_options() -> list[str]:
    """Return options that keep apt's lists and downloads of these suites apart."""
    folder = cache_folder("apt")
    for made in ("lists/partial", "cache/archives/partial"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    lines = [f"deb [signed-by={KEYS}] {MIRROR} {suite} main" for suite in SUITES]
    (folder / "sources.list").write_text("\n".join((*lines, "")))
    (folder / "status").touch()
    settings = {
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
    }
    return [word for name in settings for word in ("-o", f"{name}={settings[name]}")]


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise KernelUnavailable(f"{' '.join(command[:1])}: {done.stderr.strip()}")
    return done.stdout


def numbers(release: str) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", release)]


def refresh(options: list[str]) -> None:
    """Fetch the package lists, once a day."""
    stamp = cache_folder("apt") / "refreshed"
    with locked(stamp.with_suffix(".lock")):
        if not stamp.exists() or stamp.stat().st_mtime < time.time() - LISTS_LAST_S:
            call("apt-get", *options, "-q", "update")
            stamp.touch()


def newest_release() -> str:
    """Return the newest release whose headers Debian has: ``7.3.4+deb13-amd64``."""
    options = apt_options()
    refresh(options)
    pattern = "^linux-headers-[0-9]"
    found = call("apt-cache", *options, "search", "--names-only", pattern)
    releases = [match[1] for line in found.splitlines() if (match := NAME.match(line))]
    if not releases:
        raise KernelUnavailable(f"no headers in {' or '.join(SUITES)} of {MIRROR}")
    return max(releases, key=numbers)


def known_release() -> str:
    """Return the newest release there is, or the newest unpacked where none is told."""
    try:
        return newest_release()
    except KernelUnavailable:
        unpacked = cache_folder("newest").glob("[0-9]*")
        found = sorted((path.name for path in unpacked), key=numbers)
        if not found:
            raise
        return found[-1]


def root_for(release: str) -> Path:
    """Return the folder that holds the headers and all that they depend on."""
    final = cache_folder("newest", release) / digest([], *TOOLS, *MORE_TOOLS)
    with made_once(final) as partial:
        if partial is not None:
            fetch(release, partial)
    return final


def fetch(release: str, root: Path) -> None:
    archives = root / "archives"
    (archives / "partial").mkdir(parents=True)
    place = ["-o", f"Dir::Cache::Archives={archives}"]
    wanted = (f"linux-headers-{release}", *TOOLS, *MORE_TOOLS)
    install = ("install", "-y", "--download-only", "--no-install-recommends", *wanted)
    call("apt-get", *apt_options(), *place, "-q", *install)
    packages = sorted(archives.glob("*.deb"))
    # It has the links from /bin and /lib to below /usr, which others unpack through.
    packages.sort(key=lambda path: not path.name.startswith("base-files_"))
    for package in packages:
        call("dpkg-deb", "-x", str(package), str(root))
    shutil.rmtree(archives)
    # What packages would choose when they are installed.
    for link, target in (("awk", "mawk"), ("sh", "dash")):
        path = root / "usr" / "bin" / link
        if not path.is_symlink() and not path.exists():
            path.symlink_to(target)


def inside(root: Path, *command: str) -> list[str]:
    """Return what runs a command with ``root`` as its root, in mounts of its own."""
    mounts = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc"'
    script = f'{mounts} && exec chroot "$0" "$@"'
    as_root = [] if os.geteuid() == 0 else ["--map-root-user", "--pid", "--fork"]
    return ["unshare", "--mount", *as_root, "sh", "-c", script, str(root), *command]


def build_for_newest(folder: str) -> Path:
    """Build all modules of a folder for the newest kernel; return where they are."""
    release = known_release()
    root = root_for(release)
    sources = sources_of(folder)
    place = Path("build", f"{folder.replace('/', '-')}-{digest(sources, folder)}")
    with made_once(root / place) as partial:
        if partial is not None:
            for path in sources:
                copy = partial / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            make(root, release, Path("/") / partial.relative_to(root) / folder)
    return root / place / folder


def make(root: Path, release: str, place: Path) -> None:
    headers = f"/usr/src/linux-headers-{release}"
    words = ("make", "-C", headers, f"M={place}", "W=1", "KCFLAGS=-Werror")
    command = inside(root, *words, "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules")
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        said = f"{done.stdout[-2000:]}\n{done.stderr}"
        raise BuildFailed(f"{place} for Linux {release}:\n{said}")
