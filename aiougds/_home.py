"""What a place to wait in has to offer: an event loop, a trio run or a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from aiougds._ffi import Record, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiougds._ffi import CData

T = TypeVar("T")
UNKNOWN: Final = lib.UGDS_UNKNOWN
MARK_FUTURE: Final = lib.UGDS_MARK_FUTURE
MARK_RESUMED: Final = lib.UGDS_MARK_RESUMED


class Signal(Protocol):
    """Wakes one waiter; :meth:`set` may be called from any thread."""

    def set(self) -> None: ...

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for :meth:`set`, clear it, and say whether it came in time."""
        ...


class Resident(Protocol):
    """What lives on a home, and ends with it."""

    def follow(self) -> None: ...
    def reap_if_free(self) -> None: ...
    def retire(self) -> None: ...


class Pump(Protocol):
    """What a thread without a loop has to turn itself while it waits."""

    def turn(self, timeout_s: float | None) -> None: ...


class Line(Resident, Protocol):
    """What a home needs to know of a channel."""

    waiters: dict[int, tuple[object, object]]
    batches: dict[int, CData]
    targets: dict[int, int]
    thread: int

    def cancel(self, token: int) -> None: ...
    def reached(self, token: int) -> bool: ...
    def unclaimed(self, status: int) -> None: ...
    def reap(self) -> None: ...
    def block(self, timeout_ns: int = 0) -> None: ...
    def strand(self, keep: object) -> None: ...
    def describe(self, token: int) -> str: ...


class Errand(Generic[T]):
    """Work for a thread, whose result the thread itself undoes once nobody waits."""

    __slots__ = ("_done", "_left", "_lock", "_undo", "_work")

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._work = work
        self._undo = undo
        self._lock = threading.Lock()
        self._done = self._left = False

    def run(self) -> T | None:
        """Do the work; None when it was left meanwhile."""
        try:
            result = self._work()
        except BaseException:
            with self._lock:
                self._done = True
                if self._left:  # nobody is there to hear of it
                    return None
            raise
        with self._lock:
            self._done = True
            if not self._left:
                return result
        self._undo(result)
        return None

    def leave(self) -> bool:
        """Wait no longer; False: it is done, and how it ended is the caller's."""
        with self._lock:
            self._left = not self._done
            return self._left


class Home:
    """One event loop, trio run or thread, and the channels that live on it."""

    __slots__ = ("__weakref__", "channels", "running", "thread")

    def __init__(self) -> None:
        # For the fast paths: the thread of an event loop (0: this home has none), and
        # whether the loop runs. Cheaper than asking for the running loop.
        self.thread = 0
        self.running: Callable[[], bool] = bool
        self.channels: dict[int, Resident] = {}

    async def wait(self, line: Line, token: int, keep: object) -> Record:
        """Return the completion of an operation; ``keep`` lives until it is there."""
        raise NotImplementedError

    async def told(self, line: Line, token: int, timeout_s: float | None) -> None:
        """Wait for a batch's notice, a deadline or a cancellation, whichever is first.

        The operations go on in any case.
        """
        raise NotImplementedError

    async def park(
        self, parked: list[object], pump: Pump, timeout_s: float | None
    ) -> None:
        """Wait in ``parked`` for :meth:`wake`, a deadline or a cancellation.

        A thread without a loop comes back after each turn of ``pump``: look again.
        """
        raise NotImplementedError

    def wake(self, parked: list[object]) -> None:
        """Wake all that wait there; in this home's own thread."""

    def dispatch(self, line: Line, words: Sequence[int]) -> None:
        """Hand completions to their waiters."""
        pop = line.waiters.pop
        it = iter(words)
        targets = line.targets
        for record in map(Record, it, it, it, it):
            if record.token in targets and not line.reached(record.token):
                continue
            entry = line.waiters.get(record.token)
            if entry is None:
                self.no_waiter(line, record)
            else:
                if record.result < 0 and record.outcome == UNKNOWN:
                    line.strand(entry[1])
                # In this order: a signal's handler may raise in between, and what was
                # not resolved has to be found again.
                self.resolve(entry[0], record)
                pop(record.token, None)

    def dispatch_woken(self, line: Line, words: Sequence[int]) -> None:
        """As :meth:`dispatch`, in a callback of the loop's own."""
        self.dispatch(line, words)

    def dispatch_traced(
        self, line: Line, words: list[int], mark: Callable[[int, int], None]
    ) -> None:
        """Hand them over one by one, and note it."""
        for i in range(0, len(words), 4):
            self.dispatch(line, words[i : i + 4])
            mark(words[i], MARK_FUTURE)

    def no_waiter(self, line: Line, record: Record) -> None:
        """Nobody waits for a completion: count it."""
        line.unclaimed(record.status)

    def finish(self, line: Line, token: int) -> None:
        """Ask for the end of an operation that nobody waits for.

        Where waiting may block, wait for it.
        """
        line.cancel(token)

    def resolve(self, slot: object, record: Record) -> None:
        """Wake what waits on ``slot``."""
        raise NotImplementedError

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever the descriptor is readable."""

    def unwatch(self, fd: int) -> None:
        """Stop that; afterwards the descriptor may be closed."""

    def signal(self) -> Signal:
        """Return a signal to be waited for here."""
        raise NotImplementedError

    async def breathe(self) -> None:
        """Let others run, and take a cancellation that is pending."""

    async def take_cancel(self) -> None:
        """Raise when this task is cancelled already; nothing was sent yet."""

    async def off_loop(
        self, work: Callable[[], T], undo: Callable[[T], object] | None = None
    ) -> T:
        """Run what blocks in a thread and wait for its end, cancelled or not.

        ``undo`` gets the result that a cancellation leaves without a taker.
        """
        return work()

    async def patiently(
        self,
        work: Callable[[], T],
        undo: Callable[[T], object],
        grace_s: float,
        timeout_s: float | None,
    ) -> T:
        """Run what blocks in a thread, and wait so long for its end.

        Cancelled, or with ``timeout_s`` over, for ``grace_s`` more: then the thread is
        left alone, and undoes its work when it has ended. A TimeoutError says that.
        """
        return work()

    async def readable(self, fd: int) -> None:
        """Wait until the descriptor is readable."""
        raise NotImplementedError

    def post(self, work: Callable[[], None]) -> bool:
        """Run it here soon, from any thread; False when this home is over."""
        raise NotImplementedError

    def idle(self) -> bool:
        """Whether nothing can run here now, so that another thread may act for it."""
        return False

    def end(self) -> None:
        """Give up all channels: the loop or thread is over."""
        for line in list(self.channels.values()):
            line.retire()
