"""A small initramfs: busybox, and the modules that mount the host's file system."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import stat
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder, locked
from vm.bed.kernels import Kernel

BUSYBOX = Path("/bin/busybox")
INIT = ROOT / "tests" / "vm" / "guest" / "init.sh"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")
FOLDERS = ("bin", "dev", "proc", "sys", "new", "ro", "rw", "modules")

Entry = tuple[str, int, bytes]


def cpio(entries: list[Entry]) -> bytes:
    """Return a cpio archive ("newc") of ``(name, mode, content)``."""
    found = bytearray()
    for number, (name, mode, data) in enumerate((*entries, ("TRAILER!!!", 0, b"")), 1):
        encoded = name.encode() + b"\0"
        header = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        found += b"070701" + b"".join(b"%08X" % field for field in header) + encoded
        found += bytes(-len(found) % 4) + data
        found += bytes(-len(found) % 4)
    return bytes(found)


def plain_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")


def closure(kernel: Kernel, names: tuple[str, ...]) -> list[Path]:
    """Return module files in the order in which they are to be loaded."""
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, after = line.partition(":")
        needs[plain_name(path)] = (path, [plain_name(word) for word in after.split()])
    listed = (kernel.modules / "modules.builtin").read_text().splitlines()
    built_in = {plain_name(path) for path in listed}
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in built_in:
            return
        path, before = needs[name]
        for other in before:
            visit(other)
        found.setdefault(path)

    for name in names:
        visit(name)
    return [kernel.modules / path for path in found]


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def initramfs(kernel: Kernel) -> Path:
    """Return the initramfs of a kernel, made if what it is made of has changed."""
    files: list[Entry] = [
        ("bin/busybox", stat.S_IFREG | 0o755, BUSYBOX.read_bytes()),
        ("init", stat.S_IFREG | 0o755, INIT.read_bytes()),
    ]
    for number, path in enumerate(closure(kernel, MODULES)):
        name = f"modules/{number:02}-{plain_name(path.name)}.ko"
        files.append((name, stat.S_IFREG | 0o644, content(path)))
    folders: list[Entry] = [(name, stat.S_IFDIR | 0o755, b"") for name in FOLDERS]
    archive = cpio(folders + files)
    name = f"{kernel.release}-{hashlib.sha256(archive).hexdigest()[:16]}.gz"
    final = cache_folder("initramfs") / name
    with locked(final.with_suffix(".lock")):
        if not final.exists():
            partial = final.with_suffix(".partial")
            partial.write_bytes(gzip.compress(archive, 1, mtime=0))
            partial.rename(final)
    return final
