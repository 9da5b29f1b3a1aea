"""Why memory cannot be made reachable for a device, in words with the remedy."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

from aiougds._device_memory import DeviceMemory
from aiougds._errors import (
    CapabilityError,
    DeviceRemovedError,
    ForkedError,
    MemoryLayoutError,
    MemoryLimitError,
    MemoryRevokedError,
    OperationTimeoutError,
    UGDSError,
)

if TYPE_CHECKING:
    from aiougds._buffer import Memory


def memlock() -> str:
    """Return the limit of locked memory, and how to raise it."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
    return (
        f"the limit of locked memory (RLIMIT_MEMLOCK) is {limit}; raise it with "
        "ulimit -l, LimitMEMLOCK= of a systemd unit or /etc/security/limits.conf, or "
        "register less at a time"
    )


def map_error(address: str, memory: Memory, code: int) -> UGDSError:
    """Return the exception for an errno with which a mapping was refused."""
    kind, why = _reason(-code)
    what = (
        f"{memory.nbytes} bytes at {memory.ptr:#x}"
        if not isinstance(memory, DeviceMemory)
        else memory.what
    )
    return kind(f"{what} cannot be made reachable for {address!r}: {why}", errno=-code)


def _reason(number: int) -> tuple[type[UGDSError], str]:
    match number:
        case errno.ENOMEM | errno.EAGAIN:
            return MemoryLimitError, f"no more memory can be pinned; {memlock()}"
        case errno.ENOSPC:
            return MemoryLimitError, (
                "it has as many mappings as the kernel helper allows one process; "
                "register larger ranges and slice them"
            )
        case errno.E2BIG:
            return MemoryLimitError, (
                "it is more than the kernel helper maps in one piece; register it in "
                "parts"
            )
        case errno.EFAULT:
            return MemoryLayoutError, (
                "there is no such memory of this process, or it is of a kind that "
                "cannot be pinned"
            )
        case errno.EEXIST:
            return MemoryLayoutError, (
                "pages of it are registered in another manner (another kind of memory, "
                "or read-only); close that registration first"
            )
        case errno.EINVAL:
            return MemoryLayoutError, (
                "it is no dma-buf (a memory file may stand for one where it is sealed "
                "with F_SEAL_SHRINK), or one whose exporter gives pieces that are no "
                "whole pages"
            )
        case errno.EBUSY:
            return MemoryLayoutError, (
                "its exporter did not pin it; what else has it pinned, or its GPU "
                "has no room for it"
            )
        case errno.EXDEV:
            return MemoryLayoutError, (
                "it lies in system memory, and require_peer=True was given"
            )
        case errno.EOPNOTSUPP:
            return CapabilityError, (
                "this transport, the kernel helper as it was built, or the GPU driver "
                "as it is loaded has no way to such memory (the embedded controller "
                "takes dma-bufs that can be mapped with mmap(), and memory of a GPU "
                "whose runtime is loaded); see aiougds check"
            )
        case errno.ENOPROTOOPT:
            return CapabilityError, (
                "its GPU sees what an SSD wrote only after it is told to look, and its "
                "driver has no cuFlushGPUDirectRDMAWrites (CUDA 11.3 or newer does): "
                "update the driver"
            )
        case errno.ETIMEDOUT:
            return OperationTimeoutError, (
                "a fence of the dma-buf was not signalled: whoever produces its "
                "content is not done"
            )
        case errno.ENODEV:
            return DeviceRemovedError, "the device was removed or unbound"
        case errno.EIO | errno.ESTALE:
            return MemoryRevokedError, (
                "registered memory was taken away; await controller.reset()"
            )
        case errno.EOWNERDEAD:
            return ForkedError, "the process that opened it has ended"
        case _:
            return UGDSError, os.strerror(number)
