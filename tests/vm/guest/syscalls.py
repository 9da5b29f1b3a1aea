"""System calls of one thread, counted by the kernel: the tracepoint raw_syscalls."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from functools import cache
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
PERF_TYPE_TRACEPOINT = 2
SYS_PERF_EVENT_OPEN = 298  # x86-64
ATTRIBUTES = struct.Struct("<IIQ112x")


class Syscalls:
    """A counter of this thread's system calls, those that read it left out."""

    __slots__ = ("_cost", "_fd", "_thread")

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not (TRACING / "events").exists() and libc.mount(
            b"tracefs", str(TRACING).encode(), b"tracefs", 0, None
        ):
            raise OSError(ctypes.get_errno(), "tracefs cannot be mounted")
        event = int((TRACING / "events/raw_syscalls/sys_enter/id").read_text())
        form = ATTRIBUTES.pack(PERF_TYPE_TRACEPOINT, ATTRIBUTES.size, event)
        attributes = ctypes.create_string_buffer(form)
        self._fd: int = libc.syscall(SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "perf_event_open")
        self._thread = threading.get_ident()
        self._cost = 0
        first = self._read()
        self._cost = self._read() - first

    def _read(self) -> int:
        assert threading.get_ident() == self._thread
        return int.from_bytes(os.read(self._fd, 8), "little")

    def mark(self) -> int:
        """Return where the counter stands, for :meth:`since`."""
        return self._read()

    def since(self, mark: int) -> int:
        """Return the system calls since a mark."""
        return self._read() - mark - self._cost


@cache
def syscalls() -> Syscalls:
    """Return the counter of the thread that asks first, which is never closed.

    Each one that is opened and closed makes the kernel patch its own text, and under
    software emulation the other processor may trip over that.
    """
    return Syscalls()
