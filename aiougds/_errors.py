"""Every exception of the package.

.. code-block:: text

    UGDSError (OSError: has errno)
    ├── ClosedError                    you closed it
    │   └── ForkedError                a fork's child holds no device
    ├── BrokenError                    the world broke it; reset() may repair it
    │   ├── ControllerWedgedError
    │   │   └── MemoryRevokedError     registered memory was taken away by its owner
    │   ├── DeviceRemovedError
    │   └── NamespaceGoneError         detached, deleted or formatted anew
    ├── BusyError                      it is in use; nothing changed
    │   ├── ControllerBusyError
    │   ├── RegistrationBusyError
    │   └── RangeBusyError             a timed-out command may still touch it
    ├── ArgumentError                  refused before anything was sent
    │   ├── AlignmentError             (ValueError)
    │   ├── RangeError                 (ValueError)
    │   ├── ArgumentTypeError          (TypeError)
    │   │   └── MemoryTypeError        the object has no memory
    │   ├── MemoryLayoutError          (ValueError)
    │   │   ├── MemoryFreedError       no GPU runtime knows the pointer any more
    │   │   └── WrongGPUError          it lies on another GPU than was said
    │   ├── NotMappedError             (ValueError)
    │   ├── ReadOnlyError              (PermissionError)
    │   ├── AddressError               (ValueError)
    │   └── OptionError                (ValueError)
    ├── CapabilityError                this device, transport or version lacks it
    │   ├── GPUUnavailableError        no GPU, driver or Python package for it
    │   └── GraphCaptureError          the stream is capturing a graph
    ├── MemoryLimitError               no more memory can be pinned
    ├── GPUError                       a GPU runtime answered with a failure
    │   ├── GPUMemoryError             (MemoryError) the GPU has no room
    │   └── GPUContextError            its context, device or stream is lost
    ├── WrongLoopError                 (RuntimeError)
    ├── OpenError                      the controller could not be brought up
    │   ├── AddressNotFoundError       (FileNotFoundError)
    │   ├── AddressPermissionError     (PermissionError)
    │   ├── AddressIsDirectoryError    (IsADirectoryError)
    │   └── AddressInUseError          (BlockingIOError)
    ├── OperationTimeoutError          (TimeoutError)
    ├── OperationWithdrawnError        cancel() was before its stream came to it
    ├── OperationAbortedError          ended by a reset or by the device
    └── NVMeError                      the controller answered with a failure
        ├── MediaError
        ├── PathError
        └── CompareError

    BatchError (ExceptionGroup)        some items failed; ``results`` has all

Closed is not broken is not busy. A refusal says which value, which limit, and what
to do about it. :mod:`aiougds._explain` is where the status codes of NVMe become
exceptions, and :mod:`aiougds._failure` where errnos of C do.
"""

from __future__ import annotations

import errno as _errno
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AddressError",
    "AddressInUseError",
    "AddressIsDirectoryError",
    "AddressNotFoundError",
    "AddressPermissionError",
    "AlignmentError",
    "ArgumentError",
    "ArgumentTypeError",
    "BatchError",
    "BrokenError",
    "BusyError",
    "CapabilityError",
    "ClosedError",
    "CompareError",
    "ControllerBusyError",
    "ControllerWedgedError",
    "DeviceRemovedError",
    "ForkedError",
    "GPUContextError",
    "GPUError",
    "GPUMemoryError",
    "GPUUnavailableError",
    "GraphCaptureError",
    "MediaError",
    "MemoryFreedError",
    "MemoryLayoutError",
    "MemoryLimitError",
    "MemoryRevokedError",
    "MemoryTypeError",
    "NVMeError",
    "NamespaceGoneError",
    "NotMappedError",
    "OpenError",
    "OperationAbortedError",
    "OperationTimeoutError",
    "OperationWithdrawnError",
    "OptionError",
    "PathError",
    "RangeBusyError",
    "RangeError",
    "ReadOnlyError",
    "RegistrationBusyError",
    "UGDSError",
    "WrongGPUError",
    "WrongLoopError",
]


def _rebuild(cls: type[UGDSError], number: int, message: str, state: object) -> object:
    error = cls.__new__(cls)
    OSError.__init__(error, number, message)
    if isinstance(state, dict):
        error.__dict__.update(cast("dict[str, object]", state))
    return error


