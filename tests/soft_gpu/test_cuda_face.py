"""The software GPU under the real cuda-bindings: what an H200 was seen to do."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from soft_gpu.contexts import new_context
from soft_gpu.control import Operation, SoftGPU

d: Any = importlib.import_module("cuda.bindings.driver")

pytestmark = pytest.mark.soft_gpu


def ok(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 (as the bindings)
    code, *values = answer
    assert code == d.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values or None


@pytest.fixture
def gpu(soft_cuda: SoftGPU) -> Iterator[SoftGPU]:
    """With the primary context of device 0 current."""
    ok(d.cuInit(0))
    context = ok(d.cuDevicePrimaryCtxRetain(0))
    ok(d.cuCtxSetCurrent(context))
    yield soft_cuda
    soft_cuda.end_kernels(100)


class Words:
    """Words in pinned memory, 64 bytes apart."""

    def __init__(self, count: int) -> None:
        self.host = int(ok(d.cuMemHostAlloc(count * 64, 3)))
        ctypes.memset(self.host, 0, count * 64)

    def address(self, index: int) -> int:
        return self.host + 64 * index

    def __getitem__(self, index: int) -> int:
        return ctypes.c_uint32.from_address(self.address(index)).value

    def __setitem__(self, index: int, value: int) -> None:
        ctypes.c_uint32.from_address(self.address(index)).value = value

    def free(self) -> None:
        ok(d.cuMemFreeHost(self.host))


def eventually(stream: object, seconds: float = 5.0) -> bool:
    """Whether a stream is through in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if d.cuStreamQuery(stream)[0] == d.CUresult.CUDA_SUCCESS:
            return True
        time.sleep(0.001)
    return False


def stays_busy(stream: object) -> bool:
    return not eventually(stream, 0.1)


@pytest.mark.parametrize(("waiting", "starts"), [(7, True), (8, False)])
def test_waiting_streams_hold_their_connections(
    gpu: SoftGPU, waiting: int, starts: bool
) -> None:
    words = Words(waiting)
    memory = ok(d.cuMemAlloc(4096))
    copying = ok(d.cuStreamCreate(1))
    streams = [ok(d.cuStreamCreate(1)) for _ in range(waiting)]
    for index, stream in enumerate(streams):
        ok(d.cuStreamWaitValue32(stream, words.address(index), 1, 0))
    end = time.monotonic() + 10
    while gpu.counters().most_waiting < waiting and time.monotonic() < end:
        time.sleep(0.001)
    ok(d.cuMemcpyHtoDAsync(memory, bytes(4096), 4096, copying))
    assert eventually(copying, 5.0 if starts else 0.3) == starts
    for index in range(waiting):
        words[index] = 1
    assert all(eventually(stream) for stream in [*streams, copying])
    assert gpu.counters().most_waiting == waiting
    for stream in [*streams, copying]:
        ok(d.cuStreamDestroy(stream))
    ok(d.cuMemFree(memory))
    words.free()


def test_64_gated_streams_pass_with_copies_in_the_waiting_stream(gpu: SoftGPU) -> None:
    words = Words(3 * 64)
    memory = ok(d.cuMemAlloc(4096))
    streams = [ok(d.cuStreamCreate(1)) for _ in range(64)]
    for index, stream in enumerate(streams):
        ok(d.cuStreamWriteValue32(stream, words.address(index), 1, 0))
        ok(d.cuStreamWaitValue32(stream, words.address(64 + index), 1, 0))
        ok(d.cuMemcpyHtoDAsync(memory, bytes(4096), 4096, stream))
    end = time.monotonic() + 20
    left = set(range(64))
    while left and time.monotonic() < end:
        gone = {index for index in left if words[index]}
        for index in gone:
            words[64 + index] = 1
        left -= gone
        time.sleep(0.0005)
    assert not left
    assert all(eventually(stream) for stream in streams)
    for stream in streams:
        ok(d.cuStreamDestroy(stream))
    ok(d.cuMemFree(memory))
    words.free()


