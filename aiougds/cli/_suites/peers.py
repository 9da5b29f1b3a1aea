"""What else moves blocks from Python, into memory of the host: the peers.

Each opens the file of the embedded controller, or what ``--peer-path`` names, is used
as its own documentation shows first, and says by itself why it cannot run.
"""

from __future__ import annotations

import asyncio
import importlib
import mmap
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, ClassVar, Final

from aiougds.cli._suites.movers import Mover, One, Shape, Steps, fill

if TYPE_CHECKING:
    from types import ModuleType

    from aiougds import Namespace
    from aiougds.cli._suites.sides import Place

EXTRA: Final = "pip install 'aiougds[peers]'"
AT_ONCE: Final = 512  # requests that a context takes, at most
Pair = tuple[One, One | None]


class FileMover:
    """Steps made of reads and writes of a block; those of a batch are gathered."""

    __slots__ = ("_items", "_pairs")

    def __init__(self, shape: Shape, pair: Callable[[], Pair]) -> None:
        """``pair`` returns a read and a write that have memory of their own."""
        self._items = max(1, shape.batch)
        self._pairs = [pair() for _ in range(shape.tasks * self._items)]

    def steps(self, task: int) -> Steps:
        """Return what a task calls."""
        pairs = self._pairs[task * self._items :][: self._items]
        reads = [read for read, _ in pairs]
        writes = [write for _, write in pairs if write is not None]
        return Steps(
            reads[0],
            writes[0] if writes else None,
            gathered(reads),
            gathered(writes) if writes else None,
        )


def gathered(calls: Sequence[One]) -> Callable[[Sequence[int]], Awaitable[object]]:
    """Return what starts all of a batch, and waits for all."""

    async def run(offsets: Sequence[int]) -> None:
        await asyncio.gather(
            *(call(offset) for call, offset in zip(calls, offsets, strict=True))
        )

    return run


class Peer:
    """A peer that opens a file."""

    name: str
    how: str
    package: ClassVar[str] = ""  # none: of the standard library
    module: ClassVar[str] = ""
    any_loop: ClassVar[bool] = False
    aligned: ClassVar[bool] = False  # can be given memory that O_DIRECT takes

    @property
    def ours(self) -> bool:
        """It is none of us."""
        return False

    @property
    def version(self) -> str:
        """Of its package; "" where it is not installed, or of the standard library."""
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError:
            return ""

    def load(self) -> ModuleType:
        """Import it."""
        return importlib.import_module(self.module)

    def why_not(self, place: Place) -> str:
        """Return why it cannot run there; "" if it can."""
        if place.device is not None:
            return f"moves memory of the host, and --device {place.device} was given"
        if not place.path:
            return place.no_path
        if place.loop == "trio" and not self.any_loop:
            return "needs asyncio, and --loop trio was given"
        if place.direct and not self.aligned:
            return f"takes no aligned memory, which O_DIRECT of {place.path} needs"
        if place.writes and not place.peers_write:
            return "peers write only to the file of an embedded controller"
        return self.missing()

    def missing(self) -> str:
        """Return why it cannot be imported; "" if it can."""
        try:
            if self.module:
                self.load()
        except ImportError as exc:
            if not self.version:
                return f"{self.package} is not installed: {EXTRA}"
            return f"{self.package} {self.version} cannot be imported: {exc}"
        return ""

    @asynccontextmanager
    async def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AsyncGenerator[Mover]:
        """Open the file, and whatever else it needs."""
        del ns  # which is ours
        flags = os.O_CLOEXEC | (os.O_RDWR if place.writes else os.O_RDONLY)
        fd = os.open(place.path, flags | (os.O_DIRECT if place.direct else 0))
        try:
            async with self.mover(fd, place, shape) as mover:
                yield mover
        finally:
            os.close(fd)

    def mover(
        self, fd: int, place: Place, shape: Shape
    ) -> AbstractAsyncContextManager[Mover]:
        """Open what it needs besides."""
        raise NotImplementedError


class ToThread(Peer):
    """Blocking calls, each in a thread of the loop's pool."""

    name = "to_thread"
    how = "asyncio.to_thread(os.preadv); a batch is gathered"
    aligned = True

    @asynccontextmanager
    async def mover(self, fd: int, place: Place, shape: Shape) -> AsyncGenerator[Mover]:
        """Memory is all it needs."""
        to_thread, size = asyncio.to_thread, shape.size

        def pair() -> Pair:
            bufs, out = [memory(size, shape.seed)], [memory(size, shape.seed)]

            async def read(offset: int) -> None:
                whole(await to_thread(os.preadv, fd, bufs, offset), size)

            async def write(offset: int) -> None:
                whole(await to_thread(os.pwritev, fd, out, offset), size)

            return read, write if place.writes else None

        yield FileMover(shape, pair)


