"""What a test asks of the software GPU besides what it asks of a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple


class Kind(IntEnum):
    """Kinds of memory: ``enum soft_kind``."""

    DEVICE = 0
    POOLED = 1
    MAPPED = 2
    MANAGED = 3
    HOST = 4
    REGISTERED = 5
    SIGNAL = 6


class Operation(IntEnum):
    """Kinds of operations: ``enum soft_op_kind``."""

    COPY = 0
    WAIT = 1
    WRITE = 2
    HOST_FUNC = 3
    RECORD = 4
    JOIN = 5
    FREE = 6
    FILL = 7
    KERNEL = 8


class Missing(IntFlag):
    """What device and driver can lack."""

    MEMOPS = 1
    DMABUF = 2
    FLUSH = 4
    ORDERED_WRITES = 8
    FLUSH_CALL = 16


class Counters(NamedTuple):
    """``struct soft_counters``."""

    copies: int
    copied_bytes: int
    synchronises: int
    waits: int
    writes: int
    host_funcs: int
    events_recorded: int
    exports: int
    most_waiting: int


class Live(NamedTuple):
    """What exists and has to be given back."""

    device: int
    pinned: int
    signals: int
    streams: int
    events: int
    handles: int


class SoftGPU:
    """One vendor's library. Streams, addresses and codes are plain integers."""

    def __init__(self, vendor: str, path: Path) -> None:
        self.vendor = vendor
        self.path = path
        self.lost = False  # a device: nothing on it can be given back
        self.dll = ctypes.CDLL(str(path))
        u32, u64, text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
        number = ctypes.c_int
        for name, result, arguments in (
            ("fail", None, (text, u32, u32, number, number)),
            ("fail_operation", None, (u32, u32, number)),
            ("calls", u64, (text,)),
            ("allocations", u64, (u32,)),
            ("handles", u64, ()),
            ("streams", u64, ()),
            ("events", u64, ()),
            ("in_flight", u64, ()),
            ("memory", None, (number, u64)),
            ("pinned_limit", None, (u64,)),
            ("copy_time", None, (u64, u64)),
            ("hold_copies", None, (number, u64)),
            ("kernel", number, (u64, u64)),
            ("end_kernels", None, (u64,)),
            ("contexts", u64, (number,)),
            ("used", u64, (number,)),
            ("peek", number, (u64, ctypes.c_void_p, u64, number)),
        ):
            function = getattr(self.dll, f"soft_gpu_{name}")
            function.restype, function.argtypes = result, arguments

    def __repr__(self) -> str:
        return f"<software {self.vendor} GPU>"

    def reset(self) -> None:
        """Start anew, as in a process that has just begun."""
        self.dll.soft_gpu_reset()
        self.lost = False

    # ---- what happened ----

    def calls(self, function: str = "") -> int:
        """How often a function (all of them) was called; versions count as one."""
        return int(self.dll.soft_gpu_calls(function.encode()))

    def counters(self) -> Counters:
        """Return what the operations amounted to."""
        values = (ctypes.c_uint64 * len(Counters._fields))()
        self.dll.soft_gpu_counters(values)
        return Counters(*values)

    def forget(self) -> None:
        """Set calls and counters to zero."""
        self.dll.soft_gpu_counters_clear()
        self.dll.soft_gpu_calls_clear()

    def live(self) -> Live:
        """Count what exists."""

        def allocations(*kinds: Kind) -> int:
            return int(self.dll.soft_gpu_allocations(sum(1 << kind for kind in kinds)))

        return Live(
            allocations(Kind.DEVICE, Kind.POOLED, Kind.MAPPED, Kind.MANAGED),
            allocations(Kind.HOST, Kind.REGISTERED),
            allocations(Kind.SIGNAL),
            self.dll.soft_gpu_streams(),
            self.dll.soft_gpu_events(),
            self.dll.soft_gpu_handles(),
        )

    def in_flight(self) -> int:
        """How many operations are enqueued and not over."""
        return int(self.dll.soft_gpu_in_flight())

    def contexts(self, device: int) -> int:
        """How many contexts were made on a device."""
        return int(self.dll.soft_gpu_contexts(device))

    def used(self, device: int = 0) -> int:
        """How many bytes of a device are allocated."""
        return int(self.dll.soft_gpu_used(device))

    # ---- what shall be ----

    def fail(
        self,
        function: str,
        code: int,
        *,
        after: int = 0,
        count: int = 1,
        sticky: bool = False,
    ) -> None:
        """Let ``count`` calls (0: all) of a function answer a code, after some."""
        self.lost |= sticky
        self.dll.soft_gpu_fail(function.encode(), after, count, code, sticky)

    def fail_operation(self, kind: Operation, code: int, *, after: int = 0) -> None:
        """Let an operation fail as it is executed: the device is lost with it."""
        self.lost = True
        self.dll.soft_gpu_fail_operation(kind, after, code)

    def lose(self, device: int = 0, code: int = 700) -> None:
        """Lose a device: every call answers the code from now on."""
        self.lost = True
        self.dll.soft_gpu_lose(device, code)

    def devices(self, count: int) -> None:
        """Say how many devices there are (2 unless said otherwise)."""
        self.dll.soft_gpu_devices(count)

    def connections(self, count: int) -> None:
        """Say how many connections a device has (8); with nothing in flight."""
        assert self.dll.soft_gpu_connections(count) == 0

    def memory(self, nbytes: int, device: int = 0) -> None:
        """Say how much memory a device has (1 GiB)."""
        self.dll.soft_gpu_memory(device, nbytes)

    def pinned_limit(self, nbytes: int) -> None:
        """Say how much host memory can be pinned (1 GiB)."""
        self.dll.soft_gpu_pinned_limit(nbytes)

    def missing(self, what: Missing) -> None:
        """Say what device and driver lack."""
        self.dll.soft_gpu_missing(what)

    def copy_time(self, seconds: float = 0.0, *, seconds_per_mib: float = 0.0) -> None:
        """Say how long copies take."""
        self.dll.soft_gpu_copy_time(int(seconds * 1e9), int(seconds_per_mib * 1e9))

    @contextlib.contextmanager
    def copies_held(self) -> Iterator[None]:
        """No copy starts inside, but those that :meth:`tick` lets go."""
        self.dll.soft_gpu_hold_copies(1, 0)
        try:
            yield
        finally:
            self.dll.soft_gpu_hold_copies(0, 0)

    def tick(self, copies: int = 1) -> None:
        """Let this many of the held copies run."""
        self.dll.soft_gpu_hold_copies(1, copies)

    def kernel(self, stream: int = 0, *, seconds: float = 0.0) -> None:
        """Enqueue a kernel; without a time it runs until :meth:`end_kernels`."""
        code = self.dll.soft_gpu_kernel(stream, int(seconds * 1e9))
        assert code == 0, f"the kernel was refused: {code}"

    def end_kernels(self, count: int = 1) -> None:
        """Let kernels without a time end."""
        self.dll.soft_gpu_end_kernels(count)

    # ---- memory, behind every stream's back ----

    def peek(self, address: int, nbytes: int) -> bytes:
        """Return what the GPU sees at an address."""
        to = ctypes.create_string_buffer(nbytes)
        assert self.dll.soft_gpu_peek(address, to, nbytes, 0) == 0, hex(address)
        return to.raw

    def poke(self, address: int, data: bytes) -> None:
        """Change what the GPU sees at an address."""
        assert self.dll.soft_gpu_peek(address, data, len(data), 1) == 0, hex(address)

    def leaks(self) -> list[str]:
        """Return what was not given back, once garbage has been collected."""
        gc.collect()
        return [
            f"{count} {name}" for name, count in self.live()._asdict().items() if count
        ]
