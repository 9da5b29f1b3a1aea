"""Build the two libraries of the software GPU with the C compiler."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
FLAGS: Final = (
    "-std=gnu17", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-O1", "-g",
    "-Wall", "-Wextra", "-Werror", "-pthread",
)  # fmt: skip


class Library(NamedTuple):
    """A face of the software GPU, as its vendor's loader finds it."""

    soname: str
    sources: str
    links: tuple[str, ...] = ()


LIBRARIES: Final = {
    "cuda": Library("libcuda.so.1", "cuda_*.c"),
    "hip": Library("libamdhip64.so.7", "hip_*.c", ("libamdhip64.so",)),
}


def build(folder: Path) -> dict[str, Path]:
    """Compile into ``folder/lib``; return the path of each library."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    objects, made = folder / "obj", {}
    for path in (objects, folder / "lib"):
        path.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [*compiler, *FLAGS, "-c", *map(str, sorted(HERE.glob("*.c")))],
        check=True,
        cwd=objects,
    )
    faces = {name: set(HERE.glob(lib.sources)) for name, lib in LIBRARIES.items()}
    core = set(HERE.glob("*.c")).difference(*faces.values())
    for name, lib in LIBRARIES.items():
        parts = [objects / f"{path.stem}.o" for path in sorted(core | faces[name])]
        made[name] = folder / "lib" / lib.soname
        # Its own definitions first: both libraries may be in one process.
        linked = ["-shared", "-pthread", f"-Wl,-soname,{lib.soname}", "-Wl,-Bsymbolic"]
        subprocess.run(
            [*compiler, *linked, "-o", str(made[name]), *map(str, parts), "-ldl"],
            check=True,
        )
        for link in lib.links:
            (folder / "lib" / link).unlink(missing_ok=True)
            (folder / "lib" / link).symlink_to(lib.soname)
    return made
