"""Event loops and threads that a state machine holds, and moves a step at a time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import uvloop

LIMIT_S: Final = 15.0  # what has not ended then will not
Work = Coroutine[Any, Any, object]


class Ended:
    """How a call ended: with a value or an exception."""

    __slots__ = ("error", "value")

    def __init__(self, value: object, error: BaseException | None) -> None:
        self.value = value
        # Its frames hold views of the memory that the call was about.
        self.error = None if error is None else error.with_traceback(None)

    def __repr__(self) -> str:
        return f"{self.value!r}" if self.error is None else f"{self.error!r}"


class Running(Protocol):
    """A call that was started."""

    def done(self) -> bool: ...
    def ended(self) -> Ended: ...


class Homes(Protocol):
    """Where calls run. ``count`` of them; the first is where all else is done."""

    count: int
    can_cancel: bool

    def start(self, home: int, work: Work) -> Running: ...
    def cancel(self, home: int, running: Running) -> None: ...
    def run(self, home: int, work: Work) -> Ended: ...
    def turn(self) -> None: ...
    def close(self) -> None: ...


class _Task:
    __slots__ = ("task",)

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task

    def done(self) -> bool:
        return self.task.done()

    def ended(self) -> Ended:
        if self.task.cancelled():
            return Ended(None, asyncio.CancelledError())
        error = self.task.exception()
        return Ended(None if error else self.task.result(), error)


class Loops:
    """An asyncio and a uvloop event loop, both of this thread, running in turn."""

    can_cancel = True
    count = 2

    def __init__(self) -> None:
        self.loops = [asyncio.new_event_loop(), uvloop.new_event_loop()]
        self.unhandled: list[object] = []
        for loop in self.loops:
            loop.set_exception_handler(lambda _loop, what: self.unhandled.append(what))

    def start(self, home: int, work: Work) -> Running:
        task = self.loops[home].create_task(work)
        self._turn(home)
        return _Task(task)

    def _turn(self, home: int) -> None:
        self.loops[home].run_until_complete(asyncio.sleep(0))

    def cancel(self, home: int, running: Running) -> None:
        assert isinstance(running, _Task)
        running.task.cancel()
        self._wait(home, running)

    def _wait(self, home: int, running: _Task) -> None:
        async def wait() -> None:
            await asyncio.wait({running.task}, timeout=LIMIT_S)

        self.loops[home].run_until_complete(wait())
        assert running.done(), f"it never ended: {running.task!r}"

    def run(self, home: int, work: Work) -> Ended:
        running = _Task(self.loops[home].create_task(work))
        self._wait(home, running)
        return running.ended()

    def turn(self) -> None:
        for home in range(self.count):
            self._turn(home)

    def close(self) -> None:
        for loop in self.loops:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=LIMIT_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        assert not self.unhandled


def _to_its_end(work: Work) -> Ended:
    """Run the coroutine of a facade: all of it happens before the first await."""
    try:
        work.send(None)
    except StopIteration as stop:
        return Ended(stop.value, None)
    except BaseException as error:  # noqa: BLE001 (handed to who asks)
        return Ended(None, error)
    work.close()
    raise AssertionError("something was awaited without an event loop")


class _Thread:
    __slots__ = ("_ended", "thread")

    def __init__(self, work: Work) -> None:
        self._ended: Ended | None = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Work) -> None:
        self._ended = _to_its_end(work)

    def done(self) -> bool:
        return self._ended is not None

    def ended(self) -> Ended:
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()
        assert self._ended is not None
        return self._ended


class Threads:
    """This thread, and one for each call that does not end at once."""

    can_cancel = False
    count = 1

    def start(self, home: int, work: Work) -> Running:
        return _Thread(work)

    def cancel(self, home: int, running: Running) -> None:
        raise NotImplementedError("a blocking call cannot be cancelled")

    def run(self, home: int, work: Work) -> Ended:
        return _to_its_end(work)

    def turn(self) -> None:
        os.sched_yield()

    def close(self) -> None:
        pass


def eventually(condition: Callable[[], bool], turn: Callable[[], None]) -> bool:
    """Turn until a condition holds; whether it came to hold."""
    end = time.monotonic() + LIMIT_S / 5
    turns = 0
    while not condition():
        if time.monotonic() > end:
            return False
        turn()
        turns += 1
        if turns > 50:  # it takes a clock of the engine: leave it the processor
            time.sleep(0.0005)
    return True
