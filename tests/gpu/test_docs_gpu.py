"""The programs of docs/concepts: gpu.md and streams.md, with libraries as stand-ins.

They are no doctests: what they use of torch is made over the software GPU here.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from documents.pages import run_by
from gpu.objects import Tensor
from gpu.on_stream import obj, recorded
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB

import aiougds

pytestmark = [
    pytest.mark.soft_gpu,
    pytest.mark.vendors("cuda"),
    pytest.mark.software,
]


def programs(page: str) -> list[str]:
    mine = run_by("gpu/test_docs_gpu.py")
    return [block.source for block in mine if block.path.name == page]


def block(page: str, words: str) -> CodeType:
    """Return the one program that has these words, compiled."""
    (found,) = (source for source in programs(page) if words in source)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    made = compile(found, page, "exec", flags=flags, dont_inherit=True)
    assert isinstance(made, CodeType)
    return made


def test_every_program_is_run_here() -> None:
    mine = inspect.getsource(inspect.getmodule(block))  # type: ignore[arg-type]
    words = re.findall(r'block\(\s*"(\w+\.md)", "(.*?)"\s*\)', mine)
    for page in ("gpu.md", "streams.md"):
        known = [each for where, each in words if where == page]
        for source in programs(page):
            assert any(each in source for each in known), source


class Sliced(Tensor):
    """As a torch tensor of 16-bit numbers, as far as the programs go."""

    def __getitem__(self, part: slice) -> Sliced:
        start, end, _ = part.indices(self.size // 2)
        return Sliced(self.ptr + 2 * start, 2 * (end - start))


class Case:
    """A software GPU, and names that the programs use."""

    def __init__(self, gpu: GPU) -> None:
        self.gpu = gpu
        self.stream = gpu.stream()
        self.launched = 0
        self.names: dict[str, Any] = {
            "aiougds": aiougds,
            "stream": obj(gpu, self.stream),
            "launch": self.launch,
            "kernel": None,
            "torch": SimpleNamespace(
                float16=None,
                empty=lambda n, dtype, device: Sliced(gpu.alloc(2 * n), 2 * n),
                from_dlpack=self.consume,
            ),
        }

    def launch(self, _kernel: object, stream: object, array: object) -> None:
        """Queue something that uses the array."""
        ptr = array.data_ptr() if isinstance(array, Tensor) else int(array[0])  # type: ignore[index]
        self.gpu.soft.kernel(self.stream, seconds=0.01)
        self.gpu.api.fill(ptr, 0x77, PAGE, self.stream)
        self.launched += 1

    def consume(self, reg: Any) -> Any:  # noqa: ANN401
        assert reg.__dlpack_device__() == (2, 0)
        return reg.__dlpack__()

    def run(self, code: CodeType, /, **names: object) -> dict[str, Any]:
        scope = {**self.names, **names}

        async def work() -> None:
            result = eval(code, scope)
            if inspect.isawaitable(result):
                await result

        asyncio.run(work())
        return scope

    async def within(self, code: CodeType, **names: object) -> dict[str, Any]:
        scope = {**self.names, **names}
        result = eval(code, scope)
        if inspect.isawaitable(result):
            await result
        return scope


@pytest.fixture
def case(gpu: GPU) -> Case:
    return Case(gpu)


def test_with_torch(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored = pattern(4 * MIB, 1)
    Path("weights.bin").write_bytes(stored)
    other = Sliced(case.gpu.alloc(PAGE), PAGE)
    scope = case.run(block("gpu.md", "torch.empty"), other=other)
    tensor = scope["tensor"]
    seen = case.gpu.get(tensor.ptr, tensor.size)
    assert seen == stored[:8192] + stored[:8192] + stored[16384 : tensor.size]
    assert case.gpu.get(other.ptr, PAGE) == stored[:PAGE]


def test_allocated_cached_ordered_and_exported(case: Case) -> None:
    gpu = case.gpu

    async def work() -> None:
        async with aiougds.open("emu:?size=4MiB&lba=512") as ns:
            allocated = await case.within(block("gpu.md", "ns.allocate(1 << 20"), ns=ns)
            assert allocated["tensor"] is not None
            del allocated
            tensor = Sliced(gpu.alloc(MIB), MIB)
            await case.within(block("gpu.md", "cached=True"), ns=ns, tensor=tensor)
            assert ns.controller.registration_cache.entries == 1
            x = Sliced(gpu.alloc(PAGE), PAGE)
            await ns.write(pattern(PAGE, 2), offset=4096)
            order = block("gpu.md", "sees the new ones")
            await case.within(order, ns=ns, x=x)
            stored = bytearray(PAGE)
            await ns.read(stored, offset=0)
            assert stored == b"\x77" * PAGE, "the write comes behind the kernel"
            sent: list[tuple[int, int, int]] = []
            async with ns.register((tensor.ptr, MIB, "cuda:0")) as reg:
                export = block("gpu.md", "export_dmabuf() as export")

                def send(*what: int) -> None:
                    os.fstat(what[0])
                    sent.append(what)

                await case.within(export, reg=reg, send=send)
            assert sent[0][1:] == (0, MIB)

    asyncio.run(work())


def test_streams(case: Case) -> None:
    gpu, size = case.gpu, 64 << 10
    chunks = [3 * size, 0, 2 * size, size]
    other, torch_stream = gpu.stream(), gpu.stream()
    stored = pattern(4 * size, 3)

    class TorchStream:
        """As of torch."""

        def wait_event(self, event: Any) -> None:  # noqa: ANN401
            assert event.cuda_event
            event.wait(torch_stream)

    async def work() -> None:
        async with (
            aiougds.open("emu:?size=2GiB&lba=512") as ns,
            ns.register((gpu.alloc(4 * size), 4 * size, "cuda:0")) as reg,
            ns.register((gpu.alloc(PAGE), PAGE, "cuda:0")) as buf,
        ):
            await ns.write(stored, offset=0)
            gpu.soft.kernel(other, seconds=0.01)
            with recorded(gpu, other) as event:
                await case.within(
                    block("streams.md", "torch_stream.wait_event"),
                    ns=ns,
                    reg=reg,
                    buf=buf,
                    array=Tensor(reg.ptr, 4 * size),
                    chunks=chunks,
                    size=size,
                    other=obj(gpu, other),
                    torch_event=event,
                    torch_stream=TorchStream(),
                )
            first = bytearray(PAGE)
            await ns.read(first, offset=1 << 30)
            assert first == b"\x77" * PAGE, "it stores what the kernel made"
            seen = gpu.get(reg.ptr, 4 * size)
            assert seen == b"".join(stored[at : at + size] for at in chunks)
            assert gpu.get(buf.ptr, PAGE) == stored[:PAGE]

    asyncio.run(work())
    assert case.launched == 1
