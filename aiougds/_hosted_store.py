"""A chunk store on a loop of its own, for hosts with threads: LMCache and vLLM."""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

from aiougds import store as chunks
from aiougds._loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import TypeVar

    from aiougds._options import OpenKeywords
    from aiougds._pinned import RegistrationSlice
    from aiougds._registration import Registration
    from aiougds._store_options import StoreOptions
    from aiougds.store import ChunkStore, StoreEvent

    Result = TypeVar("Result")

_HUGE: Final = 2 << 20
_MADV_COLLAPSE: Final = 25
_DIRECT: Final = 4  # addresses that a device takes are multiples of it


class HostedStore:
    """The store, its loop's thread, and the host's memory that is registered with it.

    ``listener`` is told of every chunk that comes or goes, on the loop, in order.
    Opening it takes as long as its recovery.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        name: str,
        listener: Callable[[StoreEvent], None],
    ) -> None:
        self.options = options
        self._listener = listener
        self._arena: Registration | None = None
        self._arena_ptr = 0
        self._thread: LoopThread[ChunkStore] = LoopThread(self._opened, name=name)
        self.store = self._thread.thing

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[ChunkStore]:
        options = self.options
        opening = chunks.open(
            list(options.addresses),
            create=_layout(options),
            serial=options.serial,
            eviction=options.eviction,
            high=options.high,
            low=options.low,
            checksum=options.checksum,
            flush=options.flush,
            open_options=cast("OpenKeywords", dict(options.open)),
        )
        async with opening as made:
            made.add_listener(self._listener)
            try:
                yield made
            finally:
                if self._arena is not None:
                    await self._arena.aclose()

    # ---- work ----

    @property
    def alive(self) -> bool:
        """Whether it takes work."""
        return self._thread.alive

    def post(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Have a coroutine run on the loop. It must not raise."""
        self._thread.post(work)

    def call(self, work: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Run a coroutine on the loop, and wait for it in this thread."""
        return self._thread.call(work)

    def close(self) -> None:
        """Let posted work end, and close the store."""
        self._thread.close()

    @property
    def broken(self) -> bool:
        """Whether the store can be used no more."""
        return self.store.broken is not None

    # ---- memory ----

    def register_arena(self, memory: memoryview, ptr: int) -> None:
        """Register the host's memory once, so that no transfer pins any of it.

        In huge pages, if the kernel has some: a page is an entry of every list that a
        device, or the kernel's block layer, goes through.
        """
        use_huge_pages(ptr, memory.nbytes)

        async def register() -> None:
            self._arena = await self.store.register(memory)
            self._arena_ptr = ptr

        self.call(register)

    @property
    def arena_bytes(self) -> int:
        """How much of the host's memory is registered."""
        return 0 if self._arena is None else self._arena.nbytes

    def within(self, ptr: int, nbytes: int) -> RegistrationSlice | None:
        """Return registered memory of the arena; None: it is not inside."""
        start = ptr - self._arena_ptr
        if self._arena is None or start < 0 or start + nbytes > self._arena.nbytes:
            return None
        return self._arena[start : start + nbytes]


def _layout(options: StoreOptions) -> chunks.Layout | None:
    """Return the layout of a new store; None: it has to be one already."""
    if not options.create:
        return None
    if options.classes:
        return chunks.Layout(
            classes=tuple(
                chunks.SlotClass(size, share=share) for size, share in options.classes
            ),
            key_bytes=options.key_bytes,
        )
    if options.slot_bytes is None:
        return None
    return chunks.Layout(slot_bytes=options.slot_bytes, key_bytes=options.key_bytes)


def memory_at(ptr: int, nbytes: int) -> memoryview:
    """Return a host's memory, which the host keeps alive, as bytes."""
    return memoryview((ctypes.c_ubyte * nbytes).from_address(ptr)).cast("B")


def use_huge_pages(ptr: int, nbytes: int) -> bool:
    """Ask for huge pages below memory, which keeps what is in it; True: it has them."""
    first, end = -(-ptr // _HUGE) * _HUGE, (ptr + nbytes) // _HUGE * _HUGE
    if first >= end or not sys.platform.startswith("linux"):
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if madvise(first, end - first, mmap.MADV_HUGEPAGE):
        return False
    return not madvise(first, end - first, _MADV_COLLAPSE)  # Linux 6.1


def is_direct(ptr: int) -> bool:
    """Whether a device takes memory at that address as it is."""
    return ptr % _DIRECT == 0