def test_the_number_of_connections_can_be_changed(gpu: SoftGPU) -> None:
    gpu.connections(1)
    words = Words(1)
    first, second = ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1))
    ok(d.cuStreamWaitValue32(first, words.address(0), 1, 0))
    ok(d.cuStreamWriteValue32(second, words.address(0), 1, 0))
    assert stays_busy(second)
    words[0] = 1
    assert eventually(second)
    for stream in (first, second):
        ok(d.cuStreamDestroy(stream))
    words.free()


def test_waits_compare_cyclically(gpu: SoftGPU) -> None:
    words = Words(1)
    stream = ok(d.cuStreamCreate(1))
    words[0] = 3  # behind 0xfffffffe
    ok(d.cuStreamWaitValue32(stream, words.address(0), 0xFFFFFFFE, 0))
    assert eventually(stream)
    ok(d.cuStreamDestroy(stream))
    words.free()


def test_the_cpu_cannot_touch_device_memory(gpu: SoftGPU) -> None:
    memory = int(ok(d.cuMemAlloc(4096)))
    libc = ctypes.CDLL(None)
    child = libc.fork()  # of C: what it does next is no Python to warn of
    if not child:
        libc.signal(11, None)  # not by the faulthandler of pytest
        libc.memset(ctypes.c_void_p(memory), 0, 1)
        libc._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == 11
    ok(d.cuMemFree(memory))


def test_freed_addresses_come_again_with_another_buffer_id(gpu: SoftGPU) -> None:
    which = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    first = int(ok(d.cuMemAlloc(4 << 20)))
    before = ok(d.cuPointerGetAttribute(which, first))
    ok(d.cuMemFree(first))
    second = int(ok(d.cuMemAlloc(4 << 20)))
    assert second == first
    assert ok(d.cuPointerGetAttribute(which, second)) != before
    ok(d.cuMemFree(second))


def test_small_allocations_share_a_page(gpu: SoftGPU) -> None:
    first, second = (int(ok(d.cuMemAlloc(1000))) for _ in range(2))
    assert second - first == 1024
    base, nbytes = ok(d.cuMemGetAddressRange(second + 10))
    assert (int(base), nbytes) == (second, 1000)
    ok(d.cuMemFree(first))
    ok(d.cuMemFree(second))


def exported(address: int, nbytes: int) -> tuple[Any, ...]:
    kind = d.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    answer: tuple[Any, ...] = d.cuMemGetHandleForAddressRange(address, nbytes, kind, 0)
    return answer


def test_a_range_that_is_not_aligned_is_not_exported(gpu: SoftGPU) -> None:
    segment = int(ok(d.cuMemAlloc(2 << 20)))
    invalid = d.CUresult.CUDA_ERROR_INVALID_VALUE
    assert exported(segment + 512, 1000)[0] == invalid  # a tensor of 1000 bytes
    gpu.poke(segment, b"before")
    fd = ok(exported(segment, 2 << 20))
    with mmap.mmap(fd, 2 << 20) as view:
        assert view[:6] == b"before"
        gpu.poke(segment, b"behind")
        assert view[:6] == b"behind"
    os.close(fd)
    ok(d.cuMemFree(segment))


def test_an_exported_part_is_the_same_memory(gpu: SoftGPU) -> None:
    segment = int(ok(d.cuMemAlloc(4 << 20)))
    gpu.poke(segment + 8192, b"part")
    fd = ok(exported(segment + 8192, 4096))
    with mmap.mmap(fd, 4096) as view:
        assert view[:4] == b"part"
        view[:4] = b"seen"
    assert gpu.peek(segment + 8192, 4) == b"seen"
    os.close(fd)
    ok(d.cuMemFree(segment))


def test_host_functions_run_on_one_thread(gpu: SoftGPU) -> None:
    count = 8
    nap = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    streams = [ok(d.cuStreamCreate(1)) for _ in range(count)]
    start = time.monotonic()
    for stream in streams:
        ok(d.cuLaunchHostFunc(stream, d.CUhostFn(nap), 20_000))
    ok(d.cuCtxSynchronize())
    assert time.monotonic() - start >= count * 0.02
    for stream in streams:
        ok(d.cuStreamDestroy(stream))


