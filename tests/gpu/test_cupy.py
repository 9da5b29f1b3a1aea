"""CuPy on a real GPU (``--real-gpu``): its streams, events and arrays as they are."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from helpers.model import pattern
from helpers.world import MIB

import aiougds

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy() -> Any:  # noqa: ANN401
    return importlib.import_module("cupy")


@pytest.mark.asyncio
async def test_a_read_between_kernels_of_a_stream(cupy: Any) -> None:  # noqa: ANN401
    data = pattern(MIB, 1)
    stream = cupy.cuda.Stream(non_blocking=True)
    other = cupy.cuda.Stream(non_blocking=True)
    target = cupy.zeros(MIB, dtype=cupy.uint8)
    cupy.cuda.Device().synchronize()
    async with aiougds.open("emu:?size=4MiB") as ns, ns.register(target) as reg:
        await ns.write(data, offset=0)
        with stream:
            target.fill(7)
            op = ns.read_on(stream, reg, offset=0)
            doubled = target.astype(cupy.int32) * 2
        other.wait_event(op.event)
        with other:
            copied = target.copy()
        event = other.record()
        assert await op == MIB
        await aiougds.gpu_event(event)
        assert copied.get().tobytes() == data
        stream.synchronize()
        assert doubled.get().tolist() == [2 * byte for byte in data]
