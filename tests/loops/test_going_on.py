"""A task that waits alone goes on when the loop wakes up, without a turn for it."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from helpers.model import PAGE

import aiougds

SLOW = "emu:?size=1MiB&latency=2ms&step=0"
ROUNDS = 30
WORD: contextvars.ContextVar[str] = contextvars.ContextVar("word")
Read = Callable[[], Awaitable[int]]
each_loop = pytest.mark.parametrize(
    "run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"]
)


async def reading(work: Callable[[Read], Coroutine[object, object, None]]) -> None:
    """Run it with a read that always takes a turn of the loop."""
    async with (
        aiougds.open(SLOW, mode="interrupt") as ns,
        ns.allocate(PAGE) as reg,
    ):
        await work(lambda: ns.read(reg, offset=0))


def test_an_await_takes_one_turn() -> None:
    class Counting(selectors.DefaultSelector):
        turns = 0

        def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401
            Counting.turns += 1
            return super().select(timeout)

    async def work(read: Read) -> None:
        await read()
        before = Counting.turns
        for _ in range(ROUNDS):
            await read()
        # what others have the loop do, now and then, is not its
        assert Counting.turns - before < ROUNDS * 3 // 2

    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(Counting())
    ) as runner:
        runner.run(reading(work))


@each_loop
def test_it_is_its_task_in_its_context(run: Any) -> None:  # noqa: ANN401
    async def work(read: Read) -> None:
        async def one(word: str) -> None:
            WORD.set(word)
            task = asyncio.current_task()
            for _ in range(5):
                await read()
                assert asyncio.current_task() is task
                assert WORD.get() == word

        await one("alone")
        await asyncio.gather(*(asyncio.create_task(one(f"{i}")) for i in range(8)))

    run(reading(work))


@each_loop
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["main", "side"])
def test_what_ends_the_loop_ends_it(
    run: Any,  # noqa: ANN401
    kind: type[BaseException],
    where: str,
) -> None:
    async def work(read: Read) -> None:
        async def end() -> None:
            await read()
            raise kind

        if where == "main":
            await end()
        task = asyncio.create_task(end())
        task.add_done_callback(lambda done: done.exception())
        await asyncio.sleep(60)

    with pytest.raises(kind):
        run(reading(work))


@each_loop
def test_an_error_behind_a_read_is_the_tasks(run: Any) -> None:  # noqa: ANN401
    heard: list[object] = []

    async def work(read: Read) -> None:
        async def bad() -> None:
            await read()
            raise LookupError

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: heard.append(context))
        with pytest.raises(LookupError):
            await asyncio.create_task(bad())
        with pytest.raises(LookupError):
            await bad()
        assert await read() == PAGE

    run(reading(work))
    assert heard == []


@each_loop
def test_it_may_close_what_it_waited_for(run: Any) -> None:  # noqa: ANN401
    async def work() -> None:
        for _ in range(5):
            ns = await aiougds.open(SLOW, mode="interrupt")
            reg = await ns.allocate(PAGE)
            await ns.read(reg, offset=0)
            await reg.aclose()
            await ns.aclose()

    run(work())


@each_loop
def test_others_get_their_turns(run: Any) -> None:  # noqa: ANN401
    """Two that each wake up alone: neither keeps the other, or a callback, from it."""

    async def work(read: Read) -> None:
        turns = 0
        done: list[str] = []

        def turn() -> None:
            nonlocal turns
            turns += 1
            if len(done) < 2:
                loop.call_soon(turn)

        async def one(name: str) -> None:
            for _ in range(10):
                await read()
            done.append(name)

        loop = asyncio.get_running_loop()
        loop.call_soon(turn)
        await asyncio.gather(one("a"), one("b"))
        assert sorted(done) == ["a", "b"]
        assert turns > 10

    run(reading(work))
