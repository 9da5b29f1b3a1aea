"""stream=: the order between a stream's work and an awaited transfer."""

from __future__ import annotations

import threading

import anyio
import pytest
from gpu.objects import CudaArray, Tensor
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent
from life.live import Clock

from aiougds import (
    ArgumentTypeError,
    GPUContextError,
    GPUError,
    GraphCaptureError,
    OperationTimeoutError,
    blocking,
)

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}
LONG_S = 0.05


async def test_a_write_moves_what_the_stream_makes(world: World, gpu: GPU) -> None:
    """Registered, not registered, many at once, pinned host memory."""
    ptr = gpu.alloc(2 * PAGE, fill=0)
    pinned = gpu.api.pinned(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, 2 * PAGE)) as reg:

        async def stored(value: int, at: int = 0, nbytes: int = PAGE) -> bool:
            async with ns.allocate(nbytes) as host:
                await ns.read(host, offset=at)
                return bytes(host.view) == bytes([value]) * nbytes

        def make(value: int, where: int = ptr, nbytes: int = PAGE) -> None:
            gpu.soft.kernel(stream, seconds=LONG_S)
            gpu.api.fill(where, value, nbytes, stream)

        make(1)
        await ns.write(reg[:PAGE], offset=0, stream=stream)
        assert await stored(1)
        make(2)
        await ns.write(Tensor(ptr, PAGE), offset=0, stream=stream)
        assert await stored(2)
        make(3, nbytes=2 * PAGE)
        pairs = [(reg[PAGE:], 0), (reg[:PAGE], PAGE)]
        assert await ns.write_many(pairs, stream=stream) == [PAGE, PAGE]
        assert await stored(3, nbytes=2 * PAGE)
        make(4, where=pinned)
        await ns.write((pinned, PAGE, gpu.name), offset=0, stream=stream)
        assert await stored(4)
        make(5)  # an array that names its stream is ordered by itself
        await ns.write(CudaArray(ptr, PAGE, stream=stream), offset=0)
        assert await stored(5)
        gpu.soft.kernel(stream)
        gpu.api.fill(ptr, 6, PAGE, stream)
        await ns.write(reg[:PAGE], offset=0)  # says nothing of a stream
        assert await stored(5)
        gpu.soft.end_kernels()
        await ns.write(reg[:PAGE], offset=0, stream=stream)
    gpu.api.free_pinned(pinned)


