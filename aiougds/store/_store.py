"""The store: chunks by key, on one device or several."""

from __future__ import annotations

import zlib
from threading import get_ident
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypeVar

import anyio

from aiougds._buffer import ForeignMemory
from aiougds._completion import current_home
from aiougds._errors import UGDSError, WrongLoopError
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._transfer import Clock, check_timeout
from aiougds.store._errors import ChunkPinnedError, check_keys
from aiougds.store._get_many import get_many
from aiougds.store._gets import get_one
from aiougds.store._index import StoreIndex
from aiougds.store._put_many import put_many
from aiougds.store._puts import put_one

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from aiougds._home import Home
    from aiougds._registration import Registration
    from aiougds.store._mount import Mount
    from aiougds.store._shard import Shard


ChunkMemory: TypeAlias = ForeignMemory | PinnedMemory | RegistrationSlice
"""What a chunk's bytes come from and go to: as of reads and writes."""

T = TypeVar("T")
FOREVER: Final = Clock(None)


class ChunkStore(StoreIndex):
    """Chunks by key; made by :func:`aiougds.store.open`.

    It belongs to the event loop that it was opened on, where everything is awaited;
    :meth:`contains`, :meth:`chunk`, :meth:`pin`, :meth:`unpin` and
    :meth:`statistics` may be called from any thread. A key is bytes.

    A chunk is there as a whole or not at all, also after a loss of power at any
    moment: its bytes are written first, and the key is journaled when all of them are
    on the device.

    What is cancelled waits until the device has let go of its memory, as of
    :meth:`aiougds.Namespace.read`. What the device answers is raised as there;
    StoreBrokenError, when the journal cannot be written any more; ClosedError and
    WrongLoopError before anything is done.
    """

    __slots__ = ("_durable", "_home", "_mount")

    def __init__(self, mount: Mount, *, durable: bool, took_s: float) -> None:
        super().__init__(took_s)
        self._mount = mount
        self._home: Home = mount.home
        self._durable = durable

    # ---- of every call ----

    def _here(self, timeout_s: float | None) -> Clock:
        """Check loop and state; return the time limit of the call."""
        home = self._home
        if (
            home.thread != get_ident() or not home.running()
        ) and current_home() is not home:
            raise WrongLoopError(
                "a store is used on the event loop that it was opened on; open one "
                "there, or hand the work over"
            )
        self._check_open()
        if timeout_s is None:
            return FOREVER
        check_timeout(timeout_s)
        return Clock(timeout_s)

    # ---- chunks ----

    async def put(
        self,
        key: bytes,
        buf: ChunkMemory,
        *,
        timeout_s: float | None = None,
        durable: bool | None = None,
    ) -> bool:
        """Store ``buf`` as the chunk of ``key``; False: the key was there already.

        ``buf`` is registered memory (:meth:`allocate`, :meth:`register`, or of a
        namespace of the store), anything that lies in such memory, or other memory,
        which is registered for the call. Any length up to the largest slot; what is
        beyond the last whole block is copied, no more.

        Awaits data, Flush where the device has a volatile cache, and the journal;
        then the key can be seen. ``durable`` says otherwise than ``flush`` of
        :func:`open`. While there is no room it waits for some. Cancelled or late
        nothing can be seen, and the slot comes back when the device is done with it.

        Raises ChunkTooLargeError, StoreFullError (``eviction=None`` only),
        StoreBrokenError, and what :meth:`aiougds.Namespace.write` raises.
        """
        clock = self._here(timeout_s)
        how = self._durable if durable is None else durable
        return await put_one(self._checked(key), key, buf, clock, durable=how)

    async def put_many(
        self,
        items: Iterable[tuple[bytes, ChunkMemory]],
        *,
        timeout_s: float | None = None,
        durable: bool | None = None,
    ) -> list[bool | UGDSError]:
        """Put many chunks, with one wait for all of them; as :meth:`put`.

        Returns for each whether it was written now, or the exception that it failed
        with. Raises only what concerns all of them.
        """
        clock = self._here(timeout_s)
        how = self._durable if durable is None else durable
        return await self._divided(
            items, False, lambda shard, part: put_many(shard, part, clock, durable=how)
        )

    async def get(
        self, key: bytes, into: ChunkMemory, *, timeout_s: float | None = None
    ) -> int:
        """Read the chunk of ``key`` into the first bytes of ``into``; their number.

        Raises ChunkNotFoundError (a KeyError), RangeError when ``into`` is too short,
        ChunkCorruptError when the bytes are not those that were put (the chunk is
        dropped; what is in ``into`` means nothing), and what
        :meth:`aiougds.Namespace.read` raises. The chunk's slot is not used again
        before the read has ended, whoever deletes it meanwhile.
        """
        clock = self._here(timeout_s)
        return await get_one(self._shard(key), key, into, clock)

    async def get_many(
        self,
        items: Iterable[tuple[bytes, ChunkMemory]],
        *,
        timeout_s: float | None = None,
    ) -> list[int | UGDSError]:
        """Read many chunks with one submission for each device; as :meth:`get`.

        Returns for each its bytes or the exception that it failed with. All of them
        are held from the call on.
        """
        clock = self._here(timeout_s)
        return await self._divided(
            items, 0, lambda shard, part: get_many(shard, part, clock)
        )

    async def _divided(
        self,
        items: Iterable[tuple[bytes, ChunkMemory]],
        nothing: T,
        work: Callable[
            [Shard, Sequence[tuple[bytes, object]]], Awaitable[list[T | UGDSError]]
        ],
    ) -> list[T | UGDSError]:
        """Let each device do its part, all at the same time."""
        whole = items if isinstance(items, list) else list(items)
        shards = self._shards
        if len(shards) == 1:
            if nothing is False:  # of gets the index knows which keys there may be
                for key, _ in whole:
                    self._checked(key)
            return await work(shards[0], whole)
        parts: dict[int, list[int]] = {}
        for index, (key, _) in enumerate(whole):
            self._checked(key)
            parts.setdefault(zlib.crc32(key) % len(shards), []).append(index)
        results: list[T | UGDSError] = [nothing] * len(whole)

        async def run(number: int, mine: list[int]) -> None:
            done = await work(shards[number], [whole[i] for i in mine])
            for index, result in zip(mine, done, strict=True):
                results[index] = result

        if len(parts) == 1:
            await run(*next(iter(parts.items())))
            return results
        async with anyio.create_task_group() as tasks:
            for number, mine in parts.items():
                tasks.start_soon(run, number, mine)
        return results

    async def delete(self, key: bytes, *, timeout_s: float | None = None) -> bool:
        """Delete a chunk; False: it was not there.

        It cannot be seen any more at once; with ``flush="put"`` the deletion is
        durable when it returns. Raises ChunkPinnedError while it is pinned.
        """
        (result,) = await self.delete_many([key], timeout_s=timeout_s)
        if isinstance(result, UGDSError):
            raise result
        return result

    async def delete_many(
        self, keys: Iterable[bytes], *, timeout_s: float | None = None
    ) -> list[bool | ChunkPinnedError]:
        """Delete chunks, with one wait for all of them; as :meth:`delete`."""
        clock = self._here(timeout_s)
        results: list[bool | ChunkPinnedError] = []
        tickets: dict[int, tuple[Shard, int]] = {}
        asked = list(keys)
        check_keys(asked)
        for key in asked:
            shard = self._shard(key)
            slot = shard.slots.index.get(key)
            if slot is None:
                results.append(False)
                continue
            shard.journal.check()
            try:
                ticket = shard.remove(slot, "deleted")
            except ChunkPinnedError as error:
                results.append(error.with_traceback(None))
                continue
            shard.counts.deletes += 1
            results.append(True)
            tickets[id(shard)] = (shard, ticket)
        if self._durable:
            for shard, ticket in tickets.values():
                await shard.journal.settle(ticket, clock)
        return results

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Have everything durable that was put or deleted before."""
        clock = self._here(timeout_s)
        for shard in self._shards:
            shard.journal.check()
            await shard.journal.settle(shard.journal.added, clock)

    # ---- memory ----

    async def allocate(self, nbytes: int) -> Registration:
        """Return fresh memory, registered with every device of the store."""
        return await self._mapped(self._shards[0].disk.ns.allocate(nbytes))

    async def register(self, obj: ForeignMemory) -> Registration:
        """Register memory with every device of the store; close it before the store."""
        return await self._mapped(self._shards[0].disk.ns.register(obj))

    async def _mapped(self, registration: Registration) -> Registration:
        reg = await registration
        try:
            for shard in self._shards[1:]:
                await reg.map(shard.disk.ns)
        except BaseException:
            await reg.abandon_off_loop()
            raise
        return reg

    # ---- the end ----

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._closed

    async def aclose(self, *, timeout_s: float | None = None) -> None:
        """Make everything durable, write checkpoints, and give the devices back.

        Puts and gets should have ended. What cannot be written any more (the device
        is broken) is left as after a loss of power.
        """
        if self._closed:
            return
        clock = self._here(timeout_s)
        self._closed = True
        await self._mount.end(self._shards, clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self)} chunks"
        return f"<ChunkStore on {len(self._shards)} devices, {state}>"
