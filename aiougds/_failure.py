"""What went wrong, in words: an errno of C and a request become one exception."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds._errors import (
    AlignmentError,
    BusyError,
    CapabilityError,
    ClosedError,
    ControllerWedgedError,
    MemoryLayoutError,
    MemoryRevokedError,
    NamespaceGoneError,
    OperationAbortedError,
    OperationTimeoutError,
    RangeBusyError,
    RangeError,
    ReadOnlyError,
    UGDSError,
)
from aiougds._explain import nvme_error
from aiougds._ffi import OP_NAMES, Record, ffi, lib
from aiougds._gpu.errors import NAMES as GPU_NAMES
from aiougds._gpu.errors import gpu_error

if TYPE_CHECKING:
    from aiougds._channel import Channel
    from aiougds._device import Device

DATA_TRANSFER_ERROR: Final = 0x004  # generic command status (NVMe base)
NAMES: Final = OP_NAMES
_OUTCOMES: Final = {
    lib.UGDS_NEVER_SENT: "it was never sent",
    lib.UGDS_ABORTED: "the device gave it up",
    lib.UGDS_UNKNOWN: "whether data moved is not known",
}


class Request(NamedTuple):
    """An operation as its failure is described."""

    op: int
    offset: int
    nbytes: int
    buf_bytes: int  # of the memory that was given, from buf_off on
    buf_off: int
    lba_bytes: int
    size: int  # of the namespace window

    @property
    def name(self) -> str:
        """The method that was called."""
        return NAMES.get(self.op & 0xFF, f"opcode {self.op & 0xFF:#x}")


def unaligned(name: str, offset: int, nbytes: int, lba: int) -> AlignmentError:
    """Return the refusal of a byte range that is not whole blocks."""
    what = "offset" if offset % lba else "length"
    value = offset if offset % lba else nbytes
    remedy = (
        'read whole blocks, or use read(..., edges="bounce")'
        if name == "read"
        else "read the whole blocks around it, change them and write those back"
        if name == "write"
        else "give whole blocks"
    )
    return AlignmentError(
        f"{name}: {what} {value} is not a multiple of the block size {lba}; {remedy}"
    )


def gone(name: str) -> NamespaceGoneError:
    """Return the refusal of anything on a namespace that is not there any more."""
    return NamespaceGoneError(
        f"{name}: the namespace was detached, deleted or formatted anew; this object "
        "works again if it comes back as it was, else open it again"
    )


def past_end(
    name: str, offset: int, nbytes: int, size: int, is_gone: bool
) -> UGDSError:
    """Return the refusal of a range that the namespace does not have."""
    if is_gone:
        return gone(name)
    return RangeError(
        f"{name}: {nbytes} bytes at offset {offset} end at {offset + nbytes}, past the "
        f"end of the namespace or region at {size}"
    )


def refused(device: Device, code: int, request: Request) -> UGDSError:
    """Return the exception for an errno with which nothing was sent."""
    name, offset, nbytes = request.name, request.offset, request.nbytes
    match -code:
        case errno.EINVAL if (offset | nbytes) % request.lba_bytes:
            return unaligned(name, offset, nbytes, request.lba_bytes)
        case errno.ERANGE:
            return past_end(name, offset, nbytes, request.size, False)
        case errno.ENXIO:
            return gone(name)
        case errno.EFAULT:
            return RangeError(
                f"{name}: {nbytes} bytes from byte {request.buf_off} on do not fit "
                f"into the registered memory of {request.buf_bytes} bytes"
            )
        case errno.EDOM:
            return AlignmentError(
                f"{name}: the memory at byte {request.buf_off} of its registration is "
                "not aligned to 4 bytes; align it, or use read() or write(), which copy"
            )
        case errno.ENODATA:
            return RangeError(f"{name}: an item of a batch has no bytes")
        case errno.ESTALE:
            return ClosedError(f"{name}: the registration is closed")
        case errno.EKEYREVOKED:
            return MemoryRevokedError(
                f"{name}: the memory was taken away by its owner; close its "
                "registration, and register what there is now"
            )
        case errno.EROFS:
            return ReadOnlyError(
                f"{name}: the namespace is read-only (opened with readonly=True, a "
                "read-only region, or write protected); open it for writing"
            )
        case errno.EACCES:
            return ReadOnlyError(
                f"{name}: the memory is read-only; use writable memory, for example a "
                "bytearray instead of bytes"
            )
        case errno.EBUSY:
            return RangeBusyError(
                f"{name}: the device may still touch these bytes of the memory for an "
                "operation that timed out or was cancelled; use other memory, or "
                "wait with controller.settled() until the quarantine is without them"
            )
        case errno.ENOSPC:
            return BusyError(
                f"{name}: the batch has no room; operations that were given up hold "
                "their places until the device has answered"
            )
        case errno.EOPNOTSUPP:
            return CapabilityError(
                f"{device.address} does not offer {name}; see controller.capabilities"
            )
        case errno.ENOMEM:
            return MemoryLayoutError(
                f"{name}: no memory for one more operation in flight"
            )
        case errno.EHOSTDOWN:
            # It may be over by now: the state is read after the fact.
            return device.refusal() or ControllerWedgedError(
                f"{name}: the controller was being reset; nothing was sent, try again"
            )
        case _:
            return device.refusal() or UGDSError(
                f"{name} of {nbytes} bytes at offset {offset}: {os.strerror(-code)}",
                errno=-code,
            )


def _delay(device: Device, status: int) -> float:
    """Return what the controller wants to be waited before a retry, in seconds."""
    crd = status >> 11 & 3
    return device.info().crdt[crd - 1] / 10 if crd else 0.0


def ended(
    device: Device, record: Record, request: Request, timeout_s: float | None = None
) -> UGDSError:
    """Return the exception for an operation that was started and failed."""
    number = -record.result
    moved = f"{record.done} of {request.nbytes} bytes were moved before"
    what = f"{request.name} of {request.nbytes} bytes at offset {request.offset}"
    if record.nvme & 0x7FF == DATA_TRANSFER_ERROR and record.dw0 >> 24 in GPU_NAMES:
        # The embedded controller says which runtime failed, and how.
        vendor, code = record.dw0 >> 24, record.dw0 & 0xFFFFFF
        return gpu_error(vendor, code, f"{what} ({moved})", number)
    if record.nvme and record.outcome in (lib.UGDS_DONE, lib.UGDS_ABORTED):
        return nvme_error(
            record.nvme,
            errno=number,
            command=request.name,
            offset=request.offset,
            bytes_done=record.done,
            retry_after_s=_delay(device, record.nvme),
        )
    if record.outcome == lib.UGDS_NEVER_SENT and number not in (
        errno.ECANCELED,
        errno.ETIMEDOUT,
    ):
        return refused(device, record.result, request)
    outcome = _OUTCOMES.get(record.outcome, moved)
    if number == errno.ETIMEDOUT:
        limit = "its time limit" if timeout_s is None else f"timeout_s={timeout_s:g}"
        return OperationTimeoutError(
            f"{what} did not end within {limit}: {outcome}; its memory stays busy "
            "until the device has answered"
        )
    error = device.refusal()
    if error is not None and number != errno.ECANCELED:
        return error
    if number == errno.ECANCELED:
        return OperationAbortedError(f"{what} was ended: {outcome}")
    if number == errno.EHOSTDOWN:  # by now it lives again
        return ControllerWedgedError(
            f"{what} was given up when the controller failed, which was reset since: "
            f"{outcome}"
        )
    return UGDSError(f"{what} failed: {os.strerror(number)}; {outcome}", errno=number)


def last_failure(
    channel: Channel, code: int, request: Request, timeout_s: float | None = None
) -> UGDSError:
    """Return the exception for an operation that failed inside its call."""
    record = last_record(channel, code)
    if record is None:
        return refused(channel.device, code, request)
    return ended(channel.device, record, request, timeout_s)


def last_record(channel: Channel, code: int) -> Record | None:
    """Return how an operation ended inside its call; None when nothing was sent."""
    last = ffi.new("struct ugds_completion *")
    lib.ugds_chan_last(channel.ptr, last)
    record = Record(last.token, last.result, last.status, last.done)
    # It is taken once. No operation has the token 0: then nothing was sent.
    return record if record.token and record.result == code else None
