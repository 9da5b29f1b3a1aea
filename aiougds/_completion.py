"""Where operations are awaited: asyncio and uvloop loops, trio runs, plain threads.

A :class:`Home` is one of these. It owns the waiters of the channels that live on it
and is the only code that calls methods of an event loop. Rules kept here:

- A descriptor is never closed while a loop still watches it (uvloop ends the process).
- A cancelled wait goes on until the operation's own completion has come, and only then
  raises: until that moment the device may write to the memory.
- A loop that ends is noticed through an async generator that ``shutdown_asyncgens``
  closes, or by looking at ``is_closed()`` whenever a new channel is made; a trio run
  through a system task; a thread through the destructor of a thread-local.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio import _get_running_loop
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Final, TypeVar, cast

from aiougds._completion_thread import blocking_depth, state, thread_home
from aiougds._errors import WrongLoopError
from aiougds._ffi import Record, new_tuple
from aiougds._home import (
    MARK_FUTURE,
    MARK_RESUMED,
    UNKNOWN,
    Errand,
    Home,
    Line,
    Pump,
    Signal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
    from types import ModuleType
    from typing import Any

T = TypeVar("T")


class _AsyncioSignal:
    __slots__ = ("_event", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class AsyncioHome(Home):
    """An asyncio or uvloop event loop."""

    __slots__ = ("_create_future", "_guard", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.thread = get_ident()
        self.running = loop.is_running
        self.loop = loop
        if _trio_part() is not None:
            self.share_thread()
        self._create_future: Callable[[], asyncio.Future[Record]] = loop.create_future
        self._guard = self._until_shutdown()
        with contextlib.suppress(StopIteration):
            # The first step runs to the yield; the loop remembers the generator.
            self._guard.asend(None).__await__().__next__()

    def share_thread(self) -> None:
        """Trio may run inside this loop as a guest, and its tasks are not ours."""
        is_running = self.loop.is_running
        self.running = lambda: is_running() and not _in_guest()
        for channel in self.channels.values():
            channel.follow()

    async def _until_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.end()
            _asyncio_homes.pop(id(self.loop), None)

    async def wait(self, line: Line, token: int, keep: object) -> Record:
        future = self._create_future()
        line.waiters[token] = (future, keep)
        try:
            return await future
        except asyncio.CancelledError:
            if token in line.waiters:
                await self._drain(line, token, keep)
            raise

    def _future_of(self, line: Line, token: int) -> asyncio.Future[Record]:
        """Return a future for the end of what a token stands for."""
        return self._create_future()

    def _future_on(self, pump: Pump) -> asyncio.Future[Record]:
        """Return a future for what is told there."""
        return self._create_future()

    async def _drain(self, line: Line, token: int, keep: object) -> None:
        line.cancel(token)
        line.reap()
        with _anyio_shield():
            while token in line.waiters:
                future = self._future_of(line, token)
                line.waiters[token] = (future, keep)
                # Asked again to stop: it already does.
                with contextlib.suppress(asyncio.CancelledError):
                    await future

    async def _ended(
        self, future: asyncio.Future[Any], what: object, timeout_s: float | None = None
    ) -> None:
        """Wait until it is done, however: that is not looked at here."""
        await asyncio.wait((future,), timeout=timeout_s)

    async def told(self, line: Line, token: int, timeout_s: float | None) -> None:
        future = self._future_of(line, token)
        entry = line.waiters[token] = (future, None)
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(timeout_s, future.cancel)
        try:
            await self._ended(future, future)
        finally:
            if timer is not None:
                timer.cancel()
            if line.waiters.get(token) is entry:
                del line.waiters[token]

    async def park(
        self, parked: list[object], pump: Pump, timeout_s: float | None
    ) -> None:
        future = cast("asyncio.Future[None]", self._future_on(pump))
        parked.append(future)
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(timeout_s, _set, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if future in parked:
                parked.remove(future)

    def wake(self, parked: list[object]) -> None:
        for future in parked:
            _set(cast("asyncio.Future[None]", future))
        parked.clear()

    def dispatch(self, line: Line, words: Sequence[int]) -> None:
        if len(words) == 4 and words[1] >= 0 and not line.targets:
            # The only one that came back, and well: a third of the time.
            entry = line.waiters.pop(words[0], None)
            if entry is None:
                line.unclaimed(words[2])
                return
            # typed: the only one of such an entry
            only: asyncio.Future[Record] = entry[0]  # type: ignore[assignment]
            if not only.done():
                only.set_result(new_tuple(Record, words))
            return
        pop = line.waiters.pop
        new = new_tuple
        it = iter(words)
        targets = line.targets
        for four in zip(it, it, it, it, strict=True):
            if four[0] in targets and not line.reached(four[0]):
                continue
            entry = pop(four[0], None)
            if entry is None:
                line.unclaimed(four[2])
                continue
            # typed: the only one of such an entry
            future: asyncio.Future[Record] = entry[0]  # type: ignore[assignment]
            record = new(Record, four)
            if record[1] < 0 and record.outcome == UNKNOWN:
                line.strand(entry[1])
            if not future.done():
                future.set_result(record)

    def dispatch_woken(self, line: Line, words: Sequence[int]) -> None:
        if len(words) != 4 or words[1] < 0 or line.targets:
            self.dispatch(line, words)
            return
        entry = line.waiters.pop(words[0], None)
        if entry is None:
            line.unclaimed(words[2])
            return
        # typed: the only one of such an entry
        only: asyncio.Future[Record] = entry[0]  # type: ignore[assignment]
        del entry  # its memory: whose task goes on below may let go of it
        if only.done():
            return
        # Whose it is goes on here and now: set_result() has the loop make a turn for
        # it, which is a third of what an await takes on asyncio.
        callbacks = getattr(only, "_callbacks", None)
        if not callbacks or len(callbacks) != 1:
            only.set_result(new_tuple(Record, words))
            return
        go_on, context = callbacks[0]
        only.remove_done_callback(go_on)
        only.set_result(new_tuple(Record, words))
        context.run(go_on, only)  # raises what ends the loop, and nothing else

    def dispatch_traced(
        self, line: Line, words: list[int], mark: Callable[[int, int], None]
    ) -> None:
        for i in range(0, len(words), 4):
            # Ahead of the task, which the future's result makes ready.
            self.loop.call_soon(mark, words[i], MARK_RESUMED)
            self.dispatch(line, words[i : i + 4])
            mark(words[i], MARK_FUTURE)

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self.loop.add_reader(fd, callback)

    def unwatch(self, fd: int) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(fd)

    def signal(self) -> Signal:
        return _AsyncioSignal(self.loop)

    async def breathe(self) -> None:
        await asyncio.sleep(0)

    async def off_loop(
        self, work: Callable[[], T], undo: Callable[[T], object] | None = None
    ) -> T:
        future = self.loop.run_in_executor(None, work)
        cancelled: asyncio.CancelledError | None = None
        with _anyio_shield():
            while not future.done():
                try:
                    await self._ended(future, work)
                except asyncio.CancelledError as exc:
                    cancelled = cancelled or exc
        if cancelled is None:
            return future.result()
        if undo is not None and future.exception() is None:
            result = future.result()
            await self.off_loop(lambda: undo(result))
        raise cancelled

    async def patiently(
        self,
        work: Callable[[], T],
        undo: Callable[[T], object],
        grace_s: float,
        timeout_s: float | None,
    ) -> T:
        errand = Errand(work, undo)
        future = self.loop.run_in_executor(None, errand.run)
        now = self.loop.time
        wait_s = None if timeout_s is None else timeout_s + grace_s
        cancelled: asyncio.CancelledError | None = None
        try:
            await self._ended(future, work, wait_s)
        except asyncio.CancelledError as exc:
            cancelled = exc
            end = now() + grace_s
            with _anyio_shield():
                while not future.done() and now() < end:
                    # Asked again to stop: it gets no more time.
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._ended(future, work, max(0.0, end - now()))
        if not future.done():
            if errand.leave():
                raise cancelled or TimeoutError
            with _anyio_shield():
                while not future.done():  # it has ended; the loop hears of it soon
                    try:
                        await self._ended(future, work)
                    except asyncio.CancelledError as exc:
                        cancelled = cancelled or exc
        if cancelled is None:
            return cast("T", future.result())
        if future.exception() is None:
            result = cast("T", future.result())
            await self.off_loop(lambda: undo(result))
        raise cancelled

    async def readable(self, fd: int) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_reader(fd, _set, future)
        try:
            await future
        finally:
            self.loop.remove_reader(fd)

    def post(self, work: Callable[[], None]) -> bool:
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def idle(self) -> bool:
        return not self.loop.is_running()


class NamedFuture(asyncio.Future[Record]):
    """A future that says what is waited for, where asyncio shows it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, what: str) -> None:
        super().__init__(loop=loop)
        self.what = what

    def end(self, _: object = None) -> None:
        """Have its task go on, if it still waits."""
        _set(cast("asyncio.Future[None]", self))

    def __repr__(self) -> str:
        return (
            super()
            .__repr__()
            .replace(type(self).__name__, f"Future aiougds: {self.what},", 1)
        )


