"""A real NVIDIA GPU in the place of the software one (``--real-gpu``)."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from gpu.vendors import done


class RealGPU:
    """What :class:`soft_gpu.control.SoftGPU` offers, as far as hardware can do it.

    A kernel is a stream that waits for a word of pinned memory: as on the software
    GPU it holds a connection until it is told to end. Other controls skip the test.
    """

    vendor = "cuda"
    lost = False

    def __init__(self) -> None:
        from cuda.bindings import driver

        self._driver: Any = driver
        done(driver.cuInit(0))
        self._ctx = done(driver.cuDevicePrimaryCtxRetain(0))
        done(driver.cuCtxSetCurrent(self._ctx))
        self._words = int(done(driver.cuMemHostAlloc(4096, 2)))  # mapped
        self._address = int(done(driver.cuMemHostGetDevicePointer(self._words, 0)))
        self._next = self._ended = 0

    def _word(self, index: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_address(self._words + 4 * (index % 1024))

    def kernel(self, stream: int = 0, *, seconds: float = 0.0) -> None:
        index, self._next = self._next, self._next + 1
        self._word(index).value = 0
        at = self._address + 4 * (index % 1024)
        done(self._driver.cuStreamWaitValue32(stream, at, 1, 1))
        if seconds:
            self._ended = self._next
            threading.Timer(seconds, self._end, (index,)).start()

    def end_kernels(self, count: int = 1) -> None:
        for _ in range(count):
            self._end(self._ended)
            self._ended += 1

    def _end(self, index: int) -> None:
        self._word(index).value = 1

    def peek(self, address: int, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        done(self._driver.cuMemcpyDtoH(data, address, nbytes))
        return bytes(data)

    def poke(self, address: int, data: bytes) -> None:
        done(self._driver.cuMemcpyHtoD(address, data, len(data)))

    def give_back(self) -> None:
        done(self._driver.cuCtxSynchronize())
        done(self._driver.cuMemFreeHost(self._words))
        done(self._driver.cuDevicePrimaryCtxRelease(0))

    def __getattr__(self, name: str) -> object:
        pytest.skip(f"{name}: only the software GPU can be told to")
