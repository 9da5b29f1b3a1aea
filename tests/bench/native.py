"""The library's C calls by address, for loops in C around nothing but them."""

from __future__ import annotations

import ctypes

from aiougds import Namespace, Registration
from aiougds._ffi import address_of, ffi, lib
from bench.stage import at, checked, int64s


def function(name: str) -> ctypes.c_void_p:
    """Return the address of a call of ``ugds.h``."""
    pointer = ffi.addressof(lib, name)  # type: ignore[arg-type]
    return ctypes.c_void_p(address_of(pointer))


class Calls(ctypes.Structure):
    """``struct calls`` of floor.c."""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("submit", "harvest", "ready", "reap")
    ]

    def __init__(self) -> None:
        super().__init__(
            function("ugds_batch_submit_array"),
            function("ugds_batch_harvest_ok"),
            function("ugds_batch_ready"),
            function("ugds_reap"),
        )


class Raw:
    """A namespace and a registration as C sees them, through this loop's channel."""

    def __init__(self, space: Namespace, memory: Registration) -> None:
        device = space._device
        self.chan = device.channel().ptr
        self.space = space._ptr
        self.handle = memory.handle_on(device)

    @property
    def args(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]:
        """Channel, namespace and mapping for calls through ctypes."""
        return (
            ctypes.c_void_p(address_of(self.chan)),
            ctypes.c_void_p(address_of(self.space)),
            ctypes.c_uint64(self.handle),
        )


class Batches:
    """A C batch, driven by loops of the helper."""

    def __init__(
        self, helper: ctypes.CDLL, space: Namespace, memory: Registration, items: int
    ) -> None:
        self._helper = helper
        self._raw = Raw(space, memory)
        self._calls = Calls()
        self._items = items
        ret = ffi.new("struct ugds_batch **")
        checked(lib.ugds_batch_new(self._raw.chan, items, ret))
        self._batch = ret[0]

    def run(
        self, offsets: list[int], nbytes: int, count: int, rest_ns: int = 0
    ) -> list[int]:
        """Return the time spent in the C calls of each of ``count`` equal batches."""
        spent = int64s([0] * count)
        where = int64s(offsets)
        chan, space, handle = self._raw.args
        checked(
            self._helper.loop_batches(
                ctypes.byref(self._calls),
                chan,
                ctypes.c_void_p(address_of(self._batch)),
                space,
                handle,
                ctypes.c_uint64(nbytes),
                at(where),
                self._items,
                count,
                rest_ns,
                at(spent),
            )
        )
        return spent.tolist()

    def close(self) -> None:
        """Free the batch."""
        checked(lib.ugds_batch_free(self._batch))
