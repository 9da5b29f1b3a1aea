"""Streams as on hardware, which reaches the GPU itself: no copies, or host functions.

The embedded controller poses as such a device: to memory of the GPU its own threads
copy, on streams of their own.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from gpu.on_stream import SMALL, buffer, cells_given_back, ended, obj, until
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import World, served
from soft_gpu.control import Missing

from aiougds import (
    BatchError,
    CapabilityError,
    GPUError,
    MediaError,
    OperationWithdrawnError,
    StatusCell,
)
from aiougds._ffi import lib
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few, pytest.mark.software]
WAYS: Final = ("memops", "callback", "without")
BAD = Fault.status("read", sct=2, sc=0x81)
FLUSH: Final = "cuFlushGPUDirectRDMAWrites"


@asynccontextmanager
async def hardware(world: World) -> AsyncIterator[Any]:
    """Return a namespace of a controller that stages nothing."""
    async with world.open(emu=SMALL) as ns:
        assert lib.ugds_emu_as_hardware(ns.controller._device.ptr) == 0
        assert ns.controller.capabilities.gpu_memory == "direct"
        yield ns


def order(gpu: GPU, way: str) -> dict[str, Any]:
    """Return how to enqueue: without memory operations, host functions are taken."""
    if way == "without":
        gpu.soft.missing(Missing.MEMOPS)
    return {"order": "callback"} if way == "callback" else {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["gpu", "host"])
async def test_transfers_are_in_the_streams_order(
    world: World,
    gpu: GPU,
    way: str,
    where: Any,  # noqa: ANN401
) -> None:
    data = pattern(4 * PAGE, 1)
    how = order(gpu, way)
    stream = gpu.stream()
    async with hardware(world) as ns, buffer(ns, gpu, 2 * PAGE, where) as buf:
        await ns.write(data, offset=0)
        gpu.soft.forget()
        gpu.soft.kernel(stream)
        first = ns.read_on(obj(gpu, stream), buf.reg, offset=0, **how)
        stored = ns.write_on(obj(gpu, stream), buf.reg, offset=4 * PAGE, **how)
        with ns.on_stream(obj(gpu, stream), **how) as group:
            group.read(buf[:PAGE], offset=3 * PAGE)
            group.read(buf[PAGE:], offset=2 * PAGE)
        assert [op.state for op in (first, stored, group.operation)] == ["waiting"] * 3
        assert buf.get() == b"\xee" * 2 * PAGE
        gpu.soft.end_kernels()
        for op in (first, stored, group.operation):
            assert await ended(world, op) == 2 * PAGE
        assert buf.get() == data[3 * PAGE :] + data[2 * PAGE : 3 * PAGE]
        async with ns.allocate(2 * PAGE) as host:
            await ns.read(host, offset=4 * PAGE)
            assert bytes(host.view) == data[: 2 * PAGE]
        # The operation ends with its commands, the host function a little later.
        await until(world, group.operation.event.query)
        seen = gpu.soft.counters()
        assert seen.host_funcs == (0 if way == "memops" else 3)
        assert seen.waits == (3 if way == "memops" else 0)


@pytest.mark.parametrize("way", WAYS)
async def test_ends_of_all_kinds_let_the_stream_pass(
    world: World, gpu: GPU, way: str
) -> None:
    """A failure, a withdrawal, a stall: and what comes behind is done."""
    how = order(gpu, way)
    stream = gpu.stream()
    with cells_given_back():
        async with hardware(world) as ns, buffer(ns, gpu, PAGE, "host") as buf:
            on = obj(gpu, stream)
            cells = [StatusCell(device=gpu.name) for _ in range(3)]
            gpu.soft.kernel(stream)
            gone = ns.read_on(on, buf.reg, offset=0, status=cells[0], **how)
            assert gone.cancel()
            with pytest.raises(OperationWithdrawnError):
                await ended(world, gone)
            sent = served(ns)
            gpu.soft.end_kernels()
            await until(world, gone.event.query)
            assert served(ns) == sent
            with inject(ns, BAD):
                bad = ns.read_on(on, buf.reg, offset=0, status=cells[1], **how)
                with pytest.raises(MediaError):
                    await ended(world, bad)
                stalls = ns.read_on(
                    on, buf.reg, offset=0, status=cells[2], on_error="stall", **how
                )
                await until(world, lambda: stalls.state == "stalled")
            behind = ns.read_on(on, buf.reg, offset=0, **how)
            assert behind.state == "waiting"
            assert cells[2].state == "waiting"
            assert stalls.resume()
            assert await ended(world, stalls) == PAGE
            assert await ended(world, behind) == PAGE
            assert [cell.state for cell in cells] == ["cancelled", "failed", "done"]
            assert cells[0].errno == errno.ECANCELED
        del cells


async def test_many_host_functions_one_behind_the_other(world: World, gpu: GPU) -> None:
    """The runtime runs one at a time: nothing waits for one that comes behind it."""
    count = 24
    data = pattern(count * PAGE, 2)
    streams = [gpu.stream() for _ in range(12)]
    async with hardware(world) as ns, buffer(ns, gpu, count * PAGE, "host") as buf:
        await ns.write(data, offset=0)
        ops = [
            ns.read_on(
                obj(gpu, streams[i % len(streams)]),
                buf[i * PAGE : (i + 1) * PAGE],
                offset=i * PAGE,
                order="callback",
            )
            for i in range(count)
        ]
        for op in ops:
            assert await ended(world, op) == PAGE
        assert buf.get() == data


async def test_the_embedded_controller_refuses_what_it_cannot(
    world: World, gpu: GPU
) -> None:
    """Without memory operations; what is stored is there for plain reads."""
    gpu.soft.missing(Missing.MEMOPS)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        with pytest.raises(CapabilityError, match="no stream memory operations"):
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert await ns.read(buf.reg, offset=0) == PAGE


@pytest.mark.vendors("cuda")
async def test_plain_reads_are_made_visible_before_they_return(
    world: World, gpu: GPU
) -> None:
    """On hardware, of memory of a GPU that needs it: read in whatever way."""
    ptr = gpu.alloc(8 * PAGE)
    whole = (ptr, 8 * PAGE, gpu.name)

    async def flushes(work: Any) -> int:  # noqa: ANN401
        gpu.soft.forget()
        await work
        return gpu.soft.calls(FLUSH)

    async with hardware(world) as ns:
        async with ns.register(whole) as reg:  # its writes are ordered
            assert not await flushes(ns.read(reg, offset=0))
        gpu.soft.missing(Missing.ORDERED_WRITES)
        async with ns.register(whole) as reg, ns.register((ptr, PAGE, 0)) as inner:
            pairs = [(reg[i * PAGE : (i + 1) * PAGE], i * PAGE) for i in range(8)]
            assert await flushes(ns.read(reg, offset=0)) >= 1
            assert await flushes(ns.read(inner, offset=0)) == 1
            assert await flushes(ns.read((ptr, PAGE, 0), offset=0)) == 1
            assert 1 <= await flushes(ns.read_many(pairs)) <= 8
            assert not await flushes(ns.write(reg, offset=0))
            assert not await flushes(ns.write_many(pairs))
            assert not await flushes(ns.read(bytearray(PAGE), offset=0))
            async with ns.batch(capacity=8) as batch:
                for i, (part, at) in enumerate(pairs):
                    batch.read(part, offset=at, cookie=i)

                async def harvested() -> None:
                    batch.submit()
                    assert len(await batch.harvest(8)) == 8

                assert 1 <= await flushes(harvested()) <= 8
        assert await flushes(ns.read((ptr, PAGE, 0), offset=0)) == 1  # just in time
        assert not await flushes(ns.flush())
    async with world.open(emu=SMALL) as ns, ns.register(whole) as reg:
        assert not await flushes(ns.read(reg, offset=0)), "it is staged"


@pytest.mark.vendors("cuda")
async def test_what_could_not_be_made_visible_was_not_read(
    world: World, gpu: GPU
) -> None:
    ptr = gpu.alloc(8 * PAGE)
    gpu.soft.missing(Missing.ORDERED_WRITES)
    async with hardware(world) as ns, ns.register((ptr, 8 * PAGE, gpu.name)) as reg:
        gpu.soft.fail(FLUSH, 999)
        with pytest.raises(GPUError, match=r"999|UNKNOWN") as caught:
            await ns.read(reg[:PAGE], offset=0)
        assert "read of 4096 bytes at offset 0" in str(caught.value)
        assert await ns.read(reg[:PAGE], offset=0) == PAGE
        pairs = [(reg[i * PAGE : (i + 1) * PAGE], i * PAGE) for i in range(8)]
        gpu.soft.fail(FLUSH, 999)
        with pytest.raises(BatchError) as batch:
            await ns.read_many(pairs)
        assert 1 <= len(batch.value.exceptions) <= 8
        assert all(isinstance(one, GPUError) for one in batch.value.exceptions)
        assert await ns.read_many(pairs) == [PAGE] * 8


@pytest.mark.vendors("cuda")
@pytest.mark.parametrize("way", WAYS)
async def test_what_the_ssd_wrote_is_made_visible(
    world: World, gpu: GPU, way: str
) -> None:
    """By the wait itself where it can, else by a call before done; or not at all."""
    how = order(gpu, way)
    missing = Missing.MEMOPS if way == "without" else Missing(0)
    stream, other, third = gpu.stream(), gpu.stream(), gpu.stream()
    async with hardware(world) as ns, buffer(ns, gpu, PAGE, "host") as buf:

        async def flushes(stream: int) -> int:
            gpu.soft.forget()
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, **how)
            assert await ended(world, op) == PAGE
            return gpu.soft.calls(FLUSH)

        assert not await flushes(stream)  # its writes are ordered
        gpu.soft.missing(missing | Missing.ORDERED_WRITES)
        assert await flushes(other) == (0 if way == "memops" else 1)
        gpu.soft.missing(missing | Missing.ORDERED_WRITES | Missing.FLUSH)
        assert await flushes(third) == 1