class UGDSError(OSError):
    """Base of all errors; ``errno`` is set, ``str()`` is one sentence."""

    default_errno: int = _errno.EIO
    """``errno`` where the failure has none of its own."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(self.default_errno if errno is None else errno, message)

    def __str__(self) -> str:
        return str(self.args[1])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], self.args[1], self.__dict__.copy())


class ClosedError(UGDSError):
    """The object was closed by this program. Not raised for what the device did."""

    default_errno = _errno.ESHUTDOWN


class ForkedError(ClosedError):
    """The object belongs to the parent of this process: open your own."""


class BrokenError(UGDSError):
    """The device or its path failed; operations are refused until a reset."""

    default_errno = _errno.EHOSTDOWN


class ControllerWedgedError(BrokenError):
    """A command never came back, not even on Abort. Memory is quarantined."""


class MemoryRevokedError(ControllerWedgedError):
    """Registered memory was taken away by its owner: freed, or moved.

    The device was cut off before it went, so every operation ends with this error.
    After ``await controller.reset()`` the controller works again; the registration of
    that memory does not, and is only to be closed.
    """

    default_errno = _errno.EIO


class DeviceRemovedError(BrokenError):
    """The device is gone. There is nothing to reset."""

    default_errno = _errno.ENODEV


class NamespaceGoneError(BrokenError):
    """The namespace was detached, deleted or formatted anew. The controller lives."""

    default_errno = _errno.ENXIO


class BusyError(UGDSError):
    """In use: nothing was changed, try again later."""

    default_errno = _errno.EBUSY


class ControllerBusyError(BusyError):
    """Operations are in flight or memory is quarantined. It stays usable."""


class RegistrationBusyError(BusyError):
    """The device may still touch the memory. It stays registered."""


class RangeBusyError(BusyError):
    """A command that timed out or was given up still holds these bytes."""


class ArgumentError(UGDSError):
    """Refused before anything was sent."""

    default_errno = _errno.EINVAL


class AlignmentError(ArgumentError, ValueError):
    """An offset, length or address is not a multiple of what it has to be."""


class RangeError(ArgumentError, ValueError):
    """Past the end of the namespace, region or memory; or negative."""

    default_errno = _errno.ERANGE


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of a type that cannot be used."""


class MemoryTypeError(ArgumentTypeError):
    """The object has no memory that can be used."""


class MemoryLayoutError(ArgumentError, ValueError):
    """The memory is there, but not contiguous, not on the host, or not registered."""


class MemoryFreedError(MemoryLayoutError):
    """The memory was freed: no GPU runtime knows its pointer, or it is another's."""

    default_errno = _errno.EFAULT


class WrongGPUError(MemoryLayoutError):
    """The object names another GPU than the one that its memory lies on."""

    default_errno = _errno.ENODEV


class NotMappedError(ArgumentError, ValueError):
    """The registration has no mapping for this controller: ``await reg.map(...)``."""

    default_errno = _errno.ENXIO


class ReadOnlyError(ArgumentError, PermissionError):
    """The namespace, region or memory is read-only."""

    default_errno = _errno.EROFS


class AddressError(ArgumentError, ValueError):
    """The address is malformed or names an unknown scheme or option."""


class OptionError(ArgumentError, ValueError):
    """An option of ``open`` has a value that cannot be."""


class CapabilityError(UGDSError):
    """This device, transport or version of the package does not offer it."""

    default_errno = _errno.EOPNOTSUPP


class GPUUnavailableError(CapabilityError):
    """No GPU can be used: the sentence says what is missing, and what to install."""


class GraphCaptureError(CapabilityError):
    """The stream is capturing a graph, of which a transfer cannot be part.

    Queue it before the capture begins, or after it has ended. Nothing was queued.
    """

    default_errno = _errno.EPERM


class MemoryLimitError(UGDSError):
    """A limit of pinned memory: RLIMIT_MEMLOCK, or one of the kernel helper's."""

    default_errno = _errno.ENOMEM


class GPUError(UGDSError):
    """A GPU runtime answered with a failure, which has its name in the sentence.

    ``runtime`` is ``cuda`` or ``hip``, ``code`` its own number and ``name`` its name,
    such as ``CUDA_ERROR_INVALID_VALUE``. The controller works on for host memory.
    """

    def __init__(
        self,
        message: str,
        *,
        errno: int | None = None,
        runtime: str = "",
        code: int = 0,
        name: str = "",
    ) -> None:
        super().__init__(message, errno=errno)
        self.runtime = runtime
        self.code = code
        self.name = name


