"""The programs of docs/how-to: cuda-streams.md and hip.md, on the software GPU."""

from __future__ import annotations

import ast
import asyncio
import inspect

import pytest
from documents.pages import Block, run_by
from gpu.on_stream import obj
from gpu.rig import GPU

import aiougds

pytestmark = [pytest.mark.soft_gpu, pytest.mark.software]
PAGES = {"cuda": "cuda-streams.md", "hip": "hip.md"}
MIB = 1 << 20


def programs(vendor: str) -> list[Block]:
    mine = run_by("gpu/test_docs_how_to.py")
    return [block for block in mine if block.path.name == PAGES[vendor]]


async def run(block: Block, names: dict[str, object]) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block.source, block.name, "exec", flags=flags, dont_inherit=True)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result


def test_they_run(gpu: GPU, capsys: pytest.CaptureFixture[str]) -> None:
    stream = gpu.stream()
    launched: list[object] = []

    def launch(_kernel: object, on: object, reg: object) -> None:
        gpu.soft.kernel(stream, seconds=0.001)
        launched.append((on, reg))

    async def work() -> None:
        async with (
            aiougds.open("emu:?size=64MiB") as ns,
            ns.allocate(MIB, device=f"{gpu.name}:0") as reg,
        ):
            names: dict[str, object] = {
                "aiougds": aiougds,
                "kernel": None,
                "launch": launch,
                "ns": ns,
                "reg": reg,
                "stream": obj(gpu, stream),
            }
            for block in programs(gpu.name):
                await run(block, dict(names))

    asyncio.run(work())
    assert len(launched) == (gpu.name == "cuda")
    assert str(MIB) in capsys.readouterr().out


def test_there_are_some() -> None:
    assert len(programs("cuda")) >= 3
    assert programs("hip")
