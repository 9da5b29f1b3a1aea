"""Offsets and lengths that the stream decides, and what comes behind events."""

from __future__ import annotations

import errno

import pytest
from gpu.on_stream import (
    SMALL,
    WHERE,
    Where,
    buffer,
    cells_given_back,
    copy_out,
    ended,
    obj,
    recorded,
    until,
)
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import World, served

import aiougds
from aiougds import AlignmentError, Cell, RangeError
from aiougds._ffi import address_of
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
UNSENT = "nothing was sent"
where = pytest.mark.parametrize("where", WHERE)


def decide(gpu: GPU, cell: Cell, value: int, stream: int) -> None:
    """Have the stream write a cell, as a kernel would."""
    source = gpu.alloc(8)
    gpu.put(source, value.to_bytes(8, "little"))
    copy_out(gpu, address_of(cell._host), source, 8, stream)


@where
async def test_a_read_from_where_the_stream_says(
    world: World, gpu: GPU, where: Where
) -> None:
    data = pattern(8 * PAGE, 1)
    stream = gpu.stream()
    with cells_given_back():
        async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 4 * PAGE, where) as buf:
            await ns.write(data, offset=0)
            at, length = Cell(device=gpu.name), Cell(7, device=gpu.name)
            assert length.value == 7
            gpu.soft.kernel(stream)
            decide(gpu, at, 3 * PAGE, stream)
            decide(gpu, length, 2 * PAGE, stream)
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=at, nbytes=length)
            gpu.soft.end_kernels()
            assert await ended(world, op) == 2 * PAGE
            # What the read did not reach is as it was.
            assert buf.get() == data[3 * PAGE : 5 * PAGE] + b"\xee" * 2 * PAGE
            assert (at.value, length.value) == (3 * PAGE, 2 * PAGE)
        del at, length, op


@where
async def test_a_write_to_where_the_stream_says(
    world: World, gpu: GPU, where: Where
) -> None:
    data = pattern(2 * PAGE, 2)
    stream = gpu.stream()
    with cells_given_back():
        async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 2 * PAGE, where) as buf:
            buf.put(data)
            at, length = Cell(device=gpu.name), Cell(device=gpu.name)
            decide(gpu, at, 5 * PAGE, stream)
            decide(gpu, length, PAGE, stream)
            op = ns.write_on(obj(gpu, stream), buf.reg, offset=at, nbytes=length)
            assert await ended(world, op) == PAGE
            async with ns.allocate(2 * PAGE) as host:
                await ns.read(host, offset=5 * PAGE)
                assert bytes(host.view) == data[:PAGE] + b"\x00" * PAGE
        del at, length, op


BAD_DECISIONS = [
    (1, 512, AlignmentError, "offset 1 is not a multiple of the block size 512"),
    (512, 7, AlignmentError, "length 7 is not a multiple of the block size 512"),
    (0, PAGE + 512, RangeError, "length 4608 is more than the 4096 bytes of memory"),
    (
        1 << 40,
        512,
        RangeError,
        (
            "512 bytes at offset 1099511627776 end at 1099511628288, past the end of "
            "the namespace or region at 4194304"
        ),
    ),
]


async def test_a_decision_that_cannot_be_fails_the_operation(
    world: World, gpu: GPU
) -> None:
    """The slice's length is the most; nothing is sent, and the stream passes.

    The error says the one reason, with what the cells held then, not what they do now.
    """
    stream = gpu.stream()
    with cells_given_back():
        async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
            sent = served(ns)
            at, length = Cell(device=gpu.name), Cell(device=gpu.name)
            for offset, nbytes, error, words in BAD_DECISIONS:
                decide(gpu, at, offset, stream)
                decide(gpu, length, nbytes, stream)
                op = ns.read_on(obj(gpu, stream), buf.reg, offset=at, nbytes=length)
                await until(world, lambda op=op: op.done)
                at.value = length.value = 64 << 10
                with pytest.raises(error) as failure:
                    await ended(world, op)
                assert str(failure.value) == f"read: the late-bound {words}; {UNSENT}"
            assert served(ns) == sent
            assert buf.get() == b"\xee" * PAGE
            again = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            assert await ended(world, again) == PAGE
        del at, length, op, failure


