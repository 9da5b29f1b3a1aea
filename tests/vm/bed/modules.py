"""Kernel modules of this project, built against a kernel that is not installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder, made_once
from vm.bed.kernels import Kernel

# Modules include across these, so that all of them are laid out as in the checkout.
SOURCES = ("kmod", "tests/vm/kmod")
SUFFIXES = {".c", ".h", ".S"}


class BuildFailed(Exception):
    """A compiler refused; the text is what it said."""


def is_source(path: Path) -> bool:
    return path.suffix in SUFFIXES or path.name in {"Kbuild", "Makefile"}


def sources_of(folder: str) -> list[Path]:
    """Return what a module in ``folder`` may be made of: its own files and headers."""
    own = [path for path in (ROOT / folder).rglob("*") if is_source(path)]
    shared = [path for top in SOURCES for path in (ROOT / top).rglob("*.h")]
    return sorted({path for path in (*own, *shared) if ".mod." not in path.name})


def digest(paths: list[Path], *more: str) -> str:
    found = hashlib.sha256("\0".join(more).encode())
    for path in paths:
        found.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def build_folder(kernel: Kernel, folder: str) -> Path:
    """Build all modules of a folder with every warning an error; return where."""
    sources = sources_of(folder)
    if not any(path.name == "Kbuild" for path in sources):
        raise BuildFailed(f"{folder} has no Kbuild: nothing to build there")
    name = f"{kernel.release}-{folder.replace('/', '-')}-{digest(sources, folder)}"
    final = cache_folder("modules") / name
    with made_once(final) as partial:
        if partial is not None:
            compile_into(kernel, folder, partial, sources)
    return final / folder


def compile_into(kernel: Kernel, folder: str, into: Path, sources: list[Path]) -> None:
    """Build in a copy: kbuild writes beside the sources."""
    for path in sources:
        copy = into / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    command = [
        *("make", "-C", str(kernel.sources), f"O={kernel.objects}"),
        *(f"M={into / folder}", "W=1", "KCFLAGS=-Werror"),
        # Type information for BPF would need pahole, and a vmlinux.
        *("CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"),
    ]
    # Kbuild takes its flags from these, wherever they come from.
    env = {name: value for name, value in os.environ.items() if "FLAGS" not in name}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        said = f"{done.stdout[-2000:]}\n{done.stderr}"
        raise BuildFailed(f"{folder} for Linux {kernel.release}:\n{said}")


def module(kernel: Kernel, wanted: str) -> Path:
    """Return a built module: ``kmod/ugds_drv.ko`` as if built where its sources are."""
    folder, _, name = wanted.rpartition("/")
    built = build_folder(kernel, folder) / name
    if not built.exists():
        raise BuildFailed(f"{folder}/Kbuild makes no {name}")
    return built
