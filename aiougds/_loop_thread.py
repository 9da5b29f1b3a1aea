"""An event loop in a thread of its own, for hosts that call from threads of theirs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from aiougds._errors import ClosedError, WrongLoopError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

Thing = TypeVar("Thing")
Result = TypeVar("Result")


class LoopThread(Generic[Thing]):
    """What a loop owns, and the loop: made, used and closed from other threads.

    ``opened`` is entered on the loop; the constructor returns when it is, or raises
    what entering it raised. Interrupted, by the handler of a signal, it closes first.
    Closing waits for the tasks that were posted, then leaves it; in the child of a fork
    it does nothing. The thread does not keep the process alive.
    """

    def __init__(
        self, opened: Callable[[], AbstractAsyncContextManager[Thing]], *, name: str
    ) -> None:
        self._opened = opened
        self._ready: Future[Thing] = Future()
        self._ended: Future[None] = Future()
        self._tasks: set[asyncio.Task[object]] = set()
        self._closing = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
            self.thing: Thing = self._ready.result()
        except BaseException:
            if not self._ready.cancel():  # it has begun
                self.close()
            raise

    def __repr__(self) -> str:
        state = "alive" if self.alive else "closed"
        return f"<LoopThread {self._thread.name!r}, {state}>"

    @property
    def alive(self) -> bool:
        """Whether the thread runs, and takes work."""
        return self._thread.is_alive() and not self._closing

    def post(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Have a coroutine run on the loop, from any thread. It must not raise."""
        self._soon(lambda: self._start(work))

    def call(self, work: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Run a coroutine on the loop, and wait for its result in this thread.

        What interrupts the wait, the handler of a signal, cancels it, and is raised
        when it has ended.
        """
        if threading.current_thread() is self._thread:
            raise WrongLoopError(
                f"{self._thread.name} would wait for itself: call this from a thread "
                "that is not the loop's"
            )
        done: Future[Result] = Future()
        tasks: list[asyncio.Task[Result]] = []

        def begin() -> None:
            task = self._start(work)
            tasks.append(task)
            task.add_done_callback(lambda ended: _tell(ended, done))

        self._soon(begin)
        try:
            return done.result()
        except BaseException:
            if not done.done():
                # In this order: it has begun by then.
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
                wait((done,))
            raise

    def _soon(self, work: Callable[[], object]) -> None:
        # In a fork's child the lock may be held by nobody.
        if self._thread.is_alive():
            with self._lock:
                if not self._closing:
                    self._loop.call_soon_threadsafe(work)
                    return
        raise ClosedError(f"{self._thread.name} is closed")

    def close(self) -> None:
        """Let posted work end, leave what was entered, and end the thread."""
        if not self._thread.is_alive() and not self._ended.done():
            return  # a fork's child: thread and loop are the parent's
        with self._lock:
            first = not self._closing
            self._closing = True
            if first:
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._ended.result()

    def _start(
        self, work: Callable[[], Coroutine[object, object, Result]]
    ) -> asyncio.Task[Result]:
        made = work()
        name = f"aiougds: {getattr(made, '__qualname__', 'work')}"
        task = self._loop.create_task(made, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _run(self) -> None:
        with _Ending(self), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def _end(self, error: BaseException | None) -> None:
        self._closing = True
        if error is not None and not self._ready.done():
            self._ready.set_exception(error)
            error = None  # the constructor raises it
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    async def _serve(self) -> None:
        if not self._ready.set_running_or_notify_cancel():
            return  # nobody wants it any more
        async with self._opened() as thing:
            self._ready.set_result(thing)
            await self._stop.wait()
            while self._tasks:
                await asyncio.wait(self._tasks)


def _tell(ended: asyncio.Task[Result], done: Future[Result]) -> None:
    """Have whoever waits in a thread see how a task ended."""
    if ended.cancelled():
        done.set_exception(CancelledError())
    elif (error := ended.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(ended.result())


class _Ending:
    """Tells whoever waits how the thread ended."""

    def __init__(self, thread: LoopThread[Any]) -> None:
        self._thread = thread

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> Literal[True]:
        self._thread._end(exc)
        return True
