"""The one door to C: what the rest of the package may import of ``_native``.

Calls answer a count or a negative errno; :mod:`aiougds._errors` makes words of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aiougds import _interpreter as _interpreter  # refuses before C is loaded
from aiougds._native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer as Buffer

    from aiougds._native import CData as CData

__all__ = [
    "NEVER",
    "NULL",
    "OP_NAMES",
    "PENDING",
    "Record",
    "address_of",
    "ffi",
    "lib",
    "new_tuple",
    "records",
    "seconds_to_ns",
    "text",
    "words",
]

NULL: Final = ffi.NULL
PENDING: Final = lib.UGDS_PENDING
OP_NAMES: Final = {
    lib.UGDS_OP_FLUSH: "flush",
    lib.UGDS_OP_WRITE: "write",
    lib.UGDS_OP_READ: "read",
    lib.UGDS_OP_COMPARE: "compare",
    lib.UGDS_OP_WRITE_ZEROES: "write_zeroes",
    lib.UGDS_OP_DEALLOCATE: "deallocate",
    lib.UGDS_OP_VERIFY: "verify",
}
NEVER: Final = (1 << 63) - 1  # nanoseconds: later than anything
# Of any named tuple, in less than half the time of its own.
new_tuple: Final = cast(
    "Callable[..., Any]",
    # typed: typeshed does not say of what
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
)


class Record(NamedTuple):
    """How an operation ended: ``struct ugds_completion`` as Python integers."""

    token: int
    result: int
    status: int
    done: int

    @property
    def nvme(self) -> int:
        """The NVMe status field."""
        return self.status & 0xFFFF

    @property
    def outcome(self) -> int:
        """One of the ``UGDS_DONE`` .. ``UGDS_UNKNOWN`` values."""
        return (self.status >> 24) & 0xFF

    @property
    def dw0(self) -> int:
        """Command specific result of the completion queue entry."""
        return (self.status >> 32) & 0xFFFFFFFF


def text(field: CData) -> str:
    """Return a character array of C as text."""
    return ffi.string(field).decode("utf-8", "replace").strip()


def address_of(pointer: CData) -> int:
    """Return where a pointer points."""
    return int(ffi.cast("uintptr_t", pointer))


def records(capacity: int) -> tuple[CData, memoryview]:
    """Return an array of completions, and the same memory as signed 64-bit words."""
    array = ffi.new("struct ugds_completion[]", capacity)
    return array, memoryview(ffi.buffer(array)).cast("B").cast("q")


def words(buffer: Buffer) -> CData:
    """Return int64 words of a buffer as C sees them, without a copy."""
    return ffi.from_buffer("int64_t[]", buffer)


def seconds_to_ns(seconds: float) -> int:
    """Return nanoseconds; at least one, because zero means "none" to C."""
    return max(1, int(min(seconds * 1e9, float(NEVER))))