class GPUMemoryError(GPUError, MemoryError):
    """The GPU has no room for it."""

    default_errno = _errno.ENOMEM


class GPUContextError(GPUError):
    """A context, device or stream is lost: destroyed, reset, or failed for good.

    After a *sticky* failure (an illegal access of a kernel, say) every call of the
    runtime fails in this process; memory of that GPU is lost with it.
    """

    default_errno = _errno.ENODEV


class WrongLoopError(UGDSError, RuntimeError):
    """Used on another event loop than the one it belongs to, or on none."""

    default_errno = _errno.EINVAL


class OpenError(UGDSError):
    """The controller could not be brought up; the sentence says at which step."""


class AddressNotFoundError(OpenError, FileNotFoundError):
    """Nothing is at the address."""

    default_errno = _errno.ENOENT


class AddressPermissionError(OpenError, PermissionError):
    """This user may not open it."""

    default_errno = _errno.EACCES


class AddressIsDirectoryError(OpenError, IsADirectoryError):
    """The path names a directory."""

    default_errno = _errno.EISDIR


class AddressInUseError(OpenError, BlockingIOError):
    """Somebody else holds it; the sentence names the holder where it is known."""

    default_errno = _errno.EAGAIN


class OperationTimeoutError(UGDSError, TimeoutError):
    """``timeout_s`` ran out. The controller stays healthy; the bytes stay busy.

    Until the device has answered, that is. Leaving the ``async with`` of their memory
    or controller before raises its Busy error, with this one as context.
    """

    default_errno = _errno.ETIMEDOUT


class OperationWithdrawnError(UGDSError):
    """``operation.cancel()`` withdrew it before its stream came to it.

    Nothing was sent. That is no cancellation of whoever awaits the operation.
    """

    default_errno = _errno.ECANCELED


class OperationAbortedError(UGDSError):
    """Ended by a reset, an Abort or a close. Whether data moved is not known."""

    default_errno = _errno.ECANCELED


class NVMeError(UGDSError):
    """The controller completed a command with a failure (NVMe base: status field).

    ``sct`` and ``sc`` are status code type and status code, ``dnr`` is "do not
    retry", ``more`` says that the error log has more to tell, ``crd`` chooses the
    delay before a retry: ``retry_after_s`` seconds, as far as the controller named
    one. ``bytes_done`` is what was moved before the failure. With ``retries`` given
    to ``open``, it is the failure of the last try.
    """

    def __init__(
        self,
        message: str,
        *,
        errno: int | None = None,
        status: int = 0,
        command: str = "",
        offset: int | None = None,
        bytes_done: int = 0,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message, errno=errno)
        self.status = status
        self.sct = (status >> 8) & 0x7
        self.sc = status & 0xFF
        self.dnr = bool(status & 0x4000)
        self.more = bool(status & 0x2000)
        self.crd = (status >> 11) & 0x3
        self.retry_after_s = retry_after_s
        self.command = command
        self.offset = offset
        self.bytes_done = bytes_done


class MediaError(NVMeError):
    """The medium could not be read or written (status code type 2)."""


class PathError(NVMeError):
    """The way to the medium failed, not the medium (status code type 3)."""


class CompareError(NVMeError):
    """What is stored differs from the memory that it was compared with."""


class BatchError(ExceptionGroup[UGDSError]):
    """Items of a batch failed.

    ``results`` has one entry for each item, in the order they were given: the bytes
    moved, or its exception. ``exceptions`` has just the failures.
    """

    results: tuple[int | UGDSError, ...]

    def __new__(
        cls,
        message: str,
        exceptions: Sequence[UGDSError],
        results: Sequence[int | UGDSError] = (),
    ) -> Self:
        return super().__new__(cls, message, exceptions)

    def __init__(
        self,
        message: str,
        exceptions: Sequence[UGDSError],
        results: Sequence[int | UGDSError] = (),
    ) -> None:
        super().__init__(message, exceptions)
        self.results = tuple(results)

    # typed: it takes only what this group may hold
    def derive(self, excs: Sequence[UGDSError], /) -> BatchError:  # type: ignore[override]
        return BatchError(self.message, excs, self.results)
