"""Debian packages that a guest installs, downloaded into the cache."""

from __future__ import annotations

from pathlib import Path

from vm.bed.cache import cache_folder, made_once
from vm.bed.kernels import fields, output


def package(name: str) -> Path:
    """Return the newest version of a package, as a file."""
    version = fields(name).get("Version", "unknown").replace(":", "%3a")
    final = cache_folder("packages") / f"{name}_{version}"
    with made_once(final) as partial:
        if partial is not None:
            output("apt-get", "download", "-q", name, cwd=partial)
    (found,) = final.glob("*.deb")
    return found
