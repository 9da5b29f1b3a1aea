#!/usr/bin/env python3
"""Check every model here exhaustively, and that each seeded mistake is found.

``run.py [MODEL...]``. Needs spin and a C compiler. A model names its mistakes in a line
``breaks: BUG_A BUG_B``: built with one of them it has to fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEPTH = 2_000_000


def check(model: Path, work: Path, bug: str | None) -> tuple[int, int, int, str]:
    """States, depth, errors and the first error's words."""
    define = [f"-D{bug}"] if bug else []
    for source in HERE.glob("*.pmi"):
        shutil.copy(source, work)
    shutil.copy(model, work)
    generate = ["spin", *define, "-a", model.name]
    out = subprocess.run(generate, cwd=work, capture_output=True, text=True)
    if out.returncode or "Error" in out.stdout:
        sys.exit(f"{model.name} {bug or ''}: {out.stdout}{out.stderr}")
    build = ["cc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=3000"]
    subprocess.run([*build, "-o", "pan", "pan.c"], cwd=work, check=True)
    run = ["./pan", f"-m{DEPTH}", "-c1"]
    out = subprocess.run(run, cwd=work, capture_output=True, text=True)
    report = out.stdout
    errors = int(re.search(r"errors: (\d+)", report)[1])  # type: ignore[index]
    states = int(re.search(r"(\d+) states, stored", report)[1])  # type: ignore[index]
    depth = int(re.search(r"depth reached (\d+)", report)[1])  # type: ignore[index]
    if re.search(r"max search depth too small|out of memory", report):
        sys.exit(f"{model.name} {bug or ''}: not exhaustive\n{report}")
    why = re.search(r"pan:1: (.*?)(?: \(at depth|$)", report, re.M)
    return states, depth, errors, why[1] if why else ""


def read(model: Path) -> list[tuple[Path, str | None]]:
    """The model as it is, and with each of its mistakes."""
    text = model.read_text(encoding="utf-8")
    bugs = re.findall(r"BUG_\w+", " ".join(re.findall(r"breaks:(.*)", text)))
    odd = set(re.findall(r"ifn?def (BUG_\w+)", text)) ^ set(bugs)
    if odd:
        sys.exit(f"{model.name}: its breaks: line and its #ifdefs differ: {odd}")
    return [(model, None), *((model, bug) for bug in bugs)]


def judge(case: tuple[Path, str | None]) -> bool:
    model, bug = case
    with tempfile.TemporaryDirectory() as work:
        states, depth, errors, why = check(model, Path(work), bug)
    if errors:
        verdict = f"found: {why}" if bug else f"FAILS: {why}"
    else:
        verdict = "NOT FOUND" if bug else "holds"
    line = f"{model.stem}: {bug or 'as built'}: {states} states, depth {depth}"
    print(f"{line}, errors: {errors}, {verdict}", flush=True)
    return bool(errors) == bool(bug)


def main() -> int:
    missing = [name for name in ("spin", "cc") if not shutil.which(name)]
    if missing:
        sys.exit(f"{' and '.join(missing)} missing: apt-get install spin gcc libc6-dev")
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.pml"))
    cases = [case for name in names for case in read(HERE / f"{name}.pml")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return not all(list(pool.map(judge, cases)))


if __name__ == "__main__":
    sys.exit(main())