class Blocking(Peer):
    """The system call alone: the loop stands still meanwhile."""

    name = "preadv"
    how = "os.preadv on the loop's thread, which stands still; a batch one by one"
    aligned = True
    any_loop = True

    @asynccontextmanager
    async def mover(self, fd: int, place: Place, shape: Shape) -> AsyncGenerator[Mover]:
        """Memory is all it needs."""
        size = shape.size

        def pair() -> Pair:
            bufs, out = [memory(size, shape.seed)], [memory(size, shape.seed)]

            async def read(offset: int) -> None:
                whole(os.preadv(fd, bufs, offset), size)

            async def write(offset: int) -> None:
                whole(os.pwritev(fd, out, offset), size)

            return read, write if place.writes else None

        yield OneByOne(FileMover(shape, pair))


class OneByOne:
    """A batch is one after another."""

    __slots__ = ("_mover",)

    def __init__(self, mover: FileMover) -> None:
        self._mover = mover

    def steps(self, task: int) -> Steps:
        """Return what a task calls."""
        steps = self._mover.steps(task)

        def each(call: One) -> Callable[[Sequence[int]], Awaitable[object]]:
            async def run(offsets: Sequence[int]) -> None:
                for offset in offsets:
                    await call(offset)

            return run

        return Steps(
            steps.read,
            steps.write,
            each(steps.read),
            each(steps.write) if steps.write else None,
        )


class AioFiles(Peer):
    """Two thread hops an operation: it seeks, and then reads."""

    name = "aiofiles"
    how = "aiofiles.open, seek and readinto; a batch is gathered over as many files"
    package = module = "aiofiles"

    @asynccontextmanager
    async def mover(self, fd: int, place: Place, shape: Shape) -> AsyncGenerator[Mover]:
        """Open a file for each operation under way, since it has one position."""
        del fd
        aiofiles, size = self.load(), shape.size
        mode = "r+b" if place.writes else "rb"
        async with AsyncExitStack() as stack:
            files = [
                await stack.enter_async_context(
                    aiofiles.open(place.path, mode, buffering=0)
                )
                for _ in range(shape.tasks * max(1, shape.batch))
            ]

            def pair() -> Pair:
                file = files.pop()
                buf, out = memory(size, shape.seed), memory(size, shape.seed)

                async def read(offset: int) -> None:
                    await file.seek(offset)
                    whole(await file.readinto(buf), size)

                async def write(offset: int) -> None:
                    await file.seek(offset)
                    whole(await file.write(out), size)

                return read, write if place.writes else None

            yield FileMover(shape, pair)


class Caio(Peer):
    """The kernel's own asynchronous reads, through caio."""

    package = "caio"
    options: ClassVar[dict[str, object]] = {}

    @asynccontextmanager
    async def mover(self, fd: int, place: Place, shape: Shape) -> AsyncGenerator[Mover]:
        """Open a context."""
        size = shape.size
        data = bytes(memory(size, shape.seed))
        most = min(AT_ONCE, max(16, shape.tasks * max(1, shape.batch)))
        opened = self.load().AsyncioContext(max_requests=most, **self.options)
        async with opened as context:

            async def read(offset: int) -> None:
                whole(len(await context.read(size, fd, offset)), size)

            async def write(offset: int) -> None:
                whole(await context.write(data, fd, offset), size)

            yield FileMover(shape, lambda: (read, write if place.writes else None))


class CaioAio(Caio):
    """Linux AIO."""

    name = "caio-aio"
    how = "caio, Linux AIO (io_submit); a batch is gathered"
    module = "caio.linux_aio_asyncio"


class CaioUring(Caio):
    """Without the polling thread of the kernel, which would take a processor."""

    name = "caio-uring"
    how = "caio, io_uring without SQPOLL; a batch is gathered"
    module = "caio.linux_uring_asyncio"
    options: ClassVar[dict[str, object]] = {"sqpoll": False}


class PyAio(Peer):
    """io_uring; requests of one turn of the loop go with one system call."""

    name = "pyaio"
    how = "pyaio.uring.UringIO, io_uring and an eventfd; a batch is gathered"
    package = "pyaio"
    module = "pyaio.uring"

    @asynccontextmanager
    async def mover(self, fd: int, place: Place, shape: Shape) -> AsyncGenerator[Mover]:
        """Open a ring."""
        size = shape.size
        data = memory(size, shape.seed)
        async with self.load().UringIO() as ring:

            async def read(offset: int) -> None:
                whole(len(await ring.read(fd, offset, size)), size)

            async def write(offset: int) -> None:
                whole(await ring.write(fd, data, offset), size)

            yield FileMover(shape, lambda: (read, write if place.writes else None))


HOST_PEERS: Final[tuple[Peer, ...]] = (
    ToThread(),
    Blocking(),
    AioFiles(),
    CaioAio(),
    CaioUring(),
    PyAio(),
)


def memory(nbytes: int, seed: int) -> memoryview:
    """Return aligned memory that is there, and holds noise."""
    view = memoryview(mmap.mmap(-1, nbytes))
    fill(view, seed)
    return view


def whole(moved: int, size: int) -> None:
    """Refuse what ended early: it would look fast."""
    if moved != size:
        raise OSError(f"moved {moved} bytes of {size}")
