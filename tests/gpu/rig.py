"""A software GPU and its runtime's Python, as one object for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu.objects import MAKERS
from gpu.vendors import Vendor, vendor
from soft_gpu.control import SoftGPU


class GPU:
    """Memory that is filled and looked at behind every stream's back."""

    def __init__(self, soft: SoftGPU) -> None:
        self.soft = soft
        self.api: Vendor = vendor(soft.vendor)
        self.name = soft.vendor
        self._mine: list[int] = []
        self._streams: list[int] = []

    def alloc(self, nbytes: int, fill: int = 0xEE, device: int = 0) -> int:
        """Return fresh memory with the same byte everywhere."""
        ptr = self.api.alloc(nbytes, device)
        self._mine.append(ptr)
        self.put(ptr, bytes([fill]) * nbytes)
        return ptr

    def free(self, ptr: int) -> None:
        """Free it before the end of the test."""
        self._mine.remove(ptr)
        self.api.free(ptr)

    def stream(self) -> int:
        """Return a stream that does not wait for the default one."""
        handle = self.api.stream()
        self._streams.append(handle)
        return handle

    def destroy(self, stream: int) -> None:
        """Destroy it before the end of the test."""
        self._streams.remove(stream)
        self.api.destroy(stream)

    @contextmanager
    def captured(self, stream: int) -> Iterator[None]:
        """Inside, work of the stream goes into a graph."""
        self.api.capture(stream)
        try:
            yield
        finally:
            self.api.end_capture(stream)

    def put(self, ptr: int, data: bytes) -> None:
        self.soft.poke(ptr, data)

    def get(self, ptr: int, nbytes: int) -> bytes:
        return self.soft.peek(ptr, nbytes)

    def made(self, kind: str, ptr: int, nbytes: int) -> object:
        """Return an object of that kind over memory."""
        return MAKERS[kind](self.name, ptr, nbytes)

    def finish(self) -> None:
        """Give everything back."""
        for stream in self._streams:
            self.api.destroy(stream)
        for ptr in self._mine:
            self.api.free(ptr)