async def test_a_failure_behind_a_decision_says_where_it_was(
    world: World, gpu: GPU
) -> None:
    """The device refused it: no reason of the cells, but their offset."""
    stream = gpu.stream()
    with cells_given_back():
        async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
            at = Cell(device=gpu.name)
            decide(gpu, at, 3 * PAGE, stream)
            # Invalid field: its errno is what a bad decision has too.
            with inject(ns, Fault.status("read", sct=0, sc=2)):
                op = ns.read_on(obj(gpu, stream), buf.reg, offset=at)
                with pytest.raises(aiougds.NVMeError) as failure:
                    await ended(world, op)
            assert failure.value.errno == errno.EINVAL
            assert failure.value.offset == 3 * PAGE
        del at, op, failure


def test_cells_hold_what_fits(gpu: GPU) -> None:
    with cells_given_back():
        cell = Cell((1 << 64) - 1, device=gpu.name)
        assert cell.value == (1 << 64) - 1
        for bad in (-1, 1 << 64):
            with pytest.raises(aiougds.RangeError, match="a cell holds"):
                cell.value = bad
        with pytest.raises(aiougds.ArgumentTypeError, match="an integer"):
            cell.value = 1.5  # type: ignore[assignment]
        many = [Cell(i, device=gpu.name) for i in range(200)]
        assert [one.value for one in many] == list(range(200))
        assert len({one.ptr for one in many}) == 200
        view = many[3].__cuda_array_interface__
        assert (view["data"], view["shape"]) == ((many[3].ptr, False), (1,))
        del cell, many


async def test_an_event_of_another_stream_comes_first(world: World, gpu: GPU) -> None:
    data = pattern(PAGE, 3)
    stream, other = gpu.stream(), gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        await ns.write(data, offset=0)
        gpu.soft.kernel(other)
        with recorded(gpu, other) as event:
            behind = ns.read_on(obj(gpu, stream), buf.reg, offset=0, after=event)
            third = gpu.stream()
            last = ns.write_on(
                obj(gpu, third), buf.reg, offset=PAGE, after=[event, behind]
            )
            assert (behind.state, last.state) == ("waiting", "waiting")
            gpu.soft.end_kernels()
            assert await ended(world, last) == PAGE
            assert behind.done
        async with ns.allocate(PAGE) as host:
            await ns.read(host, offset=PAGE, after=last.event)
            assert bytes(host.view) == data


async def test_a_plain_transfer_comes_behind_events(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        with recorded(gpu, stream) as event:
            sent = served(ns)
            with pytest.raises(aiougds.OperationTimeoutError) as late:
                await ns.read(buf.reg, offset=0, after=event, timeout_s=0.05)
            assert "never sent" in str(late.value)
            assert late.value.errno == errno.ETIMEDOUT
            assert served(ns) == sent
            gpu.soft.end_kernels()
            pairs = [(buf.reg, 0), (buf.reg, PAGE)]
            assert await ns.read_many(pairs, after=event) == [PAGE, PAGE]
            assert await ns.write(buf.reg, offset=0, after=[event]) == PAGE


async def test_other_streams_wait_for_the_event(world: World, gpu: GPU) -> None:
    """As torch, CuPy and cuda.core streams do: by wait(), or by the raw handle."""
    data = pattern(PAGE, 4)
    stream, other = gpu.stream(), gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        await ns.write(data, offset=0)
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        event = op.event
        assert int(event) == event.handle == event.ptr == event.cuda_event
        assert (event.runtime, event.device) == (gpu.name, 0)
        event.wait(obj(gpu, other))
        behind = ns.write_on(obj(gpu, other), buf.reg, offset=PAGE)
        assert behind.state == "waiting"
        gpu.soft.end_kernels()
        assert await ended(world, behind) == PAGE
        assert event.query()
        async with ns.allocate(PAGE) as host:
            await ns.read(host, offset=PAGE)
            assert bytes(host.view) == data
