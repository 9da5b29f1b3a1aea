"""A real NVIDIA GPU in the place of the software one (``--real-gpu``)."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any

from gpu.vendors import done

WORDS = 1024


class RealGPU:
    """What :class:`soft_gpu.control.SoftGPU` offers, as far as hardware can do it.

    A kernel is a stream that waits for a word of pinned memory: as on the software
    GPU it holds a connection until it is told to end.
    """

    vendor = "cuda"
    lost = False

    def __init__(self) -> None:
        from cuda.bindings import driver

        self._driver: Any = driver
        done(driver.cuInit(0))
        self.count = int(done(driver.cuDeviceGetCount()))
        done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
        self._words = int(done(driver.cuMemHostAlloc(4 * WORDS, 2)))  # mapped
        self._address = int(done(driver.cuMemHostGetDevicePointer(self._words, 0)))
        self._stream = int(done(driver.cuStreamCreate(1)))
        self._made = 0
        self._running: deque[int] = deque()
        self._timers: list[threading.Timer] = []

    def kernel(self, stream: int = 0, *, seconds: float = 0.0) -> None:
        index, self._made = self._made, self._made + 1
        assert index < WORDS
        at = self._address + 4 * index
        done(self._driver.cuStreamWaitValue32(stream, at, 1, 1))
        if seconds:
            self._timers.append(threading.Timer(seconds, self._end, (index,)))
            self._timers[-1].start()
        else:
            self._running.append(index)

    def end_kernels(self, count: int = 1) -> None:
        for _ in range(count):
            self._end(self._running.popleft())

    def in_flight(self) -> int:
        """Return how many kernels without a time have not ended."""
        return len(self._running)

    def _end(self, index: int) -> None:
        ctypes.c_uint32.from_address(self._words + 4 * index).value = 1

    # A copy of pageable memory may still be on its way when the call returns, and no
    # other stream of ours waits for the default one.

    def peek(self, address: int, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        done(self._driver.cuMemcpyDtoHAsync(data, address, nbytes, self._stream))
        done(self._driver.cuStreamSynchronize(self._stream))
        return bytes(data)

    def poke(self, address: int, data: bytes) -> None:
        done(self._driver.cuMemcpyHtoDAsync(address, data, len(data), self._stream))
        done(self._driver.cuStreamSynchronize(self._stream))

    def give_back(self) -> None:
        for timer in self._timers:
            timer.join()
        while self._running:  # of a test that failed
            self.end_kernels()
        done(self._driver.cuCtxSynchronize())
        done(self._driver.cuStreamDestroy(self._stream))
        done(self._driver.cuMemFreeHost(self._words))
        done(self._driver.cuDevicePrimaryCtxRelease(0))
