"""A world: one loop, completion mode and choice of stepping that a test runs in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import anyio
import trio
import uvloop

import aiougds
from aiougds import testing
from helpers.facade import Facade
from helpers.matrix import Place

T = TypeVar("T")
# A namespace or controller: awaitable, blocking, or a facade before that.
Opened: TypeAlias = Any
Option: TypeAlias = Any
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30


def emu_address(path: Path | str = "", **options: object) -> str:
    """Return the address of an embedded controller; 4 MiB unless it says otherwise."""
    known = bool(path) and Path(path).exists()
    if not known and "namespaces" not in options:
        options.setdefault("size", 4 * MIB)
    quoted = str(path).replace("%", "%25").replace("?", "%3F")
    return f"emu:{quoted}?{urlencode(options, safe=':,+')}"


def served(target: Opened) -> int:
    """Return the I/O commands sent so far; the device must have served as many."""
    controller = getattr(target, "controller", target)
    sent: int = controller.statistics().commands
    assert testing.counters(controller).commands == sent
    return sent


def assert_clean(target: Opened) -> None:
    """The device saw no access outside a mapping, and nothing is left behind."""
    controller = getattr(target, "controller", target)
    seen = testing.counters(controller)
    assert seen.iommu_faults == 0
    assert seen.protocol_errors == 0
    left = controller.statistics()
    assert left.inflight == 0
    assert left.quarantined == 0
    assert left.unknown_cids == 0
    # Bounce memory, and the staging rings of streams, are kept for the next one until
    # the controller is closed.
    device = controller._device
    assert left.mappings == len(device.pool) + device.streams.rings()


@contextmanager
def nothing_sent(target: Opened) -> Iterator[None]:
    """What happens inside sends no command and rings no doorbell."""
    controller = getattr(target, "controller", target)
    before = served(controller), controller.statistics().doorbells
    yield
    assert (served(controller), controller.statistics().doorbells) == before


class World:
    """Opens controllers, runs coroutines, and looks that all was given back."""

    __slots__ = ("_devices", "loop", "mode", "step")

    def __init__(self, place: Place) -> None:
        self.loop = place.loop
        self.mode = place.mode
        self.step = place.step
        self._devices: list[Any] = []

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end on this world's loop, or without one."""
        match self.loop:
            case "asyncio" | "uvloop":
                uv = self.loop == "uvloop"
                factory = uvloop.new_event_loop if uv else asyncio.new_event_loop
                with asyncio.Runner(loop_factory=factory) as runner:
                    return runner.run(work)
            case "trio":

                async def main() -> T:
                    return await work

                return trio.run(main)
            case "blocking":
                try:
                    work.send(None)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                work.close()
                raise AssertionError("something was awaited without an event loop")

    def address(self, path: Path | str = "", **options: object) -> str:
        """Return the address of an embedded controller of this world."""
        return emu_address(path, **{"step": int(self.step), **options})

    def opening(
        self, address: str, how: str = "open", **keywords: Option
    ) -> AbstractAsyncContextManager[Opened]:
        """Open an address as it is, and look at nothing in the end."""
        if self.loop == "blocking":
            from aiougds import blocking

            return Facade(getattr(blocking, how)(address, **keywords))
        manager: AbstractAsyncContextManager[Opened] = getattr(aiougds, how)(
            address, **keywords
        )
        return manager

    def open(
        self,
        path: Path | str = "",
        *,
        emu: dict[str, object] | None = None,
        **keywords: Option,
    ) -> AbstractAsyncContextManager[Opened]:
        """Open a namespace; at the end the device must have nothing to complain of."""
        return self._open("open", self.address(path, **(emu or {})), keywords)

    def open_controller(
        self,
        path: Path | str = "",
        *,
        emu: dict[str, object] | None = None,
        **keywords: Option,
    ) -> AbstractAsyncContextManager[Opened]:
        """Open a controller, as :meth:`open` a namespace."""
        address = self.address(path, **(emu or {}))
        return self._open("open_controller", address, keywords)

    @asynccontextmanager
    async def _open(
        self, how: str, address: str, keywords: dict[str, Any]
    ) -> AsyncIterator[Opened]:
        keywords.setdefault("mode", self.mode)
        async with self.opening(address, how, **keywords) as opened:
            self._devices.append(opened._device)
            yield opened
            assert_clean(opened)

    async def gather(self, *work: Callable[[], Awaitable[T]]) -> list[T]:
        """Run calls at once (one after another without a loop); results in order."""
        if self.loop == "blocking":
            return [await call() for call in work]
        results: dict[int, T] = {}

        async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
            results[index] = await call()

        async with anyio.create_task_group() as group:
            for index, call in enumerate(work):
                group.start_soon(run, index, call)
        return [results[index] for index in range(len(work))]

    def finish(self) -> None:
        """Everything that was opened has been closed."""
        for device in self._devices:
            assert device.ended
            assert not device.channels
