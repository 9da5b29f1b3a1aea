"""What a chunk store fails with.

.. code-block:: text

    StoreError (UGDSError)
    ├── ChunkNotFoundError     (KeyError) no such key
    ├── ChunkCorruptError      its checksum or header is wrong; the chunk was dropped
    ├── ChunkTooLargeError     (ValueError) larger than the largest slot, or empty
    ├── ChunkPinnedError       (BusyError) pinned: not deleted
    ├── StoreFullError         no free slot, and nothing may be evicted
    ├── StoreFormatError       the devices hold no store, another version, or a part
    ├── OccupiedError          the device holds something else; nothing was written
    └── StoreBrokenError       (BrokenError) the journal cannot be written: reopen
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from aiougds._errors import (
    ArgumentError,
    ArgumentTypeError,
    BrokenError,
    BusyError,
    UGDSError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class StoreError(UGDSError):
    """Base of what a chunk store fails with by itself."""


class ChunkNotFoundError(StoreError, KeyError):
    """No chunk has that key."""

    default_errno = errno.ENOENT


class ChunkCorruptError(StoreError):
    """The bytes on the device are not those that were put; the chunk was dropped."""

    default_errno = errno.EBADMSG


class ChunkTooLargeError(StoreError, ArgumentError, ValueError):
    """The chunk is larger than the largest slot, or empty."""

    default_errno = errno.EFBIG


class ChunkPinnedError(StoreError, BusyError):
    """The chunk is pinned, so it was not deleted."""


class StoreFullError(StoreError):
    """All slots are in use, and nothing may be evicted."""

    default_errno = errno.ENOSPC


class StoreFormatError(StoreError):
    """The devices hold no store, one of another version, or not all of one."""

    default_errno = errno.EMEDIUMTYPE


class OccupiedError(StoreError):
    """The device holds something else, or may; nothing was written."""

    default_errno = errno.EEXIST


class StoreBrokenError(StoreError, BrokenError):
    """The journal cannot be written any more: close the store and open it again."""


def check_keys(keys: Sequence[object]) -> None:
    """Raise ArgumentTypeError for the first that is none."""
    if set(map(type, keys)) - {bytes}:  # the rule, at a tenth of the cost
        for key in keys:
            if type(key) is not bytes:
                raise ArgumentTypeError(f"a key is bytes, not {key!r}")


def told(results: list[T | UGDSError]) -> list[T | UGDSError]:
    """Return results with the exceptions among them without the frames they left.

    An exception that is returned would be in a cycle with the frame that caught it,
    and that frame knows the callers' buffers. Python 3.11 may crash where its collector
    finds a memoryview in a cycle.
    """
    if set(map(type, results)) <= {int, bool}:  # the rule, at a tenth of the cost
        return results
    for one in results:
        error: BaseException | None = one if isinstance(one, UGDSError) else None
        while error is not None and error.__traceback__ is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
    return results
