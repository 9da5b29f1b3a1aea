"""Which runtime a raw handle is of, and where things are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import ArgumentError, GPUUnavailableError
from aiougds._ffi import ffi, lib
from aiougds._gpu.errors import gpu_error
from aiougds._gpu.runtime import is_loaded, load, unavailable
from aiougds._gpu.streams import DEFAULT_STREAMS

if TYPE_CHECKING:
    from aiougds._gpu.pointers import Pointer
    from aiougds._gpu.streams import Runtime, StreamHandle

_RUNTIMES: Final[tuple[Runtime, ...]] = ("cuda", "hip")
NAMES_OF: Final[dict[int, Runtime]] = {
    lib.UGDS_GPU_CUDA: "cuda",
    lib.UGDS_GPU_HIP: "hip",
}


def which_runtime(said: Runtime | None, what: str) -> tuple[Runtime, int]:
    """Return the runtime that an object is of, and its number for C.

    What does not say is of the only one that is loaded, or that can be.
    """
    if said is not None:
        return said, load(said)
    found: list[Runtime] = [name for name in _RUNTIMES if is_loaded(name)]
    found = found or [name for name in _RUNTIMES if not unavailable(name)]
    if not found:
        raise GPUUnavailableError(
            f"{what}: {unavailable('cuda')}; {unavailable('hip')}"
        )
    if len(found) > 1:
        raise ArgumentError(
            f"{what} may be of CUDA or of HIP, which are both loaded: give an object "
            "that says so, such as cuda.bindings.driver.CUstream(handle) or "
            "hip.ihipStream_t.fromObj(handle)"
        )
    return found[0], load(found[0])


def current_place(vendor: int) -> tuple[int, int]:
    """Return device and context of this thread; device 0 where none is current."""
    device, ctx = ffi.new("int32_t *"), ffi.new("uint64_t *")
    code = ffi.new("int *")
    if lib.ugds_gpu_stream_place(vendor, 0, device, ctx, code):
        return 0, 0
    return device[0], ctx[0]


def stream_place(
    stream: StreamHandle, vendor: int, near: Pointer | None
) -> tuple[int, int]:
    """Return the device and context of a stream.

    Default streams are made by the runtime itself: ``near``, the memory beside it, says
    of which context, or else what is current does.
    """
    is_default = stream.handle in DEFAULT_STREAMS
    if is_default and near is not None and stream.device in (-1, near.device):
        return near.device, near.ctx
    if is_default and stream.device >= 0:
        return stream.device, 0  # of the device's primary context
    device, ctx = ffi.new("int32_t *"), ffi.new("uint64_t *")
    code = ffi.new("int *")
    failed = lib.ugds_gpu_stream_place(vendor, stream.handle, device, ctx, code)
    if failed and is_default:
        error = gpu_error(vendor, code[0], "its runtime says", -failed)
        raise ArgumentError(
            f"stream={stream.handle} is the default stream of whatever is current in "
            "this thread, where nothing is, and memory of the host has none: give a "
            "stream object, or make a context current (torch.cuda.set_device)"
        ) from error
    if failed:
        raise gpu_error(vendor, code[0], f"stream {stream.handle:#x}", -failed)
    return device[0], ctx[0]
