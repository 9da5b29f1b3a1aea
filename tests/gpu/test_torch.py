"""torch on a real GPU (``--real-gpu``): its streams, events and tensors as they are."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from helpers.model import pattern
from helpers.world import MIB

import aiougds

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:  # noqa: ANN401
    return importlib.import_module("torch")


@pytest.mark.asyncio
async def test_a_read_between_kernels_of_a_stream(torch: Any) -> None:  # noqa: ANN401
    data = pattern(MIB, 1)
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    target = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    async with aiougds.open("emu:?size=4MiB") as ns, ns.register(target) as reg:
        await ns.write(data, offset=0)
        with torch.cuda.stream(stream):
            target.fill_(7)
            op = ns.read_on(stream, reg, offset=0)
            doubled = target.to(torch.int32) * 2
        other.wait_event(op.event)
        with torch.cuda.stream(other):
            copied = target.clone()
        event = other.record_event()
        assert await op == MIB
        await aiougds.gpu_event(event)
        assert bytes(copied.cpu().numpy()) == data
        stream.synchronize()
        assert doubled.cpu().tolist() == [2 * byte for byte in data]
        last = ns.write_on(stream, reg, offset=2 * MIB, after=event)
        assert await last == MIB


@pytest.mark.asyncio
async def test_a_kernel_says_where_to_read(torch: Any) -> None:  # noqa: ANN401
    data = pattern(MIB, 2)
    stream = torch.cuda.Stream()
    target = torch.zeros(4096, dtype=torch.uint8, device="cuda")
    async with aiougds.open("emu:?size=1MiB") as ns, ns.register(target) as reg:
        await ns.write(data, offset=0)
        cell = aiougds.Cell(device="cuda:0")
        with torch.cuda.stream(stream):
            torch.as_tensor(cell, device="cuda").fill_(8192)
            op = ns.read_on(stream, reg, offset=cell)
        assert await op == 4096
        assert bytes(target.cpu().numpy()) == data[8192 : 8192 + 4096]
