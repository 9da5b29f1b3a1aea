"""A loop in a thread: begins, works and ends as its host wants, and hides no error."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiougds import ClosedError, WrongLoopError
from aiougds._loop_thread import LoopThread


class Steps(list[str]):
    """What was entered and left."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[int]:
        self.append("in")
        try:
            yield 7
        finally:
            self.append("out")


def test_it_opens_works_and_closes() -> None:
    steps = Steps()
    thread = LoopThread(steps.opened, name="test")
    assert thread.thing == 7

    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        return f"{threading.current_thread().name}, {task.get_name()}"

    called = "test, aiougds: test_it_opens_works_and_closes.<locals>.work"
    assert thread.call(work) == called
    assert thread.alive
    thread.close()
    thread.close()
    assert steps == ["in", "out"]
    assert not thread.alive
    with pytest.raises(ClosedError):
        thread.call(work)


def test_what_was_posted_ends_before_it_closes() -> None:
    steps = Steps()
    thread = LoopThread(steps.opened, name="test")
    go = threading.Event()

    async def slow() -> None:
        await asyncio.to_thread(go.wait)
        steps.append("done")

    thread.post(slow)
    closer = threading.Thread(target=thread.close)
    closer.start()
    go.set()
    closer.join(20)
    assert steps == ["in", "done", "out"]


def test_an_error_of_work_is_the_callers() -> None:
    thread = LoopThread(Steps().opened, name="test")

    async def fail() -> None:
        raise KeyError("this")

    with pytest.raises(KeyError, match="this"):
        thread.call(fail)
    thread.close()


def test_an_error_of_opening_is_raised_by_the_constructor() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        raise OSError("not here")
        yield

    with pytest.raises(OSError, match="not here"):
        LoopThread(opened, name="test")


def test_an_error_of_closing_is_raised_by_close() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        yield
        raise OSError("not closed")

    thread = LoopThread(opened, name="test")
    with pytest.raises(OSError, match="not closed"):
        thread.close()


def test_an_interrupted_constructor_leaves_what_was_entered() -> None:
    steps = Steps()

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with steps.opened():
            os.kill(os.getpid(), signal.SIGINT)  # its handler runs in the main thread
            await asyncio.sleep(0.2)
            steps.append("entered")
            yield

    with pytest.raises(KeyboardInterrupt):
        LoopThread(opened, name="interrupted")
    assert steps == ["in", "entered", "out"]
    assert "interrupted" not in [one.name for one in threading.enumerate()]


def test_a_child_of_a_fork_closes_nothing() -> None:
    steps = Steps()
    thread = LoopThread(steps.opened, name="test")
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends it where it waits for the thread
        try:
            thread.close()
        finally:
            os._exit(0 if steps == ["in"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert thread.alive
    thread.close()
    assert steps == ["in", "out"]


def test_waiting_for_itself_is_refused() -> None:
    thread = LoopThread(Steps().opened, name="test")

    async def nothing() -> None: ...

    async def work() -> None:
        thread.call(nothing)

    with pytest.raises(WrongLoopError, match="would wait for itself"):
        thread.call(work)
    thread.close()