async def test_a_read_overwrites_nothing_in_use(world: World, gpu: GPU) -> None:
    """An asynchronous fill of before loses against the read."""
    ptr = gpu.alloc(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        await ns.write(pattern(PAGE, 1), offset=0)
        for obj in (reg, Tensor(ptr, PAGE)):
            gpu.soft.kernel(stream, seconds=LONG_S)
            gpu.api.fill(ptr, 0, PAGE, stream)
            await ns.read(obj, offset=0, stream=stream)
            assert gpu.get(ptr, PAGE) == pattern(PAGE, 1)
        gpu.soft.kernel(stream, seconds=LONG_S)
        gpu.api.fill(ptr, 0, PAGE, stream)
        await ns.read_many([(reg, 0)], stream=stream)
        assert gpu.get(ptr, PAGE) == pattern(PAGE, 1)


async def test_other_streams_are_nothing_to_it(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(PAGE)
    busy, idle = gpu.stream(), gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        gpu.soft.kernel(busy)
        await ns.write(reg, offset=0, stream=idle)
        await ns.read(reg, offset=0)
        assert gpu.soft.in_flight()
        gpu.soft.end_kernels()


@pytest.mark.parametrize("stream", [0, 1, 2])
async def test_default_streams(world: World, gpu: GPU, stream: int) -> None:
    ptr = gpu.alloc(PAGE)
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        gpu.soft.kernel(stream, seconds=LONG_S)
        gpu.api.fill(ptr, 9, PAGE, stream)
        await ns.write(reg, offset=0, stream=stream)
        await ns.read(reg, offset=0)
        assert gpu.get(ptr, PAGE) == b"\x09" * PAGE


@pytest.mark.software
async def test_a_deadline_in_between(world: World, gpu: GPU) -> None:
    """Nothing was sent, and the next one works."""
    ptr = gpu.alloc(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        gpu.soft.kernel(stream)
        events = gpu.soft.live().events
        with nothing_sent(ns):
            clock = Clock()
            with pytest.raises(OperationTimeoutError, match="never sent"):
                await ns.write(reg, offset=0, stream=stream, timeout_s=0.02)
            assert clock.within(0.02, 1)
            with pytest.raises(OperationTimeoutError, match="never sent"):
                await ns.read_many([(reg, 0)], stream=stream, timeout_s=0.02)
        assert gpu.soft.live().events == events
        gpu.soft.end_kernels()
        await ns.write(reg, offset=0, stream=stream, timeout_s=5)


@pytest.mark.software  # a real driver may crash on the handle of a destroyed stream
async def test_streams_that_are_none(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(PAGE)
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        await ns.write(reg, offset=0)
        gone = gpu.stream()  # behind all that others make: a handle may come again
        gpu.destroy(gone)
        with nothing_sent(ns), pytest.raises(GPUContextError, match="destroyed"):
            await ns.write(reg, offset=0, stream=gone)
        for bad in ("stream", 1.5, object()):
            with nothing_sent(ns), pytest.raises(ArgumentTypeError, match="stream="):
                await ns.write(reg, offset=0, stream=bad)
        await ns.write(reg, offset=0)


async def test_a_captured_stream(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        with gpu.captured(stream):
            with nothing_sent(ns), pytest.raises(GraphCaptureError, match="captured"):
                await ns.write(reg, offset=0, stream=stream)
            await ns.read(reg, offset=0)
        await ns.write(reg, offset=0, stream=stream)


@pytest.mark.software
async def test_work_that_fails(world: World, gpu: GPU) -> None:
    """The failure is the stream's; nothing was sent."""
    ptr = gpu.alloc(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns:
        reg = ns.register(Tensor(ptr, PAGE))
        gpu.soft.kernel(stream, seconds=LONG_S)
        query = {"cuda": "cuEventQuery", "hip": "hipEventQuery"}[gpu.name]
        gpu.soft.fail(query, 700, after=1)
        with nothing_sent(ns), pytest.raises(GPUError, match="the work on its stream"):
            await ns.write(reg, offset=0, stream=stream)
        await ns.write(reg, offset=0, stream=stream)
        await reg.aclose()


@pytest.mark.software
@pytest.mark.tasks
async def test_others_run_and_a_cancel_ends_it(world: World, gpu: GPU) -> None:
    """While it waits for a kernel; nothing was sent, nothing is left."""
    ptr = gpu.alloc(PAGE)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        gpu.soft.kernel(stream)
        events = gpu.soft.live().events
        turns = 0
        with nothing_sent(ns), anyio.move_on_after(5) as scope:
            async with anyio.create_task_group() as group:

                async def write() -> None:
                    await ns.write(reg, offset=0, stream=stream)
                    raise AssertionError("it did not wait")

                group.start_soon(write)
                while turns < 100:
                    await anyio.sleep(0.0005)
                    turns += 1
                group.cancel_scope.cancel()
        assert turns == 100
        assert not scope.cancelled_caught
        assert gpu.soft.live().events == events
        assert reg.inflight == 0
        gpu.soft.end_kernels()
        await ns.write(reg, offset=0, stream=stream)


def test_a_thread_without_a_context(gpu: GPU) -> None:
    """The pointer's own is used, and the thread has none afterwards."""
    ptr, stream = gpu.alloc(PAGE), gpu.stream()
    seen: list[object] = []

    def work() -> None:
        with blocking.open("emu:?size=1MiB") as ns:
            ns.write(pattern(PAGE, 1), offset=0)
            with ns.register(Tensor(ptr, PAGE)) as reg:
                gpu.soft.kernel(stream, seconds=LONG_S)
                ns.read(reg, offset=0, stream=stream)
                ns.write(reg, offset=0)
            ns.read((ptr + 4, 100, gpu.name), offset=4, edges="bounce")
        if gpu.name == "cuda":
            seen.append(gpu.api.current())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert gpu.get(ptr, PAGE) == pattern(PAGE, 1)
    assert seen in ([], [0])
    assert seen or gpu.name == "hip"
