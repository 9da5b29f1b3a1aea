#!/usr/bin/env python3
"""Build the fuzz targets with clang and run them: ``run.py [--seconds N] [TARGET...]``.

Needs only Python and clang with its libFuzzer. What is found is kept, and printed with
the command that runs it again; new inputs stay in the build folder unless ``--grow``
merges the few that reach more than the corpus does into it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NATIVE = ROOT / "native"
SUPPORT = ("ledger", "model", "prp_walk", "puppet", "world")
WRAPPED = (
    "clock_gettime", "nanosleep", "poll", "ppoll", "pthread_cond_wait",
    "pthread_create", "pthread_join", "pthread_setname_np", "sched_yield",
    "mem_queue_alloc", "mem_queue_free",
)  # fmt: skip
SANITIZE = "address,undefined"
FLAGS = (
    "-std=gnu17", "-D_GNU_SOURCE=", "-O2", "-g", "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=all",
    *(f"-I{folder}" for folder in (NATIVE.parent, NATIVE, NATIVE / "include")),
)  # fmt: skip
# Loops over whole tables, whose comparisons say nothing about the input.
WALKS_TABLES = {"iommu.c", "world.c", "enable.c"}
MAX_LEN = {"prp": 512, "identify": 4096, "cqe": 1024, "emu": 2048}


def targets() -> list[str]:
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))


def find_clang() -> str:
    """The newest clang that links libFuzzer, or words on how to get one."""
    names = ["clang", *(f"clang-{n}" for n in range(30, 12, -1))]
    found = [name for name in names if shutil.which(name)]
    source = "int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }"
    for name in found:
        probe = [
            name,
            "-x",
            "c",
            "-",
            "-o",
            os.devnull,
            f"-fsanitize=fuzzer,{SANITIZE}",
        ]
        if not subprocess.run(
            probe, input=source, text=True, capture_output=True
        ).returncode:
            return name
    version = next((name.partition("-")[2] for name in found[::-1]), "") or "19"
    packages = f"clang-{version} libclang-rt-{version}-dev"
    sys.exit(
        f"no clang with libFuzzer ({', '.join(found) or 'none is installed'}): "
        f"apt-get install {packages}"
    )


def compile_all(clang: str, build: Path) -> list[Path]:
    sources = [*NATIVE.rglob("*.c"), *(HERE / f"{name}.c" for name in SUPPORT)]
    headers = [*NATIVE.rglob("*.h"), *HERE.glob("*.h"), Path(__file__)]
    newest = max(path.stat().st_mtime for path in headers)
    sanitize = f"-fsanitize=fuzzer-no-link,{SANITIZE}"

    def one(source: Path) -> Path:
        obj = build / (str(source.relative_to(ROOT)).replace("/", "_") + ".o")
        needed = max(newest, source.stat().st_mtime)
        if not obj.exists() or obj.stat().st_mtime < needed:
            command = [clang, *FLAGS, sanitize, "-c", str(source), "-o", str(obj)]
            if source.name in WALKS_TABLES:
                command.append("-fno-sanitize-coverage=trace-cmp")
            subprocess.run(command, check=True)
        return obj

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, sources))


def link(clang: str, build: Path, target: str, objects: list[Path]) -> Path:
    exe = build / target
    wrap = [f"-Wl,--wrap={name}" for name in WRAPPED]
    source = HERE / f"fuzz_{target}.c"
    sanitize = f"-fsanitize=fuzzer,{SANITIZE}"
    command = [clang, *FLAGS, sanitize, str(source), *map(str, objects), *wrap]
    subprocess.run([*command, "-lpthread", "-o", str(exe)], check=True)
    return exe


def environment() -> dict[str, str]:
    asan = "quarantine_size_mb=8:detect_stack_use_after_return=0"
    return {**os.environ, "ASAN_OPTIONS": asan, "UBSAN_OPTIONS": "print_stacktrace=1"}


def fuzz(exe: Path, target: str, seconds: int, build: Path) -> bool:
    fresh = build / f"{target}.new"
    found = build / f"{target}.found"
    fresh.mkdir(exist_ok=True)
    found.mkdir(exist_ok=True)
    command = [
        str(exe), f"-max_total_time={seconds}", f"-max_len={MAX_LEN.get(target, 1024)}",
        "-timeout=10", "-print_final_stats=1", "-use_value_profile=0",
        f"-artifact_prefix={found}/", str(fresh), str(HERE / "corpus" / target),
    ]  # fmt: skip
    run = subprocess.run(command, env=environment(), capture_output=True, text=True)
    lines = run.stderr.splitlines()
    last = next((line for line in lines[::-1] if " cov: " in line), "")
    runs = next((line for line in lines[::-1] if "number_of_executed" in line), "0")
    cov = re.search(r"cov: (\d+) ft: (\d+)", last)
    edges = f"{cov[1]} edges, {cov[2]} features" if cov else "no coverage"
    count = int(runs.split()[-1])
    verdict = "no finding" if not run.returncode else "FINDING"
    rate = count // max(seconds, 1)
    print(f"{target}: {count} executions ({rate}/s), {edges}, {verdict}", flush=True)
    if run.returncode:
        tail = "\n".join(line for line in lines if not line.startswith("#"))
        print(tail[-6000:])
        print(f"again: {exe} {found}/<the file named above>")
    return not run.returncode


def grow(exe: Path, target: str, build: Path) -> None:
    """Add to the corpus what reaches more, smallest inputs first."""
    corpus = HERE / "corpus" / target
    command = [str(exe), "-merge=1", str(corpus), str(build / f"{target}.new")]
    subprocess.run(command, env=environment(), check=True, capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--grow", action="store_true", help="merge into the corpus")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(targets())}")
    args = parser.parse_args()
    chosen = args.target or targets()
    unknown = set(chosen) - set(targets())
    if unknown:
        parser.error(
            f"no target {', '.join(unknown)}; there are {', '.join(targets())}"
        )
    clang = find_clang()
    build = args.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    objects = compile_all(clang, build)
    good = True
    for target in chosen:
        exe = link(clang, build, target, objects)
        good &= fuzz(exe, target, args.seconds, build)
        if args.grow:
            grow(exe, target, build)
    return not good


if __name__ == "__main__":
    sys.exit(main())
