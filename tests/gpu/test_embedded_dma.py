"""The embedded controller's DMA to and from GPU memory, on the software GPU."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random

import anyio
import pytest
from helpers.world import MIB, World
from soft_gpu.control import Missing, Operation, SoftGPU

import aiougds
from aiougds import (
    CompareError,
    GPUContextError,
    GPUError,
    GPUMemoryError,
    MemoryLimitError,
    NVMeError,
    OperationTimeoutError,
    RangeBusyError,
    UGDSError,
    testing,
)
from aiougds.testing import Fault

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]

PAGE = 4096
BYTES = 3 * MIB
RNG = random.Random(4)

# Functions of both runtimes, by what they do.
COPY_IN = {"cuda": "cuMemcpyHtoDAsync", "hip": "hipMemcpyHtoDAsync"}
COPY_OUT = {"cuda": "cuMemcpyDtoHAsync", "hip": "hipMemcpyDtoHAsync"}
ASK = {"cuda": "cuStreamQuery", "hip": "hipStreamQuery"}
REFUSED = {"cuda": (1, "CUDA_ERROR_INVALID_VALUE"), "hip": (1, "hipErrorInvalidValue")}
NO_MEMORY = {"cuda": 2, "hip": 2}
LOST = {"cuda": 700, "hip": 700}


def device_of(gpu: SoftGPU, number: int = 0) -> str:
    return f"{gpu.vendor}:{number}"


@pytest.mark.parametrize("offset", [0, 4, 512, PAGE - 512, PAGE + 4092])
async def test_bytes_arrive_and_nothing_around_them(
    world: World, soft_gpu: SoftGPU, offset: int
) -> None:
    content = RNG.randbytes(BYTES)
    async with (
        world.open() as ns,
        ns.allocate(BYTES) as near,
        ns.allocate(BYTES + 4 * PAGE, device=device_of(soft_gpu)) as far,
    ):
        assert far.staged
        near.view[:] = content
        await ns.write(near, offset=0)
        for nbytes in (PAGE, 3 * PAGE, 64 << 10, MIB, MIB + PAGE, 2 * MIB + PAGE):
            soft_gpu.poke(far.ptr, b"\xee" * far.nbytes)
            assert await ns.read(far[offset : offset + nbytes], offset=PAGE) == nbytes
            there = soft_gpu.peek(far.ptr, far.nbytes)
            assert there[offset : offset + nbytes] == content[PAGE : PAGE + nbytes]
            around = there[:offset] + there[offset + nbytes :]
            assert around == b"\xee" * len(around)
            mine = RNG.randbytes(nbytes)
            soft_gpu.poke(far.ptr + offset, mine)
            assert await ns.write(far[offset : offset + nbytes], offset=PAGE) == nbytes
            assert await ns.read(near, offset=0) == BYTES
            assert near.view[PAGE : PAGE + nbytes] == mine
            near.view[:] = content
            await ns.write(near, offset=0)


@pytest.mark.software
async def test_what_one_read_costs(world: World, soft_gpu: SoftGPU) -> None:
    """One copy and one stream memory operation; nobody waits for a stream."""
    async with (
        world.open() as ns,
        ns.allocate(64 * PAGE, device=device_of(soft_gpu)) as far,
    ):
        await ns.read(far[:PAGE], offset=0)
        soft_gpu.forget()
        for i in range(10):
            await ns.read(far[:PAGE], offset=i * PAGE)
        seen = soft_gpu.counters()
        assert (seen.copies, seen.writes) == (10, 10)
        assert (seen.synchronises, seen.events_recorded, seen.host_funcs) == (0, 0, 0)
        # What is current is looked at, and put back. A slow copy (a busy machine's) is
        # asked after once in a millisecond.
        asked = soft_gpu.calls(ASK[soft_gpu.vendor])
        assert soft_gpu.calls() <= (10 + asked) * 7


@pytest.mark.software
async def test_neighbours_are_one_copy(world: World, soft_gpu: SoftGPU) -> None:
    content = RNG.randbytes(64 * PAGE)
    async with (
        world.open() as ns,
        ns.allocate(64 * PAGE) as near,
        ns.allocate(64 * PAGE, device=device_of(soft_gpu)) as far,
    ):
        near.view[:] = content
        await ns.write(near, offset=0)
        offsets = list(range(0, 64 * PAGE, PAGE))
        RNG.shuffle(offsets)
        requests = [
            (far[i * PAGE : (i + 1) * PAGE], offset) for i, offset in enumerate(offsets)
        ]
        soft_gpu.forget()
        await ns.read_many(requests)
        assert soft_gpu.counters().copied_bytes == 64 * PAGE
        assert soft_gpu.counters().copies <= 64
        if world.step and world.mode in ("adaptive", "inline"):
            assert soft_gpu.counters().copies < 32
        there = soft_gpu.peek(far.ptr, far.nbytes)
        for i, offset in enumerate(offsets):
            piece = there[i * PAGE : (i + 1) * PAGE]
            assert piece == content[offset : offset + PAGE]


@pytest.mark.software
async def test_without_stream_memory_operations(
    world: World, soft_gpu: SoftGPU
) -> None:
    soft_gpu.missing(Missing.MEMOPS)
    soft_gpu.copy_time(0.0002)
    content = RNG.randbytes(BYTES)
    async with (
        world.open() as ns,
        ns.allocate(BYTES, device=device_of(soft_gpu)) as far,
    ):
        soft_gpu.poke(far.ptr, content)
        await ns.write(far, offset=0)
        soft_gpu.poke(far.ptr, bytes(BYTES))
        await ns.read(far[:PAGE], offset=0)
        await ns.read(far[PAGE:], offset=PAGE)
        assert soft_gpu.peek(far.ptr, BYTES) == content
        assert soft_gpu.counters().writes == 0


@pytest.mark.software
async def test_compare_and_commands_without_memory(
    world: World, soft_gpu: SoftGPU
) -> None:
    async with (
        world.open() as ns,
        ns.allocate(MIB, device=device_of(soft_gpu)) as far,
    ):
        content = RNG.randbytes(MIB)
        soft_gpu.poke(far.ptr, content)
        await ns.write(far, offset=0)
        await ns.compare(far, offset=0)
        soft_gpu.poke(far.ptr + MIB - 1, bytes([content[-1] ^ 1]))
        with pytest.raises(CompareError):
            await ns.compare(far, offset=0)
        soft_gpu.forget()
        await ns.verify(offset=0, nbytes=MIB)
        await ns.write_zeroes(offset=0, nbytes=MIB)
        assert soft_gpu.calls() == 0
        await ns.read(far, offset=0)
        assert soft_gpu.peek(far.ptr, MIB) == bytes(MIB)


@pytest.mark.software
@pytest.mark.tasks
async def test_more_than_is_staged_with_host_memory_beside_it(
    world: World, soft_gpu: SoftGPU
) -> None:
    async with (
        world.open(emu={"size": 64 * MIB}) as ns,
        ns.allocate(20 * MIB, device=device_of(soft_gpu)) as far,
        ns.allocate(PAGE) as near,
        anyio.create_task_group() as group,
    ):
        done: list[int] = []

        async def read() -> None:
            done.append(await ns.read(far, offset=0))

        with soft_gpu.copies_held():
            group.start_soon(read)
            while not soft_gpu.in_flight():
                await anyio.sleep(0.001)
            for _ in range(20):
                assert await ns.read(near, offset=0) == PAGE
            assert not done
        while not done:
            await anyio.sleep(0.001)
        assert done == [20 * MIB]


@pytest.mark.two_gpus
async def test_both_devices_at_once(world: World, soft_gpu: SoftGPU) -> None:
    content = RNG.randbytes(MIB)
    async with (
        world.open() as ns,
        ns.allocate(MIB, device=device_of(soft_gpu, 0)) as one,
        ns.allocate(MIB, device=device_of(soft_gpu, 1)) as two,
    ):
        soft_gpu.poke(one.ptr, content)
        await ns.write(one, offset=0)
        await world.gather(
            lambda: ns.read(two, offset=0), lambda: ns.read(one, offset=MIB)
        )
        assert soft_gpu.peek(two.ptr, MIB) == content
        assert soft_gpu.peek(one.ptr, MIB) == bytes(MIB)


# ---- what ends while copies run ----


@pytest.mark.software
@pytest.mark.tasks
async def test_timeout_reset_and_close_wait_for_copies(
    world: World, soft_gpu: SoftGPU
) -> None:
    async with world.open() as ns:
        far = await ns.allocate(MIB, device=device_of(soft_gpu))
        over: list[str] = []
        with soft_gpu.copies_held():
            with pytest.raises(OperationTimeoutError):
                await ns.read(far, offset=0, timeout_s=0.02)
            with pytest.raises(RangeBusyError):
                await ns.read(far[:PAGE], offset=0)  # still the device's

            async def reset() -> None:
                await ns.controller.reset()
                over.append("reset")

            async with anyio.create_task_group() as group:
                group.start_soon(reset)
                await anyio.sleep(0.05)
                assert not over
                assert soft_gpu.in_flight()
                soft_gpu.tick(100)
        assert over == ["reset"]
        soft_gpu.poke(far.ptr, b"\xee" * MIB)
        assert await ns.read(far, offset=0) == MIB
        assert soft_gpu.peek(far.ptr, MIB) == bytes(MIB)
        await far.aclose()


# ---- errors ----


@pytest.mark.software
@pytest.mark.parametrize("nbytes", [PAGE, BYTES])
async def test_a_copy_that_is_refused(
    world: World, soft_gpu: SoftGPU, nbytes: int
) -> None:
    code, name = REFUSED[soft_gpu.vendor]
    async with (
        world.open() as ns,
        ns.allocate(BYTES, device=device_of(soft_gpu)) as far,
        ns.allocate(PAGE) as near,
    ):
        for function, call in (
            (COPY_IN, ns.read),
            (COPY_OUT, ns.write),
            (COPY_OUT, ns.compare),
        ):
            soft_gpu.fail(function[soft_gpu.vendor], code)
            with pytest.raises(GPUError, match=name) as refused:
                await call(far[:nbytes], offset=0)
            assert (refused.value.code, refused.value.name) == (code, name)
            assert refused.value.runtime == soft_gpu.vendor
            assert await ns.read(near, offset=0) == PAGE
            assert await call(far[:nbytes], offset=0) in (nbytes, None)


@pytest.mark.software
async def test_a_context_that_is_lost(world: World, soft_gpu: SoftGPU) -> None:
    """While a copy runs: nothing tells of it, and yet it ends."""
    async with (
        world.open() as ns,
        ns.allocate(PAGE) as near,
        ns.allocate(BYTES, device=device_of(soft_gpu)) as far,
    ):
        assert await ns.read(far, offset=0) == BYTES
        soft_gpu.fail_operation(Operation.COPY, LOST[soft_gpu.vendor])
        with pytest.raises(GPUContextError):
            await ns.read(far, offset=0)
        for nbytes in (PAGE, BYTES):
            with pytest.raises(GPUContextError):
                await ns.write(far[:nbytes], offset=0)
        assert await ns.read(near, offset=0) == PAGE
        assert ns.controller.statistics().inflight == 0


@pytest.mark.software
async def test_no_room_for_staging(world: World, soft_gpu: SoftGPU) -> None:
    async with world.open() as ns, ns.allocate(PAGE) as near:
        soft_gpu.pinned_limit(1 * MIB)
        with pytest.raises((GPUMemoryError, MemoryLimitError)):
            async with ns.allocate(MIB, device=device_of(soft_gpu)):
                pass
        assert await ns.read(near, offset=0) == PAGE
        soft_gpu.pinned_limit(1 << 30)
        async with ns.allocate(MIB, device=device_of(soft_gpu)) as far:
            assert await ns.read(far, offset=0) == MIB


async def test_faults_of_the_script(world: World, soft_gpu: SoftGPU) -> None:
    async with (
        world.open() as ns,
        ns.allocate(MIB, device=device_of(soft_gpu)) as far,
    ):
        with (
            testing.inject(ns, Fault.status("read", sc=4, count=1)),
            pytest.raises(NVMeError) as failed,
        ):
            await ns.read(far, offset=0)
        assert not isinstance(failed.value, GPUError)
        with testing.inject(ns, Fault.delay(0.01, "read", count=1)):
            assert await ns.read(far[:PAGE], offset=0) == PAGE
        assert await ns.read(far, offset=0) == MIB


async def forked(gpu: SoftGPU) -> None:
    """Fork with a transfer under way: the child ends it all without a call."""
    async with (
        aiougds.open("emu:?size=4MiB") as ns,
        ns.allocate(MIB, device=device_of(gpu)) as far,
    ):
        await ns.read(far, offset=0)
        child = os.fork()
        if not child:
            before = gpu.calls()
            code = 1
            try:
                with contextlib.suppress(UGDSError):
                    await ns.read(far, offset=0)
                with contextlib.suppress(UGDSError):
                    await far.aclose()
                with contextlib.suppress(UGDSError):
                    await ns.aclose()
                del far, ns
                gc.collect()
                code = int(gpu.calls() != before)
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        await ns.read(far, offset=0)


@pytest.mark.software
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_leaves_the_runtime_alone(soft_gpu: SoftGPU) -> None:
    asyncio.run(forked(soft_gpu))
