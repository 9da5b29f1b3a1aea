"""The adapter of CUDA among contexts, and over memory that belongs to none."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aiougds._ffi import lib
from soft_gpu.contexts import new_context
from soft_gpu.control import SoftGPU
from soft_gpu.test_adapters import Adapter

d: Any = importlib.import_module("cuda.bindings.driver")

pytestmark = pytest.mark.soft_gpu

SEGMENT = 2 << 20


def ok(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 (as the bindings)
    code, *values = answer
    assert code == d.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values or None


@pytest.fixture
def cuda(soft_cuda: SoftGPU) -> Adapter:
    return Adapter(soft_cuda)


def test_memory_is_of_the_context_that_it_was_made_in(cuda: Adapter) -> None:
    made = ok(new_context(1))
    memory = int(ok(d.cuMemAlloc(4096)))
    ok(d.cuCtxPopCurrent())
    found = cuda.pointer(memory)
    assert (found.ctx, found.device) == (int(made), 1)
    # It is entered for the call, and nothing is current afterwards.
    cuda.gpu.poke(memory, b"there")
    back = bytearray(5)
    code = lib.ugds_gpu_copy_out(
        found, cuda.bytes_of(back), memory, len(back), cuda.code
    )
    assert (code, bytes(back)) == (0, b"there")
    assert int(ok(d.cuCtxGetCurrent())) == 0
    assert (cuda.gpu.contexts(0), cuda.gpu.contexts(1)) == (0, 1)
    ok(d.cuCtxDestroy(made))


def test_a_stream_tells_its_context(cuda: Adapter) -> None:
    made = ok(new_context(1))
    stream = ok(d.cuStreamCreate(1))
    ok(d.cuCtxPopCurrent())
    assert cuda.stream_place(int(stream)) == (1, int(made))
    ok(d.cuCtxDestroy(made))


def test_the_default_stream_is_that_of_the_calling_thread(cuda: Adapter) -> None:
    here = int(ok(d.cuDevicePrimaryCtxRetain(1)))
    there: list[int] = []

    def elsewhere() -> None:
        there.append(cuda.default_stream_refused())

    ok(d.cuCtxSetCurrent(here))
    assert cuda.stream_place(0) == (1, here)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert there == [201]  # CUDA_ERROR_INVALID_CONTEXT
    ok(d.cuDevicePrimaryCtxRelease(1))


class Segment:
    """Addresses that an allocator has reserved, with memory mapped at their start."""

    def __init__(self) -> None:
        self.base = int(ok(d.cuMemAddressReserve(4 * SEGMENT, 0, 0, 0)))
        self.handles: list[object] = []

    def grow(self) -> None:
        prop = d.CUmemAllocationProp()
        prop.location.id = 0
        handle = ok(d.cuMemCreate(SEGMENT, prop, 0))
        at = self.base + len(self.handles) * SEGMENT
        ok(d.cuMemMap(at, SEGMENT, 0, handle, 0))
        self.handles.append(handle)

    def shrink(self) -> None:
        ok(d.cuMemUnmap(self.base + (len(self.handles) - 1) * SEGMENT, SEGMENT))
        ok(d.cuMemRelease(self.handles.pop()))

    def free(self) -> None:
        while self.handles:
            self.shrink()
        ok(d.cuMemAddressFree(self.base, 4 * SEGMENT))


@pytest.fixture
def segment(cuda: Adapter) -> Iterator[Segment]:
    ok(d.cuInit(0))
    ok(d.cuDevicePrimaryCtxRetain(0))
    made = Segment()
    yield made
    made.free()


def test_mapped_memory_is_what_is_mapped_not_what_is_reserved(
    cuda: Adapter, segment: Segment
) -> None:
    segment.grow()
    found = cuda.pointer(segment.base + 4096)
    assert (found.base, found.nbytes) == (segment.base, SEGMENT)
    assert found.kind == lib.UGDS_GPU_MEM_DEVICE
    assert found.ctx  # of the device's primary context, which is active
    assert cuda.pointer(segment.base + SEGMENT).kind == lib.UGDS_GPU_MEM_NONE


def test_other_memory_at_the_same_address_has_another_id(
    cuda: Adapter, segment: Segment
) -> None:
    segment.grow()
    before = cuda.pointer(segment.base).buffer_id
    assert cuda.pointer(segment.base + 4096).buffer_id == before
    segment.shrink()
    segment.grow()
    assert cuda.pointer(segment.base).buffer_id != before


def test_pieces_that_lie_side_by_side_are_one_range_to_the_gpu(
    cuda: Adapter, segment: Segment
) -> None:
    segment.grow()
    segment.grow()
    across = segment.base + SEGMENT - 3
    found = cuda.pointer(segment.base)
    assert lib.ugds_gpu_copy_in(found, across, b"across", 6, cuda.code) == 0
    assert cuda.gpu.peek(across, 6) == b"across"


def test_managed_memory_is_told_apart(cuda: Adapter) -> None:
    ok(d.cuInit(0))
    ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))))
    memory = int(ok(d.cuMemAllocManaged(4096, 1)))
    assert cuda.pointer(memory).kind == lib.UGDS_GPU_MEM_MANAGED
    ok(d.cuMemFree(memory))


def test_a_context_that_is_gone_is_an_error_not_a_crash(cuda: Adapter) -> None:
    made = ok(new_context(0))
    found = cuda.pointer(int(ok(d.cuMemAlloc(4096))))
    ok(d.cuCtxDestroy(made))
    back = bytearray(5)
    code = lib.ugds_gpu_copy_out(
        found, cuda.bytes_of(back), found.base, len(back), cuda.code
    )
    assert (code, cuda.code[0]) == (-19, 709)  # ENODEV


def test_a_device_that_was_reset_is_used_again(cuda: Adapter) -> None:
    first = cuda.allocate(4096)
    ok(d.cuDevicePrimaryCtxReset(0))
    assert cuda.pointer(first.base).kind == lib.UGDS_GPU_MEM_NONE
    second = cuda.allocate(4096)
    cuda.free(second)
    # Ours is kept, whatever others release.
    assert ok(d.cuDevicePrimaryCtxGetState(0))[1] == 1
