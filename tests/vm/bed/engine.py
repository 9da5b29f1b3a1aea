"""The engine as a static library, for programs that stand on ``ugds.h``."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder, made_once
from vm.bed.modules import BuildFailed, digest

NATIVE = ROOT / "native"
INCLUDES = tuple(f"-I{path}" for path in (NATIVE, NATIVE / "include", ROOT))
FLAGS = ("-std=gnu17", "-O2", "-g", "-march=x86-64", "-pthread", "-D_GNU_SOURCE=")


def sources() -> list[Path]:
    headers = sorted((*NATIVE.rglob("*.h"), *(ROOT / "kmod" / "uapi").glob("*.h")))
    return [*sorted(NATIVE.rglob("*.c")), *headers]


def compiled(source: Path, into: Path) -> Path:
    target = into / f"{source.relative_to(NATIVE).as_posix().replace('/', '-')}.o"
    command = ["cc", *FLAGS, *INCLUDES, "-c", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(f"{source.relative_to(ROOT)}:\n{done.stderr}")
    return target


def engine() -> Path:
    """Build the library, for a plain x86-64 as programs are, and return it."""
    found = sources()
    final = cache_folder("programs") / f"engine-{digest(found, *FLAGS)}"
    with made_once(final) as partial:
        if partial is not None:
            files = [path for path in found if path.suffix == ".c"]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(compiled, files, repeat(partial)))
            archive = ["ar", "rcs", str(partial / "libugds.a"), *map(str, objects)]
            subprocess.run(archive, check=True)
    return final / "libugds.a"
