"""What the documents show runs, and what they link to exists."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aiougds
from aiougds import testing
from aiougds._address import EMU_OPTIONS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*/*.md")]
MIB = 1 << 20


def snippets() -> Iterator[object]:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            line = text.count("\n", 0, found.start()) + 2
            yield pytest.param(found.group(1), id=f"{path.name}:{line}")


async def run(source: str, names: dict[str, object]) -> None:
    """Execute with ``await`` at the top level, as ``python -m asyncio`` does."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, "snippet", "exec", flags=flags, dont_inherit=True)
    result = types.FunctionType(code, names)()
    if inspect.isawaitable(result):
        await result


@pytest.mark.asyncio
@pytest.mark.parametrize("source", list(snippets()))
async def test_snippet_runs(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data.bin", "weights.bin"):
        Path(name).write_bytes(bytes(2 * MIB))
    if "asyncio.run(main())" in source:  # a whole program: this loop runs its main
        source = source.replace("asyncio.run(main())", "await main()")
    if "blocking.open" in source:  # a program without a loop
        await asyncio.to_thread(exec, source, {})
        return
    async with aiougds.open("emu:?size=2GiB") as ns, ns.register(bytearray(MIB)) as reg:
        names: dict[str, object] = {
            "__name__": "snippet",
            "aiougds": aiougds,
            "header": bytearray(100),
            "n": 4096,
            "ns": ns,
            "offsets": np.arange(0, 64 * 4096, 4096, dtype=np.int64),
            "reg": reg,
            "requests": [(reg[:4096], 0), (reg[4096:8192], 65536)],
            "testing": testing,
            "wanted": [(0, 0), (4096, 65536)],
        }
        await run(source, names)
        batch = names.get("batch")
        if isinstance(batch, aiougds.Batch):
            await batch.aclose()
        part = names.get("part")
        if isinstance(part, aiougds.Namespace):
            await part.aclose()
        assert testing.counters(ns).iommu_faults == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_address_options_are_all_documented() -> None:
    text = (ROOT / "docs" / "reference" / "transports.md").read_text(encoding="utf-8")
    assert [name for name in EMU_OPTIONS if f"`{name}`" not in text] == []


def test_readme_commands_stand_alone() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        assert "\n" not in command
        assert command.startswith("sh .ci/setup && ")
