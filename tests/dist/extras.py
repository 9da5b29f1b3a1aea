"""Each extra, installed with the wheel and nothing else: ``extras.py WHEEL [EXTRA..]``.

Every extra gets an environment of its own, of the interpreter that runs this, and a
program that does what the extra is for. Those of LMCache and vLLM are 6 and 9 GB: what
they would install is resolved only, unless they are named; then it is installed as
their pages say. One that has no wheels yet for a new interpreter has to fail there, so
that this is noticed when it has. Needs uv.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.pages import run_by

READ = """
import sys, aiougds
async def read():
    async with aiougds.open("emu:") as ns:
        return await ns.read(bytearray(4096), offset=0)
"""
PROGRAMS = {
    "cli": "import rich.table, sys; sys.argv = ['aiougds', 'demo', '--size', '8MiB']\n"
    "from aiougds.cli import main; sys.exit(main())",
    "uvloop": "import uvloop; assert uvloop.run(read()) == 4096",
    "trio": "import trio; assert trio.run(read) == 4096",
    "cuda": "from cuda.bindings import driver; from aiougds._gpu import runtime\n"
    "why = runtime.unavailable('cuda'); assert 'pip install' not in why, why",
    "hip": "from hip import hip; from aiougds._gpu import runtime\n"
    "why = runtime.unavailable('hip'); assert 'pip install' not in why, why",
    "metrics": "import prometheus_client as p, aiougds.blocking\n"
    "from aiougds.metrics import ControllerCollector\n"
    "with aiougds.blocking.open('emu:') as ns:\n"
    "    p.REGISTRY.register(ControllerCollector(ns.controller))\n"
    "    assert b'aiougds_' in p.generate_latest()",
    "otel": "import asyncio, aiougds.telemetry as t; t.instrument()\n"
    "assert asyncio.run(read()) == 4096",
    "store": "import asyncio, aiougds.store as st\n"
    "async def chunk(kind):\n"
    "    async with aiougds.open('emu:?size=8MiB') as ns:\n"
    "        how = st.Layout(slot_bytes=1 << 20)\n"
    "        async with st.open([ns], create=how, checksum=kind) as chunks:\n"
    "            await chunks.put(b'key', bytearray(b'x' * 5000))\n"
    "            back = bytearray(5000); await chunks.get(b'key', back)\n"
    "            assert back == b'x' * 5000\n"
    "for kind in ('crc32c', 'xxh3'): asyncio.run(chunk(kind))",
    "plot": "from aiougds.cli._suites import plot; plot.need_matplotlib()\n"
    "figure, _ = plot._figure(1); figure.savefig('figure.svg')",
    "peers": "import aiofiles, caio.linux_uring_asyncio, pyaio",
}
RESOLVED = {
    "lmcache": "import aiougds.lmcache as ours; ours.AiougdsL2AdapterConfig.help()",
    "vllm": "import aiougds.vllm as ours; assert ours.AiougdsTier.__mro__[1:]",
}
# The last interpreter that all of it has wheels for, on 2026-12-01.
UNTIL = {"lmcache": (3, 13), "peers": (3, 14), "vllm": (3, 14)}


def extras_of(wheel: Path) -> list[str]:
    """Return what the metadata name: an extra without a program is a failure."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return re.findall(r"^Provides-Extra: (.+)$", archive.read(name).decode(), re.M)


class Failed(Exception):
    """A program failed; what it said."""


def run(command: list[str], cwd: str, **more: str) -> str:
    env = {**os.environ, "PYTHONSAFEPATH": "1", **more}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{command[:6]}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def install_as_shown(wheel: Path, extra: str) -> str:
    """Run what the page shows, with the wheel in reach; return how much came."""
    (block,) = (b for b in run_by("dist/extras.py") if f"[{extra}]" in b.source)
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "venv", "env"], folder)
        links = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}"
        # pip's copy of what it downloads would be as much again.
        more = {"PIP_FIND_LINKS": links, "PIP_NO_CACHE_DIR": "1"}
        run(["sh", "-e", "-c", f". env/bin/activate\n{block.source}"], folder, **more)
        run(["env/bin/python", "-c", RESOLVED[extra]], folder)
        files = Path(folder).rglob("*")
        size = sum(file.lstat().st_size for file in files if not file.is_symlink())
    return f"installed as {block.name} says, {size / 1e9:.1f} GB, and imports"


def try_extra(wheel: Path, extra: str) -> str:
    """Return what was done with it."""
    wanted = f"aiougds[{extra}] @ {wheel.as_uri()}"
    with tempfile.TemporaryDirectory() as folder:
        run(["uv", "venv", "-q", "-p", sys.executable, "env"], folder)
        install = ["uv", "pip", "install", "-p", "env", "--only-binary", ":all:"]
        if extra in RESOLVED:
            said = run([*install, "--dry-run", wanted], folder)
            (found,) = re.findall(r"Would install (\d+) packages", said)
            (version,) = re.findall(rf"\+ ({extra}==\S+)", said)
            return f"{version} resolves, {found} packages"
        run([*install, wanted], folder)
        run(["env/bin/python", "-c", READ + PROGRAMS[extra]], folder)
        return "installed, and does what it is for"


def no_wheels(wheel: Path, extra: str) -> str:
    """Return which package has none for this interpreter."""
    try:
        try_extra(wheel, extra)
    except Failed as error:
        found = re.search(r"Because (\S+) has no usable wheels", str(error))
        if found is None:
            raise
        return f"{found[1]} has no wheel for this interpreter"
    raise SystemExit(f"{extra} has wheels now: raise UNTIL in {__file__}")


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    for extra in sys.argv[2:] or extras_of(wheel):
        began = time.monotonic()
        if sys.version_info[:2] <= UNTIL.get(extra, sys.version_info):
            whole = extra in RESOLVED and extra in sys.argv[2:]
            done = (install_as_shown if whole else try_extra)(wheel, extra)
        else:
            done = no_wheels(wheel, extra)
        print(f"{extra}: {done} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
