"""Cells: words of pinned memory that GPU kernels and the engine hand to each other."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import ref

from aiougds._buffer import gpu_of
from aiougds._errors import ArgumentTypeError, BusyError, RangeError
from aiougds._ffi import ffi, lib
from aiougds._flight import CANCELLED, DONE, FAILED
from aiougds._gpu.errors import NAMES, gpu_error
from aiougds._gpu.pointers import usable

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiougds._buffer import GPUDevice
    from aiougds._ffi import CData
    from aiougds._flight import Flight
    from aiougds._stream_op import StreamState

    _Place = tuple[CData, int]

CELL_BYTES: Final = 64  # a cache line each: neighbours do not disturb one another
BLOCK_BYTES: Final = 4096
_MOST: Final = (1 << 64) - 1


class _Pool:
    """Cells of one GPU. Its memory is kept until :meth:`trim`: freeing it may wait."""

    __slots__ = ("_blocks", "_device", "_free", "_lock", "_returned", "_vendor")

    def __init__(self, vendor: int, device: int) -> None:
        self._vendor = vendor
        self._device = device
        self._lock = threading.Lock()
        self._blocks: dict[int, CData] = {}  # by the device's address
        self._free: list[_Place] = []
        # Destructors only leave cells here: the lock may be held where they run.
        self._returned: deque[_Place] = deque()

    def take(self) -> _Place:
        """Return host pointer and device address of a cell."""
        with self._lock:
            self._collect()
            if not self._free:
                self._grow()
            return self._free.pop()

    def give(self, cell: _Place) -> None:
        """Take one back; from a destructor too."""
        self._returned.append(cell)

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())

    def _grow(self) -> None:
        host, dev, code = ffi.new("void **"), ffi.new("uint64_t *"), ffi.new("int *")
        failed = lib.ugds_gpu_host_alloc(
            self._vendor, self._device, BLOCK_BYTES, host, dev, code
        )
        if failed < 0:
            what = f"{BLOCK_BYTES} bytes of pinned memory for cells"
            raise gpu_error(self._vendor, code[0], what, -failed)
        base, start = ffi.cast("char *", host[0]), int(dev[0])
        self._blocks[start] = host[0]
        for at in range(0, BLOCK_BYTES, CELL_BYTES):
            self._free.append((base + at, start + at))

    def trim(self) -> None:
        """Give back the memory that no cell uses. It may wait for kernels."""
        code = ffi.new("int *")
        with self._lock:
            self._collect()
            for start, host in list(self._blocks.items()):
                mine = range(start, start + BLOCK_BYTES)
                others = [cell for cell in self._free if cell[1] not in mine]
                if len(self._free) - len(others) == BLOCK_BYTES // CELL_BYTES:
                    self._free = others
                    del self._blocks[start]
                    lib.ugds_gpu_host_free(self._vendor, self._device, host, code)


_pools: Final[dict[tuple[int, int], _Pool]] = {}


def trim_cells() -> None:
    """Give back pinned memory that no cell uses. Blocks: off the loop."""
    for pool in list(_pools.values()):
        pool.trim()


def forget_cells() -> None:
    """All pinned memory is gone, whoever had it."""
    _pools.clear()


class PinnedCell:
    """Pinned memory of a GPU runtime, one cell of it."""

    __slots__ = ("__weakref__", "_host", "_pool", "_taken", "device")

    _typestr: ClassVar[str]
    _words: ClassVar[int]

    device: str
    """The GPU whose runtime pinned it, as ``cuda:0``."""

    def __init__(self, device: GPUDevice) -> None:
        where = gpu_of(device)
        vendor, ordinal = usable(where.runtimes)[0], where.device or 0
        self.device = f"{NAMES[vendor]}:{ordinal}"
        self._pool = _pools.setdefault((vendor, ordinal), _Pool(vendor, ordinal))
        self._taken = self._pool.take()
        self._host = self._taken[0]
        ffi.memmove(self._host, bytes(CELL_BYTES), CELL_BYTES)

    @property
    def ptr(self) -> int:
        """Its address for kernels."""
        return self._taken[1]

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """It as an array of the GPU: ``torch.as_tensor(cell, device="cuda")``."""
        return {
            "version": 3,
            "shape": (self._words,),
            "typestr": self._typestr,
            "data": (self.ptr, False),
            "strides": None,
        }

    def __del__(self) -> None:
        taken = getattr(self, "_taken", None)
        if taken is not None:
            self._pool.give(taken)


class Cell(PinnedCell):
    """An offset or a length that a kernel decides: 64 bits of pinned memory.

    Give it as ``offset`` or ``nbytes`` of ``read_on`` and ``write_on``; what an earlier
    kernel of the stream has written there counts. Kernels write it at ``ptr``, or as
    an array of one int64 (``torch.as_tensor(cell, device="cuda")``); the host through
    ``value``. An operation keeps its cells alive until it is over, and they must keep
    their values until then.
    """

    __slots__ = ()

    _typestr = "<i8"
    _words = 1

    def __init__(self, value: int = 0, *, device: GPUDevice = "cuda:0") -> None:
        super().__init__(device)
        self.value = value

    @property
    def value(self) -> int:
        """What it holds now."""
        return int(ffi.cast("volatile uint64_t *", self._host)[0])

    @value.setter
    def value(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError(f"a cell holds an integer, not {value!r}")
        if not 0 <= value <= _MOST:
            raise RangeError(f"a cell holds 0 to 2**64 - 1, not {value}")
        ffi.cast("volatile uint64_t *", self._host)[0] = value

    def __repr__(self) -> str:
        return f"<Cell {self.value} of {self.device}>"


class StatusCell(PinnedCell):
    """How an operation ended, for the next kernel of its stream: pinned memory.

    Give it as ``status``. It is written before the stream passes the operation: at
    ``ptr`` an uint32 with 2 for done, 3 for cancelled and 4 for failed (0 before), an
    int32 with 0 or a negative errno, and an uint64 with the bytes moved; or as an array
    of four int32.

    One cell serves the operations of one stream at a time: each writes it as the stream
    passes it, and the kernels behind see it so. Giving it to another stream before
    that, or clearing it, is a BusyError. It need not be cleared between operations: as
    long as the last one has not written it, ``state`` is ``waiting`` here; a kernel
    that looks too early, of another stream, sees what the one before wrote.
    """

    __slots__ = ("_again", "_flight", "_lock")

    _typestr = "<i4"
    _words = 4

    _STATES: ClassVar[dict[int, StreamState]] = {
        DONE: "done",
        CANCELLED: "cancelled",
        FAILED: "failed",
    }

    def __init__(self, *, device: GPUDevice = "cuda:0") -> None:
        super().__init__(device)
        # The last operation that it serves, and whether one before has written it.
        self._flight: ref[Flight] | None = None
        self._again = False
        self._lock = threading.RLock()

    @contextmanager
    def serving(self, flight: Flight) -> Generator[None]:
        """Become an operation's that is enqueued inside; BusyError if it may not."""
        with self._lock:
            last = self._last()
            if last is not None and last.line is not flight.line:
                raise BusyError(
                    f"{self!r} serves an operation on {last.line.name}, which has not "
                    "passed it: await that first, or use a cell for each stream"
                )
            again = last is not None or bool(self._cell().state)
            try:
                yield
            finally:
                if flight.token:  # also of one that was refused halfway
                    self._again, self._flight = again, ref(flight)

    def _last(self) -> Flight | None:
        """Return the operation that will write it."""
        flight = None if self._flight is None else self._flight()
        return None if flight is None or flight.has_passed() else flight

    def _written(self) -> bool:
        return not self._again or self._last() is None

    def _cell(self) -> CData:
        return ffi.cast("struct ugds_stream_cell *", self._host)

    @property
    def state(self) -> StreamState:
        """``waiting`` until it was written; ``done``, ``cancelled`` or ``failed``."""
        if not self._written():
            return "waiting"
        return self._STATES.get(self._cell().state, "waiting")

    @property
    def errno(self) -> int:
        """0, or the errno that it failed with."""
        return -int(self._cell().error) if self._written() else 0

    @property
    def bytes_done(self) -> int:
        """Bytes that were moved."""
        return int(self._cell().nbytes) if self._written() else 0

    def clear(self) -> None:
        """Make it as new; BusyError while an operation may write it."""
        if self._last() is not None:
            raise BusyError(f"{self!r} serves an operation still: await that first")
        self._again = False
        ffi.memmove(self._host, bytes(CELL_BYTES), CELL_BYTES)

    def __repr__(self) -> str:
        return f"<StatusCell {self.state} of {self.device}>"
