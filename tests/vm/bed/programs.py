"""C programs for the guest, built here for a plain x86-64."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vm.bed.cache import ROOT, cache_folder, made_once
from vm.bed.engine import INCLUDES, engine
from vm.bed.modules import BuildFailed, digest

FLAGS = ("-std=gnu17", "-O2", "-g", "-march=x86-64", "-pthread")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
ON_THE_ENGINE = '#include "ugds.h"'


def program(source: str) -> Path:
    """Build ``tests/vm/SOURCE`` and return the program.

    It may include headers of its own folder and those of ``kmod/uapi``. One that
    includes ``ugds.h`` gets the engine.
    """
    path = ROOT / "tests" / "vm" / source
    uapi = ROOT / "kmod" / "uapi"
    headers = sorted((*path.parent.glob("*.h"), *uapi.glob("*.h")))
    library = [engine()] if ON_THE_ENGINE in path.read_text() else []
    more = [*INCLUDES, *map(str, library)] if library else []
    name = f"{path.stem}-{digest([path, *headers], *FLAGS, *more)}"
    final = cache_folder("programs") / name
    with made_once(final) as partial:
        if partial is not None:
            flags = (*FLAGS, *WARNINGS, f"-I{uapi}")
            target = str(partial / path.stem)
            command = ["cc", *flags, str(path), *more, "-o", target]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise BuildFailed(f"{source}:\n{done.stderr}")
    return final / path.stem
