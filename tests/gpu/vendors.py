"""What the tests do with a GPU themselves, through cuda-bindings or hip-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

PAGE_64K = 64 << 10


class Vendor(Protocol):
    """Memory and streams of the first GPUs; addresses and handles are integers."""

    name: str

    def alloc(self, nbytes: int, device: int = 0) -> int: ...
    def free(self, ptr: int) -> None: ...
    def managed(self, nbytes: int) -> int: ...
    def pinned(self, nbytes: int) -> int: ...
    def free_pinned(self, ptr: int) -> None: ...
    def stream(self) -> int: ...
    def destroy(self, stream: int) -> None: ...
    def fill(self, ptr: int, value: int, nbytes: int, stream: int) -> None: ...
    def current(self) -> object: ...
    def capture(self, stream: int) -> None: ...
    def end_capture(self, stream: int) -> None: ...


def done(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 (of either package)
    """Return what a call of either package answers, once it succeeded."""
    code, *rest = answer
    assert int(code) == 0, code
    return rest[0] if len(rest) == 1 else tuple(rest)


class Cuda:
    """CUDA, through cuda-bindings."""

    name = "cuda"

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver: Any = driver
        done(driver.cuInit(0))
        self.ctx = done(driver.cuDevicePrimaryCtxRetain(0))
        done(driver.cuCtxSetCurrent(self.ctx))

    def _on(self, device: int, work: Callable[[], int]) -> int:
        if not device:
            return work()
        ctx = done(self.driver.cuDevicePrimaryCtxRetain(device))
        done(self.driver.cuCtxPushCurrent(ctx))
        try:
            return work()
        finally:
            done(self.driver.cuCtxPopCurrent())

    def alloc(self, nbytes: int, device: int = 0) -> int:
        return self._on(device, lambda: int(done(self.driver.cuMemAlloc(nbytes))))

    def free(self, ptr: int) -> None:
        done(self.driver.cuMemFree(ptr))

    def managed(self, nbytes: int) -> int:
        return int(done(self.driver.cuMemAllocManaged(nbytes, 1)))

    def pinned(self, nbytes: int) -> int:
        return int(done(self.driver.cuMemHostAlloc(nbytes, 0)))

    def free_pinned(self, ptr: int) -> None:
        done(self.driver.cuMemFreeHost(ptr))

    def stream(self) -> int:
        return int(done(self.driver.cuStreamCreate(1)))

    def destroy(self, stream: int) -> None:
        done(self.driver.cuStreamDestroy(stream))

    def fill(self, ptr: int, value: int, nbytes: int, stream: int) -> None:
        done(self.driver.cuMemsetD8Async(ptr, value, nbytes, stream))

    def current(self) -> object:
        return int(done(self.driver.cuCtxGetCurrent()))

    def capture(self, stream: int) -> None:
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        done(self.driver.cuStreamBeginCapture(stream, mode))

    def end_capture(self, stream: int) -> None:
        done(self.driver.cuGraphDestroy(done(self.driver.cuStreamEndCapture(stream))))

    # ---- memory that is mapped in pieces, as of expandable segments ----

    def map_pieces(self, count: int) -> tuple[int, int, list[int]]:
        """Return address, length of a piece, and handles."""
        driver = self.driver
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        flag = driver.CUmemAllocationGranularity_flags
        piece = done(
            driver.cuMemGetAllocationGranularity(
                prop, flag.CU_MEM_ALLOC_GRANULARITY_MINIMUM
            )
        )
        base = int(done(driver.cuMemAddressReserve(count * piece, 0, 0, 0)))
        handles = []
        for i in range(count):
            handles.append(done(driver.cuMemCreate(piece, prop, 0)))
            done(driver.cuMemMap(base + i * piece, piece, 0, handles[-1], 0))
        access = driver.CUmemAccessDesc()
        access.location = prop.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        done(driver.cuMemSetAccess(base, count * piece, [access], 1))
        return base, piece, handles

    def unmap_pieces(self, base: int, piece: int, handles: list[int]) -> None:
        done(self.driver.cuMemUnmap(base, len(handles) * piece))
        for handle in handles:
            done(self.driver.cuMemRelease(handle))
        done(self.driver.cuMemAddressFree(base, len(handles) * piece))


class Hip:
    """HIP, through hip-python."""

    name = "hip"

    def __init__(self) -> None:
        from hip import hip

        self.hip: Any = hip
        done(hip.hipInit(0))
        done(hip.hipSetDevice(0))

    def alloc(self, nbytes: int, device: int = 0) -> int:
        done(self.hip.hipSetDevice(device))
        try:
            return int(done(self.hip.hipMalloc(nbytes)))
        finally:
            done(self.hip.hipSetDevice(0))

    def free(self, ptr: int) -> None:
        done(self.hip.hipFree(ptr))

    def managed(self, nbytes: int) -> int:
        return int(done(self.hip.hipMallocManaged(nbytes, 1)))

    def pinned(self, nbytes: int) -> int:
        return int(done(self.hip.hipHostMalloc(nbytes, 0)))

    def free_pinned(self, ptr: int) -> None:
        done(self.hip.hipHostFree(ptr))

    def stream(self) -> int:
        return int(done(self.hip.hipStreamCreateWithFlags(1)))

    def destroy(self, stream: int) -> None:
        done(self.hip.hipStreamDestroy(stream))

    def fill(self, ptr: int, value: int, nbytes: int, stream: int) -> None:
        done(self.hip.hipMemsetAsync(ptr, value, nbytes, stream))

    def current(self) -> object:
        return int(done(self.hip.hipGetDevice()))

    def capture(self, stream: int) -> None:
        mode = self.hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        done(self.hip.hipStreamBeginCapture(stream, mode))

    def end_capture(self, stream: int) -> None:
        done(self.hip.hipGraphDestroy(done(self.hip.hipStreamEndCapture(stream))))


def vendor(name: str) -> Vendor:
    """Return one of them, ready to be used on this thread."""
    return Cuda() if name == "cuda" else Hip()
