"""What a GPU runtime answered, as one exception with the remedy in its sentence."""

from __future__ import annotations

from errno import EOPNOTSUPP
from typing import Final

from aiougds._errors import GPUContextError, GPUError, GPUMemoryError
from aiougds._ffi import ffi, lib

NAMES: Final = {lib.UGDS_GPU_CUDA: "cuda", lib.UGDS_GPU_HIP: "hip"}

_NO_ROOM: Final = (
    "free memory of that GPU (torch.cuda.empty_cache() gives back what the framework "
    "keeps) or use smaller buffers"
)
_FINAL: Final = (
    "every later call in that context fails too, and its memory is lost: start the "
    "process anew. The controller works on for host memory"
)
_GONE: Final = (
    "its context was destroyed or its device reset: close the registrations of its "
    "memory, allocate and register it anew"
)
_NO_HANDLE: Final = (
    "the stream or event was destroyed, or is of another runtime; give one that lives"
)
_REMEDIES: Final[dict[str, tuple[type[GPUError], str]]] = {
    "CUDA_ERROR_OUT_OF_MEMORY": (GPUMemoryError, _NO_ROOM),
    "hipErrorOutOfMemory": (GPUMemoryError, _NO_ROOM),
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": (GPUContextError, _GONE),
    "CUDA_ERROR_INVALID_CONTEXT": (GPUContextError, _GONE),
    "CUDA_ERROR_DEINITIALIZED": (GPUContextError, _GONE),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (GPUContextError, _GONE),
    "hipErrorContextIsDestroyed": (GPUContextError, _GONE),
    "hipErrorInvalidContext": (GPUContextError, _GONE),
    "hipErrorDeinitialized": (GPUContextError, _GONE),
    "CUDA_ERROR_INVALID_HANDLE": (GPUContextError, _NO_HANDLE),
    "hipErrorInvalidHandle": (GPUContextError, _NO_HANDLE),
    "hipErrorInvalidResourceHandle": (GPUContextError, _NO_HANDLE),
    "CUDA_ERROR_NOT_INITIALIZED": (
        GPUError,
        "no runtime is initialised in this process: after a fork, start anew",
    ),
    "CUDA_ERROR_NO_DEVICE": (GPUError, "no GPU is there, or none may be used"),
    "hipErrorNoDevice": (GPUError, "no GPU is there, or none may be used"),
    "CUDA_ERROR_INVALID_DEVICE": (GPUError, "there is no GPU of that number"),
    "hipErrorInvalidDevice": (GPUError, "there is no GPU of that number"),
}


def gpu_error(vendor: int, code: int, what: str, errno: int | None = None) -> GPUError:
    """Return the exception for a runtime's answer; ``what`` was tried."""
    runtime = NAMES.get(vendor, f"vendor {vendor}")
    name = ffi.string(lib.ugds_gpu_error_name(vendor, code)).decode("ascii", "replace")
    name = name or f"error {code} of {runtime}"
    kind, remedy = _REMEDIES.get(name, (GPUError, ""))
    if lib.ugds_gpu_error_sticky(vendor, code):
        kind, remedy = GPUContextError, _FINAL
    if not remedy and errno == EOPNOTSUPP:
        remedy = "this GPU, or its driver as it is loaded, does not offer it"
    message = f"{what}: {name}"
    if remedy:
        message += f"; {remedy}"
    if kind is not GPUError:
        errno = None  # the kind has its own
    return kind(message, errno=errno, runtime=runtime, code=code, name=name)