class DebuggedHome(AsyncioHome):
    """A loop in debug mode: its futures have names, which takes a while for each."""

    __slots__ = ("_naming",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._naming: tuple[Line, int] | None = None
        self._create_future = self._named

    def _named(self) -> asyncio.Future[Record]:
        assert self._naming is not None
        return self._future_of(*self._naming)

    def _future_of(self, line: Line, token: int) -> asyncio.Future[Record]:
        return NamedFuture(self.loop, line.describe(token))

    def _future_on(self, pump: Pump) -> asyncio.Future[Record]:
        return NamedFuture(self.loop, f"what streams tell, by {pump!r}")

    async def _ended(
        self, future: asyncio.Future[Any], what: object, timeout_s: float | None = None
    ) -> None:
        told = f"{getattr(what, '__qualname__', 'work')} in a thread"
        named = NamedFuture(self.loop, getattr(what, "what", told))
        future.add_done_callback(named.end)
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(timeout_s, named.end)
        try:
            await named
        finally:
            future.remove_done_callback(named.end)
            if timer is not None:
                timer.cancel()

    def dispatch_woken(self, line: Line, words: Sequence[int]) -> None:
        self.dispatch(line, words)  # what takes long is its task's, and not ours

    async def wait(self, line: Line, token: int, keep: object) -> Record:
        # Nothing else runs before the future is made.
        self._naming = line, token
        return await super().wait(line, token, keep)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _anyio_shield() -> contextlib.AbstractContextManager[object]:
    """Keep anyio from delivering a cancellation again at every turn of the loop."""
    if "anyio" not in sys.modules:
        return contextlib.nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)