def test_errors_can_be_injected(gpu: SoftGPU) -> None:
    gpu.fail("cuMemAlloc", 2, after=1)
    memory = ok(d.cuMemAlloc(4096))
    assert d.cuMemAlloc(4096)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    ok(d.cuMemFree(memory))
    assert gpu.calls("cuMemAlloc") == 2


def test_a_copy_that_fails_loses_the_context(gpu: SoftGPU) -> None:
    memory = ok(d.cuMemAlloc(4096))
    stream = ok(d.cuStreamCreate(1))
    gpu.fail_operation(Operation.COPY, 700)
    ok(d.cuMemcpyHtoDAsync(memory, bytes(4096), 4096, stream))
    lost = d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert d.cuStreamSynchronize(stream)[0] == lost
    assert d.cuMemAlloc(1)[0] == lost
    assert d.cuMemFree(memory)[0] == lost


def test_memory_that_is_freed_before_the_copy_is_an_illegal_address(
    gpu: SoftGPU,
) -> None:
    stream = ok(d.cuStreamCreate(1))
    memory = ok(d.cuMemAllocAsync(1 << 20, stream))
    other = ok(d.cuStreamCreate(1))
    with gpu.copies_held():
        ok(d.cuMemcpyHtoDAsync(memory, bytes(4096), 4096, other))
        ok(d.cuMemFreeAsync(memory, stream))
        assert eventually(stream)
    gpu.lost = True
    assert d.cuStreamSynchronize(other)[0] == d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS


def test_memory_is_limited(gpu: SoftGPU) -> None:
    gpu.memory(1 << 20)
    assert d.cuMemAlloc((1 << 20) + 1)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    gpu.pinned_limit(4096)
    assert d.cuMemHostAlloc(8192, 0)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def test_the_legacy_stream_waits_for_blocking_streams_only(gpu: SoftGPU) -> None:
    blocking, other = ok(d.cuStreamCreate(0)), ok(d.cuStreamCreate(1))
    memory = ok(d.cuMemAlloc(4096))
    gpu.kernel(int(blocking))
    ok(d.cuMemsetD8Async(memory, 7, 4096, 0))
    assert stays_busy(0)
    ok(d.cuMemsetD8Async(memory, 8, 4096, other))
    assert eventually(other)
    gpu.end_kernels()
    assert eventually(0)
    assert gpu.peek(int(memory), 1) == b"\x07"
    for stream in (blocking, other):
        ok(d.cuStreamDestroy(stream))
    ok(d.cuMemFree(memory))


def test_a_capture_is_broken_by_what_might_wait(gpu: SoftGPU) -> None:
    stream = ok(d.cuStreamCreate(1))
    event = ok(d.cuEventCreate(2))
    everybody = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(d.cuStreamBeginCapture(stream, everybody))
    assert int(ok(d.cuStreamIsCapturing(stream))) == 1
    relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = ok(d.cuThreadExchangeStreamCaptureMode(relaxed))
    ok(d.cuEventQuery(event))
    ok(d.cuThreadExchangeStreamCaptureMode(before))
    refused = d.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert d.cuEventQuery(event)[0] == refused
    invalid = d.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    assert d.cuStreamEndCapture(stream)[0] == invalid
    ok(d.cuStreamDestroy(stream))
    ok(d.cuEventDestroy(event))


def test_with_a_context_go_its_memory_streams_and_events(gpu: SoftGPU) -> None:
    made = ok(new_context(1))
    memory = int(ok(d.cuMemAlloc(4096)))
    stream = ok(d.cuStreamCreate(1))
    event = ok(d.cuEventCreate(2))
    gpu.kernel(int(stream))
    ok(d.cuEventRecord(event, stream))
    ok(d.cuCtxDestroy(made))
    assert not gpu.in_flight()
    invalid = d.CUresult.CUDA_ERROR_INVALID_HANDLE
    assert d.cuStreamQuery(stream)[0] == invalid
    assert d.cuEventQuery(event)[0] == invalid
    which = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    unknown = d.CUresult.CUDA_ERROR_INVALID_VALUE
    assert d.cuPointerGetAttribute(which, memory)[0] == unknown
    assert int(ok(d.cuCtxGetDevice())) == 0
