"""The software HIP device under the real hip-python."""

from __future__ import annotations

import ctypes
import importlib
import time
from typing import Any

import pytest

from soft_gpu.control import SoftGPU

hip: Any = importlib.import_module("hip").hip

pytestmark = pytest.mark.soft_gpu

SIGNAL_MEMORY = 2


def ok(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 (as the bindings)
    code, *values = answer
    assert code == hip.hipError_t.hipSuccess, code
    return values[0] if len(values) == 1 else values or None


def eventually(stream: object, seconds: float = 5.0) -> bool:
    """Whether a stream is through in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if hip.hipStreamQuery(stream)[0] == hip.hipError_t.hipSuccess:
            return True
        time.sleep(0.001)
    return False


def word(cell: object) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(int(cell))


def test_streams_wait_for_signal_memory_only(soft_hip: SoftGPU) -> None:
    stream = ok(hip.hipStreamCreateWithFlags(1))
    pinned = ok(hip.hipHostMalloc(4096, 0))
    refused = hip.hipStreamWaitValue32(stream, int(pinned), 1, 0, 0xFFFFFFFF)
    assert refused[0] == hip.hipError_t.hipErrorInvalidValue
    signal = ok(hip.hipExtMallocWithFlags(8, SIGNAL_MEMORY))
    word(signal).value = 0
    ok(hip.hipStreamWaitValue32(stream, int(signal), 1, 0, 0xFFFFFFFF))
    assert not eventually(stream, 0.1)
    word(signal).value = 1
    assert eventually(stream)
    ok(hip.hipFree(signal))
    ok(hip.hipHostFree(pinned))
    ok(hip.hipStreamDestroy(stream))


def test_signal_memory_comes_in_cells_of_eight_bytes(soft_hip: SoftGPU) -> None:
    answer = hip.hipExtMallocWithFlags(64, SIGNAL_MEMORY)
    assert answer[0] == hip.hipError_t.hipErrorInvalidValue


def test_waits_do_not_wrap_around(soft_hip: SoftGPU) -> None:
    stream = ok(hip.hipStreamCreateWithFlags(1))
    signal = ok(hip.hipExtMallocWithFlags(8, SIGNAL_MEMORY))
    word(signal).value = 3  # far below 0xfffffffe
    ok(hip.hipStreamWaitValue32(stream, int(signal), 0xFFFFFFFE, 0, 0xFFFFFFFF))
    assert not eventually(stream, 0.1)
    word(signal).value = 0xFFFFFFFE
    assert eventually(stream)
    ok(hip.hipFree(signal))
    ok(hip.hipStreamDestroy(stream))


@pytest.mark.parametrize(("waiting", "starts"), [(7, True), (8, False)])
def test_waiting_streams_hold_their_connections(
    soft_hip: SoftGPU, waiting: int, starts: bool
) -> None:
    signals = [ok(hip.hipExtMallocWithFlags(8, SIGNAL_MEMORY)) for _ in range(waiting)]
    streams = [ok(hip.hipStreamCreateWithFlags(1)) for _ in range(waiting)]
    other = ok(hip.hipStreamCreateWithFlags(1))
    memory = ok(hip.hipMalloc(4096))
    for stream, signal in zip(streams, signals, strict=True):
        word(signal).value = 0
        ok(hip.hipStreamWaitValue32(stream, int(signal), 1, 0, 0xFFFFFFFF))
    ok(hip.hipMemsetAsync(memory, 5, 4096, other))
    assert eventually(other, 5.0 if starts else 0.3) == starts
    for signal in signals:
        word(signal).value = 1
    assert all(eventually(stream) for stream in [*streams, other])
    assert soft_hip.peek(int(memory), 2) == b"\x05\x05"
    for stream in [*streams, other]:
        ok(hip.hipStreamDestroy(stream))
    for signal in [*signals, memory]:
        ok(hip.hipFree(signal))


def test_each_thread_has_a_last_error(soft_hip: SoftGPU) -> None:
    assert hip.hipFree(12345)[0] == hip.hipError_t.hipErrorInvalidValue
    assert hip.hipPeekAtLastError()[0] == hip.hipError_t.hipErrorInvalidValue
    assert hip.hipGetLastError()[0] == hip.hipError_t.hipErrorInvalidValue
    assert hip.hipGetLastError()[0] == hip.hipError_t.hipSuccess


def test_events_order_streams(soft_hip: SoftGPU) -> None:
    first, second = (ok(hip.hipStreamCreateWithFlags(1)) for _ in range(2))
    event = ok(hip.hipEventCreateWithFlags(2))
    soft_hip.kernel(int(first))
    ok(hip.hipEventRecord(event, first))
    ok(hip.hipStreamWaitEvent(second, event, 0))
    assert not eventually(second, 0.05)
    soft_hip.end_kernels()
    assert eventually(second)
    ok(hip.hipEventDestroy(event))
    for stream in (first, second):
        ok(hip.hipStreamDestroy(stream))


def test_a_lost_device_answers_everything_with_it(soft_hip: SoftGPU) -> None:
    memory = ok(hip.hipMalloc(4096))
    soft_hip.lose(code=719)
    lost = hip.hipError_t.hipErrorLaunchFailure
    assert hip.hipMemcpyDtoH(bytearray(16), memory, 16)[0] == lost
    assert hip.hipDeviceSynchronize()[0] == lost
