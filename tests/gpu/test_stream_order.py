"""read_on, write_on and sets: nothing before the stream, nothing behind it."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, suppress

import pytest
from gpu.objects import CudaArray
from gpu.on_stream import SMALL, WHERE, Where, buffer, ended, obj, until
from gpu.rig import GPU
from helpers.facade import bare
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, served

from aiougds import ArgumentError, ClosedError

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
where = pytest.mark.parametrize("where", WHERE)


@where
async def test_a_read_waits_for_the_stream(
    world: World, gpu: GPU, where: Where
) -> None:
    data = pattern(4 * PAGE, 1)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 4 * PAGE, where) as buf:
        await ns.write(data, offset=PAGE)
        sent = served(ns)
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=PAGE)
        assert (op.state, op.bytes_done, op.done) == ("waiting", 0, False)
        assert served(ns) == sent
        assert not op.event.query()
        assert buf.get() == b"\xee" * 4 * PAGE
        gpu.soft.end_kernels()
        assert await ended(world, op) == 4 * PAGE
        assert (op.state, op.bytes_done, op.done) == ("done", 4 * PAGE, True)
        assert buf.get() == data
        await until(world, op.event.query)


@where
async def test_a_write_stores_what_the_stream_made(
    world: World, gpu: GPU, where: Where
) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 2 * PAGE, where) as buf:
        made = pattern(PAGE, 2)
        gpu.soft.kernel(stream)
        op = ns.write_on(obj(gpu, stream), buf[PAGE:], offset=3 * PAGE, fua=True)
        buf.put(b"\x00" * PAGE + made)  # what the kernel makes
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE
        async with ns.allocate(PAGE) as host:
            await ns.read(host, offset=3 * PAGE)
            assert bytes(host.view) == made


@where
async def test_what_is_queued_behind_comes_behind(
    world: World, gpu: GPU, where: Where
) -> None:
    """A chain over one buffer, of which nothing is awaited but the last."""
    stream = gpu.stream()
    first, second = pattern(PAGE, 3), pattern(PAGE, 4)
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, where) as buf:
        await ns.write(first, offset=0)
        await ns.write(second, offset=PAGE)
        ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        ns.write_on(obj(gpu, stream), buf.reg, offset=4 * PAGE)
        ns.read_on(obj(gpu, stream), buf.reg, offset=PAGE)
        ns.write_on(obj(gpu, stream), buf.reg, offset=5 * PAGE)
        last = ns.read_on(obj(gpu, stream), buf.reg, offset=4 * PAGE)
        assert await ended(world, last) == PAGE
        assert buf.get() == first
        async with ns.allocate(2 * PAGE) as host:
            await ns.read(host, offset=4 * PAGE)
            assert bytes(host.view) == first + second


@pytest.mark.parametrize("nbytes", [512, 2 * MIB, 2 * MIB + 512, 9 * MIB + 1536])
async def test_every_byte_of_every_length(world: World, gpu: GPU, nbytes: int) -> None:
    """Below and above the chunks and the ring of the staging."""
    data = pattern(nbytes, 5)
    stream = gpu.stream()
    size = {"size": 32 * MIB, "lba": 512}
    async with world.open(emu=size) as ns, buffer(ns, gpu, nbytes + 1024, "gpu") as buf:
        await ns.write(data, offset=512)
        read = ns.read_on(obj(gpu, stream), buf[512 : 512 + nbytes], offset=512)
        write = ns.write_on(obj(gpu, stream), buf[512 : 512 + nbytes], offset=16 * MIB)
        assert await ended(world, write) == nbytes
        assert await ended(world, read) == nbytes
        assert buf.get() == b"\xee" * 512 + data + b"\xee" * 512
        async with ns.allocate(nbytes) as host:
            await ns.read(host, offset=16 * MIB)
            assert bytes(host.view) == data


@where
async def test_a_set_is_one_operation(world: World, gpu: GPU, where: Where) -> None:
    data = pattern(8 * PAGE, 6)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 8 * PAGE, where) as buf:
        await ns.write(data, offset=0)
        gpu.soft.kernel(stream)
        with ns.on_stream(obj(gpu, stream)) as group:
            for i in range(7):
                at = (7 - i) * PAGE
                group.read(buf[at : at + PAGE], offset=at)
            group.write(buf[:PAGE], offset=64 * PAGE)
            assert len(group) == 8
            with pytest.raises(ArgumentError, match="when its `with` block ends"):
                _ = group.operation
        op = group.operation
        assert op.state == "waiting"
        assert "8 transfers of 32768 bytes" in repr(op)
        gpu.soft.end_kernels()
        assert await ended(world, op) == 8 * PAGE
        assert buf.get() == b"\xee" * PAGE + data[PAGE:]
        async with ns.allocate(PAGE) as host:
            await ns.read(host, offset=64 * PAGE)
            assert bytes(host.view) == b"\xee" * PAGE


async def test_a_set_whose_body_raises_queues_nothing(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.allocate(PAGE) as reg:
        sent = served(ns)
        group = ns.on_stream(obj(gpu, stream))
        with suppress(ZeroDivisionError), group:
            group.read(bare(reg), offset=0)
            raise ZeroDivisionError
        with pytest.raises(ArgumentError, match="ends as it should"):
            _ = group.operation
        with pytest.raises(ClosedError, match="used once"), group:
            pass
        with pytest.raises(ClosedError, match="make another set"):
            group.read(bare(reg), offset=0)
        with ns.on_stream(obj(gpu, stream)) as empty:
            pass
        with pytest.raises(ArgumentError, match="no transfers"):
            _ = empty.operation
        assert served(ns) == sent


async def test_the_default_streams(world: World, gpu: GPU) -> None:
    data = pattern(PAGE, 7)
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        await ns.write(data, offset=0)
        for handle in (0, 1, 2):
            buf.put(b"\x00" * PAGE)
            assert (
                await ended(world, ns.read_on(obj(gpu, handle), buf.reg, offset=0))
                == PAGE
            )
            assert buf.get() == data


async def test_memory_that_is_not_registered_is_pinned_for_the_time(
    world: World, gpu: GPU
) -> None:
    data = pattern(PAGE, 8)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns:
        await ns.write(data, offset=0)
        pins = ns.controller.statistics().jit_pins
        host = bytearray(PAGE)
        assert await ended(world, ns.read_on(obj(gpu, stream), host, offset=0)) == PAGE
        assert host == data
        ptr = gpu.alloc(PAGE)
        op = ns.read_on(obj(gpu, stream), (ptr, PAGE, gpu.name), offset=0)
        assert await ended(world, op) == PAGE
        assert gpu.get(ptr, PAGE) == data
        assert ns.controller.statistics().jit_pins == pins + 2


@pytest.mark.parametrize("registered", [False, True])
async def test_an_object_that_names_its_stream_is_waited_for(
    world: World, gpu: GPU, registered: bool
) -> None:
    """``__cuda_array_interface__`` says where its memory is being made."""
    stream, producer = gpu.stream(), gpu.stream()
    ptr = gpu.alloc(PAGE)
    made = CudaArray(ptr, PAGE, stream=producer)
    async with world.open(emu=SMALL) as ns, AsyncExitStack() as stack:
        buf = made
        if registered:
            buf = bare(await stack.enter_async_context(ns.register(made)))
        for turn in range(2):  # also where all is known from before
            gpu.soft.kernel(producer)
            op = ns.write_on(obj(gpu, stream), buf, offset=0)
            time.sleep(0.02)  # an unordered one would be over
            assert (op.state, op.event.query()) == ("waiting", False)
            data = pattern(PAGE, 40 + turn)
            gpu.put(ptr, data)
            gpu.soft.end_kernels()
            assert await ended(world, op) == PAGE
            async with ns.allocate(PAGE) as host:
                await ns.read(host, offset=0)
                assert bytes(host.view) == data
