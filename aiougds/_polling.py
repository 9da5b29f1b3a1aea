"""Polling executors: native threads that poll for one controller or several."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from aiougds._errors import BusyError, ClosedError, OptionError, UGDSError
from aiougds._ffi import NULL, ffi, lib

if TYPE_CHECKING:
    from types import TracebackType

    from aiougds._ffi import CData

MOST_THREADS: Final = 64


@dataclass(frozen=True, slots=True)
class PollingThread:
    """What a thread of an executor does."""

    thread_id: int
    """Of the kernel; 0: it has not run yet."""
    cpu: int | None
    """The processor it is kept on."""
    controllers: int
    """Controllers that it polls. Each begins when it first has something to poll."""
    passes: int
    """Looks at all of them."""
    found: int
    """Of these, with something to do."""
    sleeps: int
    """Times that it went to sleep, for lack of work."""
    cpu_s: float
    """Processor time it has taken."""
    alive_s: float
    """Time since it began."""

    @property
    def queue_pairs(self) -> int:
        """Queue pairs that it polls: the last one of each controller."""
        return self.controllers

    @property
    def busy(self) -> float:
        """Share of a processor that it has taken since it began, 0 to 1."""
        return min(1.0, self.cpu_s / self.alive_s) if self.alive_s else 0.0


def thread_of(native: CData) -> PollingThread:
    """Return what C says of a thread."""
    return PollingThread(
        thread_id=native.tid,
        cpu=None if native.cpu < 0 else native.cpu,
        controllers=native.controllers,
        passes=native.passes,
        found=native.found,
        sleeps=native.sleeps,
        cpu_s=_cpu_s(native.tid),
        alive_s=native.alive_ns / 1e9,
    )


def polling_for(ctrl: CData) -> tuple[PollingThread, ...]:
    """Return the thread that polls for a controller, if there is one yet."""
    native = ffi.new("struct ugds_exec_thread *")
    there = lib.ugds_ctrl_executor(ctrl, native) > 0
    return (thread_of(native),) if there else ()


class PollingExecutor:
    """Native threads with ``mode="poll"``, shared by the controllers opened with it.

    ``aiougds.open(..., executor=executor)``: what its controllers poll (operations of
    mode "poll", and loops that have no queue pair of their own) is looked after by
    these threads instead of one thread for each controller. With ``cpus`` the threads
    are kept on those processors, by turns. A controller belongs to the thread with the
    fewest.

    A thread spins while commands are at the device, for at most 1 ms without one coming
    back, or 50 us when there are none; then it sleeps until one is handed over or an
    interrupt comes. Threads and all, it may be used from any loop and thread. Leaving a
    ``with`` closes it.
    """

    __slots__ = ("__weakref__", "_pid", "_ptr")

    def __init__(self, threads: int = 1, *, cpus: Iterable[int] | None = None) -> None:
        self._ptr: CData | None = None
        if isinstance(threads, bool) or not isinstance(threads, int):
            raise OptionError(f"threads={threads!r}: an integer is needed")
        if not 1 <= threads <= MOST_THREADS:
            raise OptionError(f"threads={threads} is outside 1 .. {MOST_THREADS}")
        where = [] if cpus is None else list(cpus)
        allowed = os.sched_getaffinity(0)
        for cpu in where:
            if cpu not in allowed:
                raise OptionError(
                    f"cpus: {cpu!r} is no processor that this process may use; there "
                    f"are {', '.join(map(str, sorted(allowed)))}"
                )
        if cpus is not None and not where:
            raise OptionError("cpus is empty; leave it out for any processor")
        ret = ffi.new("struct ugds_exec **")
        array = ffi.new("int32_t[]", where) if where else NULL
        code = lib.ugds_exec_new(threads, array, len(where), ret)
        if code < 0:
            raise UGDSError(
                f"{threads} polling threads cannot be started: {os.strerror(-code)}",
                errno=-code,
            )
        self._pid = os.getpid()
        self._ptr = ret[0]

    def _checked(self) -> CData:
        """Return its C object, or raise when it is closed or the parent's."""
        if self._ptr is None:
            raise ClosedError("the polling executor is closed; make another")
        if self._pid != os.getpid():
            raise ClosedError(
                "the polling executor's threads are the parent's; make another in the "
                "child"
            )
        return self._ptr

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._ptr is None

    @property
    def threads(self) -> tuple[PollingThread, ...]:
        """Its threads, as they are now."""
        ptr = self._checked()
        array = ffi.new("struct ugds_exec_thread[]", MOST_THREADS)
        count = lib.ugds_exec_threads(ptr, array, MOST_THREADS)
        return tuple(thread_of(array[i]) for i in range(count))

    def close(self) -> None:
        """End its threads; BusyError while a controller is open that has it."""
        if self._ptr is None:
            return
        if lib.ugds_exec_free(self._ptr) == -errno.EBUSY:
            raise BusyError(
                "the polling executor is in use; close the controllers that were "
                "opened with it first",
                errno=errno.EBUSY,
            )
        self._ptr = None

    def __enter__(self) -> Self:
        self._checked()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A controller keeps it: nothing is polled any more.
        if self._ptr is not None:
            lib.ugds_exec_free(self._ptr)

    def __repr__(self) -> str:
        if self._ptr is None:
            return "<PollingExecutor closed>"
        if self._pid != os.getpid():
            return "<PollingExecutor of the parent process>"
        threads = self.threads
        used = sum(one.controllers for one in threads)
        return f"<PollingExecutor threads={len(threads)} controllers={used}>"


def _cpu_s(thread_id: int) -> float:
    """Return the processor time of one of our threads; 0.0 when it is not known."""
    if not thread_id:
        return 0.0
    # The kernel's number of a thread's clock.
    try:
        return time.clock_gettime((~thread_id << 3) | 6)
    except OSError:
        return 0.0
