"""Waiting under trio."""

from __future__ import annotations

import contextlib
from asyncio import _get_running_loop, current_task
from threading import get_ident
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, cast

import outcome
import trio

from aiougds._home import Errand, Home, Line, Pump, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._ffi import Record

T = TypeVar("T")
CANCELLED: Final = float("-inf")  # the deadline of a scope that was cancelled
homes: Final[dict[int, TrioHome]] = {}


class _TrioSignal:
    __slots__ = ("_event", "_token")

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._event = trio.Event()

    def set(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._fire, idempotent=True)

    def _fire(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await self._event.wait()
        came = self._event.is_set()
        if came:
            self._event = trio.Event()
        return came


def _runs_on() -> bool:
    """Whether a trio task runs here, and is not to stop at its next checkpoint.

    Not where it runs a loop of asyncio, whose task this is then.
    """
    try:
        if trio.current_effective_deadline() == CANCELLED:
            return False
    except RuntimeError:
        return False
    return _get_running_loop() is None or current_task() is None


class TrioHome(Home):
    """A trio run. Its readers are system tasks, so they end after the main task."""

    __slots__ = ("_watched", "token")

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        super().__init__()
        self.token = token
        self.thread = get_ident()
        self.running = _runs_on
        self._watched: dict[int, object] = {}
        trio.lowlevel.spawn_system_task(self._until_shutdown, name="aiougds home")

    async def _until_shutdown(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.end()
            homes.pop(id(self.token), None)

    async def wait(self, line: Line, token: int, keep: object) -> Record:
        raise_cancel: Callable[[], NoReturn] | None = None

        def abort(raiser: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
            nonlocal raise_cancel
            raise_cancel = raiser
            line.cancel(token)
            return trio.lowlevel.Abort.FAILED

        line.waiters[token] = (trio.lowlevel.current_task(), keep)
        record: Record = await trio.lowlevel.wait_task_rescheduled(abort)
        if raise_cancel is not None and (record.result < 0 or token in line.batches):
            raise_cancel()
        return record

    async def told(self, line: Line, token: int, timeout_s: float | None) -> None:
        entry = line.waiters[token] = (trio.lowlevel.current_task(), None)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            if line.waiters.get(token) is entry:
                del line.waiters[token]
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await trio.lowlevel.wait_task_rescheduled(abort)

    async def park(
        self, parked: list[object], pump: Pump, timeout_s: float | None
    ) -> None:
        task = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            parked.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            parked.append(task)
            await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self, parked: list[object]) -> None:
        for task in parked:
            trio.lowlevel.reschedule(cast("trio.lowlevel.Task", task))
        parked.clear()

    def resolve(self, slot: object, record: Record) -> None:
        task = cast("trio.lowlevel.Task", slot)
        trio.lowlevel.reschedule(task, outcome.Value(record))

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        marker = object()
        self._watched[fd] = marker

        async def reader() -> None:
            with contextlib.suppress(trio.ClosedResourceError):
                while self._watched.get(fd) is marker:
                    await trio.lowlevel.wait_readable(fd)
                    if self._watched.get(fd) is marker:
                        callback()

        trio.lowlevel.spawn_system_task(reader, name="aiougds reader")

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            trio.lowlevel.notify_closing(fd)

    def signal(self) -> Signal:
        return _TrioSignal(self.token)

    async def breathe(self) -> None:
        await trio.lowlevel.checkpoint()

    async def take_cancel(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()

    async def off_loop(
        self, work: Callable[[], T], undo: Callable[[T], object] | None = None
    ) -> T:
        # Shielded: what was cancelled before is done all the same, as it may be what
        # gives something back.
        box: list[T] = []
        with trio.CancelScope(shield=True):
            box.append(await trio.to_thread.run_sync(work))
        return box[0]

    async def patiently(
        self,
        work: Callable[[], T],
        undo: Callable[[T], object],
        grace_s: float,
        timeout_s: float | None,
    ) -> T:
        errand = Errand(work, undo)
        ended = trio.Event()
        box: list[outcome.Outcome[T | None]] = []

        def take(result: outcome.Outcome[T | None]) -> None:
            box.append(result)
            ended.set()

        def deliver(result: outcome.Outcome[T | None]) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                self.token.run_sync_soon(take, result)

        trio.lowlevel.start_thread_soon(errand.run, deliver)
        limit = float("inf") if timeout_s is None else timeout_s + grace_s
        try:
            with trio.move_on_after(limit):
                await ended.wait()
        except trio.Cancelled:
            with trio.move_on_after(grace_s, shield=True):
                await ended.wait()
            if not errand.leave():
                with trio.CancelScope(shield=True):
                    await ended.wait()
                    if isinstance(box[0], outcome.Value):
                        value = cast("T", box[0].value)
                        await trio.to_thread.run_sync(undo, value)
            raise
        if not ended.is_set():
            if errand.leave():
                raise TimeoutError
            with trio.CancelScope(shield=True):
                await ended.wait()
        return cast("T", box[0].unwrap())

    async def readable(self, fd: int) -> None:
        await trio.lowlevel.wait_readable(fd)

    def post(self, work: Callable[[], None]) -> bool:
        try:
            self.token.run_sync_soon(work)
        except trio.RunFinishedError:
            return False
        return True


def in_run() -> bool:
    """Whether a trio run is on in this thread."""
    return trio.lowlevel.in_trio_run()


def in_task() -> bool:
    """Whether a trio task runs in this thread."""
    return trio.lowlevel.in_trio_task()


def home_here() -> TrioHome | None:
    """Return the home of the trio run that this code is in, if it is in one."""
    if not trio.lowlevel.in_trio_run():
        return None
    token = trio.lowlevel.current_trio_token()
    home = homes.get(id(token))
    if home is None or home.token is not token:
        home = homes[id(token)] = TrioHome(token)
    return home