_asyncio_homes: Final[dict[int, AsyncioHome]] = {}
_trio: ModuleType | None = None


def _trio_part() -> ModuleType | None:
    """Return our half for trio, once the program has imported trio."""
    global _trio
    if _trio is None and "trio" in sys.modules:
        # Not from sys.modules: another thread may be in the middle of importing it.
        _trio = import_module("aiougds._completion_trio")
        for home in list(_asyncio_homes.values()):
            home.share_thread()
    return _trio


def _in_guest() -> bool:
    """Whether a trio task runs here, inside of the running asyncio loop.

    That runs its steps in plain callbacks; inside a task of asyncio it is the task
    that was begun last (in a trio task that calls asyncio.run(), say).
    """
    part = _trio_part()
    return part is not None and part.in_task() and asyncio.current_task() is None


def current_home() -> Home:
    """Return where this code runs; a WrongLoopError where nothing can be awaited."""
    loop = _get_running_loop()
    if loop is not None and not _in_guest():
        home = _asyncio_homes.get(id(loop))
        if home is None or home.loop is not loop:
            sweep()
            kind = DebuggedHome if loop.get_debug() else AsyncioHome
            home = _asyncio_homes[id(loop)] = kind(loop)
        elif home.thread != get_ident():  # a loop that was stopped and moved
            home.thread = get_ident()
            for channel in home.channels.values():
                channel.follow()
        return home
    if blocking_depth():
        return thread_home()
    trio_part = _trio_part()
    if trio_part is not None:
        trio_home: Home | None = trio_part.home_here()
        if trio_home is not None:
            return trio_home
    raise WrongLoopError(
        "no event loop runs in this thread; await it under asyncio or trio, or use "
        "aiougds.blocking, which needs none"
    )


def sweep() -> None:
    """End the homes of loops that were closed without ``shutdown_asyncgens``."""
    for key, home in list(_asyncio_homes.items()):
        if home.loop.is_closed():
            _asyncio_homes.pop(key, None)
            home.end()


def forget_all() -> None:
    """In a fork's child: no loop or thread of the parent is here."""
    for home in _asyncio_homes.values():
        home.channels.clear()
    _asyncio_homes.clear()
    if _trio is not None:
        _trio.homes.clear()
    thread_home().forget()


def run_blocking(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine of the package to its end in this thread, without a loop."""
    # No call between these lines and the try, or behind its finally: the handler of a
    # signal may raise wherever something is called, and the depth has to go back.
    before = state.depth
    try:
        state.depth = before + 1
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        state.depth = before
    work.close()
    raise RuntimeError("a blocking call tried to suspend: report this as a defect")


def refuse_inside_loop() -> None:
    """Raise when an event loop runs here, which a blocking call would stop."""
    part = _trio_part()
    if _get_running_loop() is not None or (part is not None and part.in_run()):
        raise WrongLoopError(
            "aiougds.blocking was called inside a running event loop, which it would "
            "stop; use the awaitable functions of aiougds here"
        )
