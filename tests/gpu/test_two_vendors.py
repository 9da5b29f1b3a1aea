"""A system with GPUs of both vendors in one process."""

from __future__ import annotations

import pytest
from gpu.objects import CudaArray, DLPackArray, Tensor
from gpu.on_stream import ended, obj, recorded
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World
from soft_gpu.control import SoftGPU

from aiougds import ArgumentTypeError, WrongGPUError, gpu_event

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]


async def test_whoever_knows_the_pointer_has_it(
    world: World, soft_cuda: SoftGPU, soft_hip: SoftGPU
) -> None:
    cuda, hip = GPU(soft_cuda), GPU(soft_hip)
    one, other = cuda.alloc(2 * PAGE), hip.alloc(2 * PAGE)
    async with world.open(emu={"size": MIB, "lba": 512}) as ns:
        await ns.write(pattern(2 * PAGE, 1), offset=0)
        for gpu, ptr in ((cuda, one), (hip, other)):
            for obj in (
                Tensor(ptr, PAGE),  # torch on ROCm says cuda
                CudaArray(ptr, PAGE),
                (ptr, PAGE, 0),
                (ptr, PAGE, gpu.name),
                (ptr, PAGE),
            ):
                gpu.put(ptr, bytes(PAGE))
                async with ns.register(obj) as reg:
                    assert gpu.name in repr(reg.memory.what)
                    await ns.read(reg, offset=0)
                assert gpu.get(ptr, 2 * PAGE) == pattern(PAGE, 1) + b"\xee" * PAGE
        rocm = DLPackArray(other, PAGE, (10, 0))
        await ns.read(rocm, offset=PAGE)
        assert hip.get(other, PAGE) == pattern(2 * PAGE, 1)[PAGE:]
        with pytest.raises(WrongGPUError, match="hip:0"):
            await ns.read((other, PAGE, "cuda:1"), offset=0)
        async with (
            ns.allocate(PAGE, device="cuda:0") as first,
            ns.allocate(PAGE, device="hip:0") as second,
        ):
            assert first.__dlpack_device__() == (2, 0)
            assert second.__dlpack_device__() == (10, 0)
            stream = hip.stream()
            hip.soft.kernel(stream, seconds=0.05)
            hip.api.fill(second.ptr, 7, PAGE, stream)
            await ns.write(second, offset=0, stream=stream)
            await ns.read(first, offset=0)
            assert cuda.get(first.ptr, PAGE) == b"\x07" * PAGE
    cuda.finish()
    hip.finish()


@pytest.mark.software
async def test_no_stream_waits_for_the_other_vendor(
    world: World, soft_cuda: SoftGPU, soft_hip: SoftGPU
) -> None:
    """The driver is not even asked: a foreign handle is a wild pointer to it."""
    cuda, hip = GPU(soft_cuda), GPU(soft_hip)
    async with world.open(emu={"size": MIB, "lba": 512}) as ns:
        for mine, other in ((cuda, hip), (hip, cuda)):
            stream, foreign = obj(mine, mine.stream()), other.stream()
            memory = (mine.alloc(PAGE), PAGE, mine.name)
            op = ns.read_on(stream, memory, offset=0)
            waits = {"cuda": "cuStreamWaitEvent", "hip": "hipStreamWaitEvent"}
            with recorded(other, foreign) as event:
                mine.soft.forget()
                with pytest.raises(WrongGPUError, match="gpu_event"):
                    ns.read_on(stream, memory, offset=0, after=[op, event])
                with pytest.raises(WrongGPUError, match="another runtime"):
                    op.event.wait(obj(other, foreign))
                assert not mine.soft.calls(waits[mine.name])
                gpu_event(event)
            assert await ended(world, op) == PAGE
            del op
    cuda.finish()
    hip.finish()


def test_a_stream_is_no_event(soft_cuda: SoftGPU) -> None:
    cuda = GPU(soft_cuda)
    with pytest.raises(ArgumentTypeError, match="is no event"):
        gpu_event(obj(cuda, cuda.stream()))
    cuda.finish()
