"""The chunk store without an event loop, for programs that use threads.

.. code-block:: python

    layout = aiougds.store.Layout(slot_bytes=4 << 20)
    with aiougds.store.blocking.open(["emu:kv.bin?size=8GiB"], create=layout) as store:
        with store.allocate(4 << 20) as memory:
            store.put(b"key", memory[:3_000_001])
            n = store.get(b"key", memory)

The names are those of :mod:`aiougds.store`, with ``close`` for ``aclose``. A store
lives on an event loop in a thread of its own, and may be used from any thread: what
several of them put at a time is journaled together. A call hands its work over and
waits for it, some 50 us; ``put_many`` and ``get_many`` do that once for all. A call
inside a running event loop is refused. Ctrl-C interrupts a call once the device has
let go of the memory.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from aiougds import _public as _public  # what errors are called
from aiougds import store as awaitable
from aiougds._blocking_namespace import Namespace
from aiougds._completion import refuse_inside_loop
from aiougds._loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Iterator,
    )
    from types import TracebackType

    from aiougds import Namespace as AsyncNamespace
    from aiougds._blocking_base import Registration
    from aiougds._buffer import ForeignMemory
    from aiougds._errors import UGDSError
    from aiougds._open import Opening
    from aiougds._options import OpenKeywords
    from aiougds.store import (
        Capacity,
        CheckReport,
        ChunkInfo,
        ChunkPinnedError,
        Layout,
        StoreEvent,
        StoreInfo,
        StoreStatistics,
    )
    from aiougds.store._open import StoreKeywords
    from aiougds.store._store import ChunkMemory

    Devices = Iterable[str | Namespace]

__all__ = ["ChunkStore", "check", "format", "info", "open"]

T = TypeVar("T")


def _plain(devices: Devices) -> list[str | AsyncNamespace]:
    """Return addresses, and the namespaces inside the blocking ones."""
    many = [devices] if isinstance(devices, (str, Namespace)) else list(devices)
    return [one._ns if isinstance(one, Namespace) else one for one in many]


def _run(work: Callable[[], Coroutine[object, object, T]]) -> T:
    refuse_inside_loop()
    return asyncio.run(work())


def format(  # noqa: A001
    devices: Devices,
    layout: Layout,
    *,
    serial: str | None = None,
    open_options: OpenKeywords | None = None,
) -> StoreInfo:
    """Make an empty store; as :func:`aiougds.store.format`."""
    found = _plain(devices)
    return _run(
        lambda: awaitable.format(
            found, layout, serial=serial, open_options=open_options
        )
    )


def info(devices: Devices, *, open_options: OpenKeywords | None = None) -> StoreInfo:
    """Tell what the superblocks say; as :func:`aiougds.store.info`."""
    found = _plain(devices)
    return _run(lambda: awaitable.info(found, open_options=open_options))


def check(
    devices: Devices, *, data: bool = False, open_options: OpenKeywords | None = None
) -> CheckReport:
    """Compare index and slots; as :func:`aiougds.store.check`."""
    found = _plain(devices)
    return _run(lambda: awaitable.check(found, data=data, open_options=open_options))


def open(  # noqa: A001
    devices: Devices, **options: Unpack[StoreKeywords]
) -> ChunkStore:
    """Open a store; as :func:`aiougds.store.open`, with the same keywords.

    Returns when its index has been read.
    """
    refuse_inside_loop()
    found = _plain(devices)
    return ChunkStore(lambda: awaitable.open(found, **options))


class ChunkStore:
    """Chunks by key, for threads; made by :func:`aiougds.store.blocking.open`.

    As :class:`aiougds.store.ChunkStore`, and every call from any thread.
    """

    __slots__ = ("_store", "_thread")

    def __init__(self, opening: Callable[[], Opening[awaitable.ChunkStore]]) -> None:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[awaitable.ChunkStore]:
            async with opening() as store:
                yield store

        self._thread: LoopThread[awaitable.ChunkStore] = LoopThread(
            opened, name="aiougds-store"
        )
        self._store = self._thread.thing

    def _call(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        refuse_inside_loop()
        return self._thread.call(work)

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._call(run)

    # ---- chunks ----

    def put(
        self,
        key: bytes,
        buf: ChunkMemory,
        *,
        timeout_s: float | None = None,
        durable: bool | None = None,
    ) -> bool:
        """Store a chunk; as :meth:`aiougds.store.ChunkStore.put`."""
        return self._call(
            lambda: self._store.put(key, buf, timeout_s=timeout_s, durable=durable)
        )

    def put_many(
        self,
        items: Iterable[tuple[bytes, ChunkMemory]],
        *,
        timeout_s: float | None = None,
        durable: bool | None = None,
    ) -> list[bool | UGDSError]:
        """Put many, with one wait; as :meth:`aiougds.store.ChunkStore.put_many`."""
        many = list(items)
        return self._call(
            lambda: self._store.put_many(many, timeout_s=timeout_s, durable=durable)
        )

    def get(
        self, key: bytes, into: ChunkMemory, *, timeout_s: float | None = None
    ) -> int:
        """Read a chunk into the first bytes of ``into``; their number."""
        return self._call(lambda: self._store.get(key, into, timeout_s=timeout_s))

    def get_many(
        self,
        items: Iterable[tuple[bytes, ChunkMemory]],
        *,
        timeout_s: float | None = None,
    ) -> list[int | UGDSError]:
        """Read many chunks with one submission for each device."""
        many = list(items)
        return self._call(lambda: self._store.get_many(many, timeout_s=timeout_s))

    def delete(self, key: bytes, *, timeout_s: float | None = None) -> bool:
        """Delete a chunk; False: it was not there."""
        return self._call(lambda: self._store.delete(key, timeout_s=timeout_s))

    def delete_many(
        self, keys: Iterable[bytes], *, timeout_s: float | None = None
    ) -> list[bool | ChunkPinnedError]:
        """Delete chunks, with one wait for all of them."""
        many = list(keys)
        return self._call(lambda: self._store.delete_many(many, timeout_s=timeout_s))

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Have everything durable that was put or deleted before."""
        self._call(lambda: self._store.flush(timeout_s=timeout_s))

    # ---- looking: from memory, without the other thread ----

    def contains(self, key: bytes) -> bool:
        """Whether the chunk is there; no use of it, as far as eviction goes."""
        return self._store.contains(key)

    def contains_many(self, keys: Iterable[bytes]) -> list[bool]:
        """Tell for each key whether its chunk is there."""
        return self._store.contains_many(keys)

    def __contains__(self, key: bytes) -> bool:
        return self._store.contains(key)

    def __len__(self) -> int:
        return len(self._store)

    def chunk(self, key: bytes) -> ChunkInfo:
        """Return what is known of a chunk, or raise ChunkNotFoundError."""
        return self._store.chunk(key)

    def pin(self, key: bytes) -> int:
        """Keep a chunk from eviction and deletion; its generation, 0: not there."""
        return self._store.pin(key)

    def unpin(self, key: bytes, generation: int | None = None) -> bool:
        """Take one pin back; as :meth:`aiougds.store.ChunkStore.unpin`."""
        return self._store.unpin(key, generation)

    @contextmanager
    def pinned(self, key: bytes) -> Generator[ChunkInfo]:
        """Pin a chunk for as long as a ``with``; ChunkNotFoundError: not there."""
        with self._store.pinned(key) as found:
            yield found

    @property
    def capacity(self) -> Capacity:
        """How much there is room for."""
        return self._store.capacity

    def slot_bytes_for(self, nbytes: int) -> int:
        """Return the size of the slot that a chunk of so many bytes gets."""
        return self._store.slot_bytes_for(nbytes)

    def statistics(self) -> StoreStatistics:
        """Return the counters of this moment."""
        return self._store.statistics()

    @property
    def broken(self) -> str | None:
        """Why nothing can be put any more; None: it can."""
        return self._store.broken

    # ---- on its loop ----

    def touch(self, keys: Iterable[bytes]) -> None:
        """Note that chunks were used by whoever has a copy."""
        many = list(keys)
        self._on_loop(lambda: self._store.touch(many))

    def scan(self) -> Iterator[tuple[bytes, ChunkInfo]]:
        """Iterate over the chunks of this moment, those of a device oldest first."""
        return iter(self._on_loop(lambda: list(self._store.scan())))

    def add_listener(
        self, listener: Callable[[StoreEvent], object], *, replay: bool = False
    ) -> None:
        """Call ``listener`` with each event, in the store's own thread.

        As :meth:`aiougds.store.ChunkStore.add_listener` with ``replay``.
        It must not wait, and no call of this store may be made from it that does.
        """
        self._on_loop(lambda: self._store.add_listener(listener, replay=replay))

    def remove_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call ``listener`` no more."""
        self._on_loop(lambda: self._store.remove_listener(listener))

    # ---- memory ----

    def allocate(self, nbytes: int) -> Registration:
        """Return fresh memory, registered with every device of the store."""
        first, *others = self._namespaces()
        return self._mapped(first.allocate(nbytes), others)

    def register(self, obj: ForeignMemory) -> Registration:
        """Register memory with every device of the store; close it before the store."""
        first, *others = self._namespaces()
        return self._mapped(first.register(obj), others)

    def _namespaces(self) -> list[Namespace]:
        refuse_inside_loop()
        return [Namespace(shard.disk.ns) for shard in self._store._shards]

    def _mapped(self, reg: Registration, others: list[Namespace]) -> Registration:
        try:
            reg.__enter__()
            for other in others:
                reg.map(other)
        except BaseException:
            reg.abandon()
            raise
        return reg

    # ---- the end ----

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return not self._thread.alive

    def close(self) -> None:
        """Let calls of other threads end, and close it; as ``aclose``."""
        refuse_inside_loop()
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} chunks"
        return f"<blocking ChunkStore on {len(self._store._shards)} devices, {state}>"
