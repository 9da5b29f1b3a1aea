"""Objects of real GPU libraries, as far as they run on the software GPU."""

from __future__ import annotations

import importlib

import pytest
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World
from soft_gpu.control import SoftGPU

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]


async def test_buffers_of_cuda_core(world: World, soft_cuda: SoftGPU) -> None:
    """Both ways: its buffers are read into, and it sees memory of ours."""
    core = importlib.import_module("cuda.core")
    views = importlib.import_module("cuda.core.utils")
    gpu = GPU(soft_cuda)
    ptr, pinned = gpu.alloc(2 * PAGE), gpu.api.pinned(PAGE)
    buffer = core.Buffer.from_handle(ptr, 2 * PAGE)
    stream = core.Stream.from_handle(gpu.stream())
    async with world.open(emu={"size": MIB, "lba": 512}) as ns:
        await ns.write(pattern(2 * PAGE, 1), offset=0)
        gpu.soft.kernel(int(stream.handle), seconds=0.05)
        gpu.api.fill(ptr, 0, PAGE, int(stream.handle))
        await ns.read(buffer, offset=0, stream=stream)
        assert gpu.get(ptr, 2 * PAGE) == pattern(2 * PAGE, 1)
        async with ns.register(buffer) as reg:
            assert (reg.ptr, reg.nbytes) == (ptr, 2 * PAGE)
            await ns.write(reg[PAGE:], offset=4 * PAGE, stream=stream)
        host = core.Buffer.from_handle(pinned, PAGE)
        await ns.read(host, offset=4 * PAGE)
        assert gpu.get(pinned, PAGE) == pattern(2 * PAGE, 1)[PAGE:]
        async with ns.allocate(PAGE, device="cuda:0") as ours:
            bare = getattr(ours, "inner", ours)
            for make in ("from_dlpack", "from_cuda_array_interface"):
                view = getattr(views.StridedMemoryView, make)(bare, stream_ptr=-1)
                assert (view.ptr, view.shape) == (ours.ptr, (PAGE,))
                assert (view.device_id, view.is_device_accessible) == (0, True)
                del view
            del bare
    del buffer, host, stream
    gpu.api.free_pinned(pinned)
    gpu.finish()
