"""Polling executors: native threads that poll for one controller or several."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from aiougds._errors import BusyError, ClosedError, OptionError, UGDSError
from aiougds._ffi import NULL, ffi, lib
from aiougds._stats import PollingThread, thread_of

if TYPE_CHECKING:
    from types import TracebackType

    from aiougds._ffi import CData

MOST_THREADS: Final = 64


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
