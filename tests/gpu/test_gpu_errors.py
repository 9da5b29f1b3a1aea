"""A GPU that fails: each operation ends once, and host memory works on."""

from __future__ import annotations

import gc

import pytest
from gpu.objects import Tensor
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World
from soft_gpu.control import Operation

from aiougds import (
    BatchError,
    GPUContextError,
    GPUError,
    GPUMemoryError,
    MemoryFreedError,
    UGDSError,
)

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}
NAMES = {
    ("cuda", 700): "CUDA_ERROR_ILLEGAL_ADDRESS",
    ("hip", 700): "hipErrorIllegalAddress",
    ("cuda", 2): "CUDA_ERROR_OUT_OF_MEMORY",
    ("hip", 2): "hipErrorOutOfMemory",
}


async def host_memory_works(ns: object) -> None:
    async with ns.allocate(PAGE) as host:  # type: ignore[attr-defined]
        host.view[:] = pattern(PAGE, 99)
        await ns.write(host, offset=0)  # type: ignore[attr-defined]
        host.view[:] = bytes(PAGE)
        await ns.read(host, offset=0)  # type: ignore[attr-defined]
        assert bytes(host.view) == pattern(PAGE, 99)


@pytest.mark.software
async def test_a_copy_that_fails_for_good(world: World, gpu: GPU) -> None:
    """The read fails with the runtime's own name, and so do all after it."""
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        reg = ns.register(Tensor(ptr, MIB))
        gpu.soft.fail_operation(Operation.COPY, 700)
        with pytest.raises(GPUContextError) as caught:
            await ns.read(reg, offset=0, nbytes=512 << 10)
        error = caught.value
        assert (error.runtime, error.code) == (gpu.name, 700)
        assert error.name == NAMES[gpu.name, 700]
        assert error.name in str(error)
        assert "start the process anew" in str(error)
        assert reg.inflight == 0
        with pytest.raises(GPUError):
            await ns.write(reg, offset=0, nbytes=PAGE)
        with pytest.raises(BatchError) as many:
            await ns.read_many([(reg[:PAGE], 0), (reg[PAGE : 2 * PAGE], PAGE)])
        assert all(isinstance(item, GPUError) for item in many.value.exceptions)
        with pytest.raises(GPUError):
            await ns.read(Tensor(ptr, PAGE), offset=0, jit=True, edges="bounce")
        await host_memory_works(ns)
        await reg.aclose()
        assert ns.controller.state == "live"
        assert ns.controller.statistics().mappings == len(ns.controller._device.pool)


@pytest.mark.software
async def test_a_device_that_is_lost(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        kept = ns.register(Tensor(ptr, PAGE), cached=True)
        gpu.soft.lose(0)
        for call in (
            lambda: ns.read(kept, offset=0),
            lambda: ns.write(kept, offset=0),
            lambda: ns.read(Tensor(ptr, PAGE), offset=0),
            lambda: ns.write(kept, offset=0, stream=0),
        ):
            with pytest.raises((GPUError, MemoryFreedError)):
                await call()
        with pytest.raises(GPUError):
            ns.allocate(PAGE, device=gpu.name)
        await host_memory_works(ns)
        memory = bytearray(PAGE)
        await ns.read(memory, offset=0)
        await kept.aclose()
        await ns.controller.clear_registration_cache()
        assert ns.controller.statistics().mappings == len(ns.controller._device.pool)


@pytest.mark.software
async def test_a_gpu_without_room(world: World, gpu: GPU) -> None:
    """Of its memory, or of pinned memory for staging."""
    async with world.open(emu=SMALL) as ns:
        gpu.soft.memory(64 << 10)
        with pytest.raises(GPUMemoryError, match=NAMES[gpu.name, 2]) as caught:
            ns.allocate(MIB, device=gpu.name)
        assert isinstance(caught.value, MemoryError)
        assert (caught.value.code, caught.value.runtime) == (2, gpu.name)
        reg = ns.allocate(PAGE, device=gpu.name)
        await ns.read(reg, offset=0)
        await reg.aclose()
        await host_memory_works(ns)


async def test_memory_that_is_freed_under_a_registration(
    world: World, gpu: GPU
) -> None:
    """Whatever the transfer says, it ends; closing works."""
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        reg = ns.register((ptr, MIB, gpu.name))
        await ns.read(reg, offset=0)
        gpu.free(ptr)
        with pytest.raises(UGDSError):
            await ns.read(reg, offset=0)
        await reg.aclose()
        await host_memory_works(ns)


@pytest.mark.software
async def test_nothing_is_held_after_a_failure(world: World, gpu: GPU) -> None:
    class Held(Tensor):
        alive = 0

        def __init__(self, ptr: int) -> None:
            super().__init__(ptr, PAGE)
            Held.alive += 1

        def __del__(self) -> None:
            Held.alive -= 1

    ptr = gpu.alloc(PAGE)
    async with world.open(emu=SMALL) as ns:
        gpu.soft.fail_operation(Operation.COPY, 700)
        for _ in range(3):
            try:
                await ns.read(Held(ptr), offset=0)
            except UGDSError:
                pass
            else:
                raise AssertionError("it did not fail")
        gc.collect()
        assert Held.alive == 0
        await host_memory_works(ns)


@pytest.mark.software
async def test_a_call_that_fails_once(world: World, gpu: GPU) -> None:
    """Not for good: the next one works."""
    ptr = gpu.alloc(MIB)
    get = {"cuda": "cuPointerGetAttributes", "hip": "hipPointerGetAttributes"}
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 1), offset=0)
        gpu.soft.fail(get[gpu.name], 999)
        with pytest.raises(UGDSError):
            ns.register(Tensor(ptr, PAGE))
        async with ns.register(Tensor(ptr, PAGE)) as reg:
            await ns.read(reg, offset=0)
        assert gpu.get(ptr, PAGE) == pattern(PAGE, 1)
