"""What is refused, in words, before anything is on the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu.on_stream import SMALL, buffer, ended, obj
from gpu.rig import GPU
from helpers.facade import bare
from helpers.model import PAGE
from helpers.world import World, nothing_sent

import aiougds
from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    CapabilityError,
    GraphCaptureError,
    OptionError,
    RangeError,
    ReadOnlyError,
    WrongGPUError,
)

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]


async def test_bad_arguments(world: World, gpu: GPU) -> None:
    handle = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (ArgumentTypeError, "is no stream", {"stream": None}),
            (ArgumentTypeError, "is no stream", {"stream": "cuda"}),
            (RangeError, "a handle is between", {"stream": -1}),
            (AlignmentError, "offset 1 is not a multiple", {"offset": 1}),
            (AlignmentError, "length 1 is not a multiple", {"nbytes": 1}),
            (RangeError, "cannot be negative", {"offset": -512}),
            (RangeError, "past the end", {"offset": 1 << 30}),
            (RangeError, "more than the 4096 bytes", {"nbytes": 2 * PAGE}),
            (RangeError, "there are no bytes", {"nbytes": 0}),
            (ArgumentTypeError, "an integer is needed", {"offset": 0.5}),
            (OptionError, "timeout_s=0", {"timeout_s": 0}),
            (OptionError, "on_error", {"on_error": "ignore"}),
            (OptionError, "order", {"order": "kernel"}),
            (ArgumentTypeError, "StatusCell is needed", {"status": 5}),
            (ArgumentTypeError, "is no event", {"after": object()}),
            (ArgumentTypeError, "is no event", {"after": [None]}),
            (ReadOnlyError, "read-only", {"buf": b"x" * PAGE}),
        ]
        with nothing_sent(ns):
            for error, words, change in cases:
                given = {"buf": buf.reg, "offset": 0, **change}
                stream = given.pop("stream", obj(gpu, handle))
                memory = given.pop("buf")
                with pytest.raises(error, match=words):
                    ns.read_on(stream, memory, **given)
        assert not buf.reg.inflight


@pytest.mark.software
async def test_a_set_is_refused_where_it_is_wrong(world: World, gpu: GPU) -> None:
    """What is wrong with all of it by ``on_stream``, with a transfer as it is added."""
    on = obj(gpu, gpu.stream())
    far = (gpu.alloc(PAGE, device=1), PAGE, f"{gpu.name}:1")
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (ArgumentTypeError, "is no stream", {"stream": None}),
            (RangeError, "a handle is between", {"stream": -1}),
            (OptionError, "timeout_s=0", {"timeout_s": 0}),
            (OptionError, "on_error", {"on_error": "ignore"}),
            (OptionError, "order", {"order": "kernel"}),
            (CapabilityError, "host function", {"order": "callback"}),
            (ArgumentTypeError, "StatusCell is needed", {"status": 5}),
            (ArgumentTypeError, "is no event", {"after": [None]}),
        ]
        for error, words, change in cases:
            given = {"stream": on, **change}
            with pytest.raises(error, match=words):
                ns.on_stream(given.pop("stream"), **given)
        with ns.on_stream(on) as group:
            group.read(buf.reg, offset=0)
            with pytest.raises(WrongGPUError, match="use a stream of the memory"):
                group.read(far, offset=0)
            with pytest.raises(AlignmentError):
                group.write(buf[1:], offset=0)
        assert await ended(world, group.operation) == PAGE
        gone = gpu.stream()
        gpu.destroy(gone)
        with nothing_sent(ns), ns.on_stream(obj(gpu, gone)) as lost:
            with pytest.raises(aiougds.GPUContextError, match="destroyed"):
                lost.read(buf.reg, offset=0)
            assert not len(lost)


async def test_truth_is_the_number_that_it_is(world: World, gpu: GPU) -> None:
    """As of plain reads: an offset is whatever Python takes as an index."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        on = obj(gpu, stream)
        with pytest.raises(AlignmentError, match="offset 1 is not a multiple"):
            await ns.read(buf.reg, offset=True)
        with pytest.raises(AlignmentError, match="offset 1 is not a multiple"):
            ns.read_on(on, buf.reg, offset=True)
        assert await ns.read(buf.reg, offset=False) == PAGE
        assert await ended(world, ns.read_on(on, buf.reg, offset=False)) == PAGE
        number = np.int64(512)
        assert await ns.read(buf.reg, offset=number, nbytes=number) == 512
        op = ns.read_on(np.uint64(stream), buf.reg, offset=number, nbytes=number)
        assert await ended(world, op) == 512


async def test_a_stream_that_is_captured(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))
        refused = pytest.raises(GraphCaptureError, match="before the capture begins")
        with nothing_sent(ns), gpu.captured(stream), refused:
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))


async def test_callbacks_on_the_embedded_controller(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        with pytest.raises(CapabilityError, match="host function"):
            ns.read_on(obj(gpu, stream), buf.reg, offset=0, order="callback")


@pytest.mark.two_gpus
async def test_memory_of_another_gpu(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    ptr = gpu.alloc(PAGE, device=1)
    async with world.open(emu=SMALL) as ns:
        with pytest.raises(WrongGPUError, match="use a stream of the memory's GPU"):
            ns.read_on(obj(gpu, stream), (ptr, PAGE, f"{gpu.name}:1"), offset=0)


async def test_a_stall_that_could_hold_all_connections(world: World, gpu: GPU) -> None:
    streams = [gpu.stream() for _ in range(8)]
    async with world.open(emu=SMALL) as ns, ns.allocate(PAGE) as reg:
        for stream in streams[:7]:
            gpu.soft.kernel(stream)
        ops = [
            ns.read_on(obj(gpu, stream), bare(reg), offset=0, on_error="stall")
            for stream in streams[:7]
        ]
        with pytest.raises(aiougds.BusyError, match="CUDA_DEVICE_MAX_CONNECTIONS"):
            ns.read_on(obj(gpu, streams[7]), bare(reg), offset=0, on_error="stall")
        gpu.soft.end_kernels(7)
        for op in ops:
            assert await ended(world, op) == PAGE


async def test_a_closed_namespace(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns:
        pass
    with pytest.raises(aiougds.ClosedError):
        ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
    with pytest.raises(aiougds.ClosedError):
        ns.on_stream(obj(gpu, stream))


@pytest.mark.software
async def test_the_runtime_refuses(world: World, gpu: GPU) -> None:
    """Its name is in the sentence; the controller works on."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))
        record = {"cuda": "cuEventRecord", "hip": "hipEventRecord"}[gpu.name]
        gpu.soft.fail(record, 2, count=0)
        with pytest.raises(aiougds.GPUError) as failure:
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert failure.value.name in str(failure.value)
        assert failure.value.code == 2
        gpu.soft.fail(record, 0, count=1)
        assert await ns.read(buf.reg, offset=0) == PAGE
