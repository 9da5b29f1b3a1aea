"""The Python that documents and docstrings show runs, on the embedded controller.

What imports aiougds itself is a program, and has a process of its own. The rest are
parts, with ``ns`` and the like at hand, and ``await`` where it stands.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from documents.pages import IN_ORDER, Block, blocks
from documents.shape import alike

import aiougds
import aiougds.blocking
import aiougds.store
import aiougds.store.blocking
from aiougds import testing

MIB = 1 << 20
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
HERE = [
    block for block in blocks("python") if not block.mark and block.path not in IN_ORDER
]
ELSEWHERE = [block for block in blocks("python") if block.mark]


def is_program(block: Block) -> bool:
    try:
        tree = ast.parse(block.source)
        compile(tree, block.name, "exec", dont_inherit=True)
    except SyntaxError:
        return False  # it awaits where no function is
    nodes = list(ast.walk(tree))
    names = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    names += [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    runs = any(isinstance(n, ast.Attribute) and n.attr == "run" for n in nodes)
    return runs or any(name.split(".")[0] == "aiougds" for name in names)


PROGRAMS = [block for block in HERE if is_program(block)]
PARTS = [block for block in HERE if not is_program(block)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("data.bin", "weights.bin"):
        Path(name).write_bytes(bytes(2 * MIB))
    return tmp_path


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_program(block: Block, folder: Path) -> None:
    file = folder / "program.py"
    file.write_text(block.source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    if block.after:
        assert alike(block.after, done.stdout), done.stdout


async def run(block: Block, names: dict[str, object]) -> None:
    """Execute with ``await`` at the top level, as ``python -m asyncio`` does."""
    code = compile(block.source, block.name, "exec", flags=AWAITS, dont_inherit=True)
    run_it = types.FunctionType(code, names)
    if not code.co_flags & inspect.CO_COROUTINE and "blocking" in block.source:
        await asyncio.to_thread(run_it)
        return
    result = run_it()
    if inspect.isawaitable(result):
        await result


@pytest.mark.asyncio
@pytest.mark.parametrize("block", PARTS, ids=lambda block: block.name)
async def test_part(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    if "data.bin?size=" in block.source:
        Path("data.bin").unlink()  # it is made there
    async with aiougds.open("emu:?size=2GiB") as ns, ns.register(bytearray(MIB)) as reg:
        names: dict[str, object] = {
            "__name__": "snippet",
            "aiougds": aiougds,
            "asyncio": asyncio,
            "controller": ns.controller,
            "header": bytearray(100),
            "inject": testing.inject,
            "Fault": testing.Fault,
            "n": 4096,
            "ns": ns,
            "offsets": np.arange(0, 64 * 4096, 4096, dtype=np.int64),
            "reg": reg,
            "requests": [(reg[:4096], 0), (reg[4096:8192], 65536)],
            "testing": testing,
            "wanted": [(0, 0), (4096, 65536)],
        }
        await run(block, names)
        for made in (names.get("batch"), names.get("part")):
            if isinstance(made, aiougds.Batch | aiougds.Namespace):
                await made.aclose()
        assert testing.counters(ns).iommu_faults == 0
    if block.after:
        assert alike(block.after, capsys.readouterr().out)


@pytest.mark.parametrize("block", ELSEWHERE, ids=lambda block: block.name)
def test_what_is_run_elsewhere_is_python(block: Block) -> None:
    compile(block.source, block.name, "exec", flags=AWAITS, dont_inherit=True)


def test_there_are_programs_and_parts() -> None:
    assert len(PROGRAMS) >= 2
    assert len(PARTS) >= 15
