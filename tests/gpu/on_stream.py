"""What tests of stream operations share: buffers, waiting, and whether it is clean."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal

import anyio
from gpu.rig import GPU
from gpu.vendors import done
from helpers.facade import bare
from helpers.world import MIB, World

from aiougds import StreamOperation, _cells

Where = Literal["host", "gpu"]
WHERE: Final = ("gpu", "host")
SMALL: Final = {"size": 4 * MIB, "lba": 512}


class Buffer:
    """Registered memory, looked at behind every stream's back."""

    def __init__(self, gpu: GPU, reg: Any, ptr: int) -> None:  # noqa: ANN401
        self._gpu = gpu
        self.reg = reg
        self.ptr = ptr  # 0: of the host

    def __getitem__(self, part: slice) -> Any:  # noqa: ANN401
        return self.reg[part]

    def get(self) -> bytes:
        if self.ptr:
            return self._gpu.get(self.ptr, self.reg.nbytes)
        return bytes(self.reg.view)

    def put(self, data: bytes) -> None:
        if self.ptr:
            self._gpu.put(self.ptr, data)
        else:
            self.reg.view[: len(data)] = data


@asynccontextmanager
async def buffer(ns: Any, gpu: GPU, nbytes: int, where: Where) -> AsyncIterator[Buffer]:  # noqa: ANN401
    """Return registered memory of the GPU or of the host, all 0xEE."""
    if where == "gpu":
        ptr = gpu.alloc(nbytes)
        async with ns.register((ptr, nbytes, gpu.name)) as reg:
            yield Buffer(gpu, bare(reg), ptr)
        return
    async with ns.allocate(nbytes) as reg:
        made = Buffer(gpu, bare(reg), 0)
        made.put(b"\xee" * nbytes)
        yield made


def obj(gpu: GPU, stream: int) -> Any:  # noqa: ANN401
    """Return a stream as an object that says whose it is."""
    if gpu.name == "cuda":
        from cuda.bindings import driver

        return driver.CUstream(stream)
    from hip import hip

    return hip.ihipStream_t.fromObj(stream)


def copy_in(gpu: GPU, dst: int, src: int, nbytes: int, stream: int) -> None:
    """Queue a copy from pinned host memory to the GPU."""
    if gpu.name == "cuda":
        from cuda.bindings import driver

        done(driver.cuMemcpyHtoDAsync(dst, src, nbytes, stream))
    else:
        from hip import hip

        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        done(hip.hipMemcpyAsync(dst, src, nbytes, kind, stream))


def copy_out(gpu: GPU, dst: int, src: int, nbytes: int, stream: int) -> None:
    """Queue a copy from the GPU to pinned host memory, in place of a kernel."""
    if gpu.name == "cuda":
        from cuda.bindings import driver

        done(driver.cuMemcpyDtoHAsync(dst, src, nbytes, stream))
    else:
        from hip import hip

        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        done(hip.hipMemcpyAsync(dst, src, nbytes, kind, stream))


@contextmanager
def recorded(gpu: GPU, stream: int) -> Iterator[Any]:
    """Return an event behind what is queued on a stream now."""
    if gpu.name == "cuda":
        from cuda.bindings import driver

        event = done(driver.cuEventCreate(2))
        done(driver.cuEventRecord(event, stream))
        yield event
        done(driver.cuEventDestroy(event))
    else:
        from hip import hip

        event = done(hip.hipEventCreateWithFlags(2))
        done(hip.hipEventRecord(event, stream))
        yield event
        done(hip.hipEventDestroy(event))


async def ended(world: World, op: StreamOperation) -> int:
    """Wait for it as that world does, and return its result."""
    return op.wait() if world.loop == "blocking" else await op


async def until(world: World, what: Any, timeout_s: float = 20) -> None:  # noqa: ANN401
    """Wait until a predicate holds, without blocking a loop."""
    import time

    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "it never came true"
        if world.loop == "blocking":
            time.sleep(0.001)
        else:
            await anyio.sleep(0.001)


@contextmanager
def cells_given_back() -> Iterator[None]:
    """The pool of cells keeps nothing behind the test."""
    try:
        yield
    finally:
        gc.collect()
        _cells.trim_cells()
        _cells.forget_cells()  # a failed test holds on to some, and the GPU is reset
