"""Answers of a controller as exceptions: how it came up, and NVMe status codes."""

from __future__ import annotations

import errno as _errno
from typing import Final

from aiougds._errors import (
    AddressInUseError,
    AddressIsDirectoryError,
    AddressNotFoundError,
    AddressPermissionError,
    CapabilityError,
    CompareError,
    MediaError,
    NVMeError,
    OpenError,
    PathError,
    UGDSError,
)
from aiougds._status import status_name

_OPEN_ERRORS: Final[dict[int, type[OpenError]]] = {
    _errno.ENOENT: AddressNotFoundError,
    _errno.EACCES: AddressPermissionError,
    _errno.EPERM: AddressPermissionError,
    _errno.EROFS: AddressPermissionError,
    _errno.EISDIR: AddressIsDirectoryError,
    _errno.EAGAIN: AddressInUseError,
    _errno.EBUSY: AddressInUseError,
}


def open_error(code: int, message: str, status: int = 0) -> UGDSError:
    """Return what bringing a controller up failed with."""
    number = -code
    if number == _errno.EOPNOTSUPP:
        return CapabilityError(message)
    if status:
        message = f"{message} ({status_name(status)})"
    return _OPEN_ERRORS.get(number, OpenError)(message, errno=number)


def nvme_error(
    status: int,
    *,
    errno: int,
    command: str,
    offset: int | None,
    bytes_done: int,
    retry_after_s: float = 0.0,
) -> NVMeError:
    """Return the exception for a status that the controller gave."""
    sct, sc = (status >> 8) & 0x7, status & 0xFF
    cls: type[NVMeError] = NVMeError
    if sct == 2:
        cls = CompareError if sc == 0x85 else MediaError
    elif sct == 3:
        cls = PathError
    where = "" if offset is None else f" at byte {offset}"
    done = f" after {bytes_done} bytes" if bytes_done else ""
    retry = ""
    if status & 0x4000:
        retry = "; the controller says: do not retry"
    elif retry_after_s:
        retry = f"; the controller says: retry after {retry_after_s:g} s"
    return cls(
        f"{command}{where} failed{done}: {status_name(status)} "
        f"(status code type {sct:#x}, status code {sc:#04x}){retry}",
        errno=errno,
        status=status,
        command=command,
        offset=offset,
        bytes_done=bytes_done,
        retry_after_s=retry_after_s,
    )
