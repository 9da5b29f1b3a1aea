"""Jobs of a secondary tier over a chunk store: what the tier does, without vLLM.

Everything is called by vLLM's scheduler and returns at once; :meth:`Jobs.drain` and
:meth:`Jobs.close` wait. The chunks move on the store's loop.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds._errors import (
    ClosedError,
    MemoryLayoutError,
    NVMeError,
    OptionError,
    UGDSError,
)
from aiougds._ffi import address_of, ffi
from aiougds._hosted_store import HostedStore
from aiougds.store import ChunkNotFoundError, ChunkPinnedError
from aiougds.store._errors import told

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from typing import Literal

    from aiougds._pinned import RegistrationSlice
    from aiougds._store_options import StoreOptions
    from aiougds.store import StoreEvent

    Presence = Literal["there", "coming", "missing"]

_log: Final = logging.getLogger("aiougds.vllm")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended."""

    job: int
    success: bool
    keys: list[bytes]
    """Those that succeeded."""
    seconds: float
    nbytes: int


class Jobs:
    """Stores and loads of rows of vLLM's primary tier.

    ``prefix`` goes before each key: chunks of other models, or laid out in another
    way, are others.
    """

    def __init__(
        self,
        options: StoreOptions,
        rows: memoryview,
        *,
        prefix: bytes = b"",
        listener: Callable[[StoreEvent], None] = lambda event: None,
    ) -> None:
        self.row_bytes = _row_bytes(rows)
        if options.slot_bytes is not None and options.slot_bytes < self.row_bytes:
            raise OptionError(
                f"slot_bytes={options.slot_bytes} is less than the {self.row_bytes} "
                "bytes of a block of vLLM's: leave it out"
            )
        self._prefix = prefix
        self._ended = threading.Condition()
        self._finished: list[Finished] = []
        self._pending = 0
        self._coming: set[bytes] = set()
        self._spoiled: set[bytes] = set()
        self.hosted = HostedStore(options, name="aiougds-vllm", listener=listener)
        self.store = self.hosted.store
        try:
            memory = rows.cast("B") if rows.ndim != 1 or rows.format != "B" else rows
            self._ptr = address_of(ffi.from_buffer(memory))
            self.hosted.register_arena(memory, self._ptr)
        except BaseException:
            self.hosted.close()
            raise

    # ---- from the scheduler ----

    def look(self, key: bytes) -> Presence:
        """Say whether a chunk can be loaded; from memory."""
        name = self._prefix + key
        there = False
        with self._ended, suppress(ClosedError):
            if name in self._coming:
                return "coming"
            there = name not in self._spoiled and self.store.contains(name)
        return "there" if there else "missing"

    def touch(self, keys: Iterable[bytes]) -> None:
        """Note that chunks were used."""
        names = [self._prefix + key for key in keys]

        async def touch() -> None:
            self.store.touch(names)

        with suppress(ClosedError):
            self.hosted.post(touch)

    def store_rows(self, job: int, keys: Sequence[bytes], rows: Sequence[int]) -> None:
        """Store rows under keys; those that are there already are left alone."""
        names = [self._prefix + key for key in keys]
        with self._ended:
            self._coming.update(names)
        self._begin(job, names, lambda: self._store(job, list(keys), names, list(rows)))

    def load_rows(self, job: int, keys: Sequence[bytes], rows: Sequence[int]) -> None:
        """Load chunks into rows."""
        self._begin(job, (), lambda: self._load(job, list(keys), list(rows)))

    def finished(self) -> list[Finished]:
        """Take the jobs that ended since the last call."""
        with self._ended:
            done, self._finished = self._finished, []
        return done

    @property
    def pending(self) -> int:
        """Jobs that have not ended."""
        return self._pending

    def drain(self) -> None:
        """Wait until no job touches the rows."""
        with self._ended:
            self._ended.wait_for(lambda: not self._pending)

    def close(self) -> None:
        """Let the jobs end, and close the store."""
        self.hosted.close()

    # ---- on the loop ----

    def _begin(
        self,
        job: int,
        coming: Sequence[bytes],
        work: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        with self._ended:
            self._pending += 1
        try:
            self.hosted.post(work)
        except ClosedError:
            self._end(Finished(job, False, [], 0.0, 0), coming)

    def _end(self, done: Finished, came: Sequence[bytes] = ()) -> None:
        with self._ended:
            self._coming.difference_update(came)
            self._finished.append(done)
            self._pending -= 1
            self._ended.notify_all()

    async def _store(
        self, job: int, keys: list[bytes], names: list[bytes], rows: list[int]
    ) -> None:
        done = Finished(job, False, [], 0.0, 0)
        try:
            done = await self._put(job, keys, names, rows)
        finally:  # whatever went wrong: vLLM waits for an answer
            self._end(done, names)

    async def _put(
        self, job: int, keys: list[bytes], names: list[bytes], rows: list[int]
    ) -> Finished:
        began = time.perf_counter()
        results: Sequence[bool | UGDSError]
        try:
            pairs = [
                (name, self._row(row)) for name, row in zip(names, rows, strict=True)
            ]
            results = await self.store.put_many(pairs)
        except UGDSError as error:
            results = told([error] * len(names))
        good: list[bytes] = []
        moved = 0
        for key, name, result in zip(keys, names, results, strict=True):
            if isinstance(result, UGDSError):
                _log.warning("a block was not stored (%s): %s", key.hex(), result)
                continue
            good.append(key)
            moved += self.row_bytes if result else 0
            self._mark(name, spoiled=False)
        taken = time.perf_counter() - began
        return Finished(job, len(good) == len(keys), good, taken, moved)

    async def _load(self, job: int, keys: list[bytes], rows: list[int]) -> None:
        done = Finished(job, False, [], 0.0, 0)
        try:
            done = await self._get(job, keys, rows)
        finally:
            self._end(done)

    async def _get(self, job: int, keys: list[bytes], rows: list[int]) -> Finished:
        began = time.perf_counter()
        names = [self._prefix + key for key in keys]
        results: Sequence[int | UGDSError]
        try:
            pairs = [
                (name, self._row(row)) for name, row in zip(names, rows, strict=True)
            ]
            results = await self.store.get_many(pairs)
        except UGDSError as error:
            results = told([error] * len(names))
        good: list[bytes] = []
        for key, name, result in zip(keys, names, results, strict=True):
            if result == self.row_bytes:
                good.append(key)
                continue
            await self._missed(name, result)
        taken = time.perf_counter() - began
        moved = len(good) * self.row_bytes
        return Finished(job, len(good) == len(keys), good, taken, moved)

    async def _missed(self, name: bytes, result: int | UGDSError) -> None:
        """Have no later lookup promise what cannot be loaded."""
        if isinstance(result, ChunkNotFoundError):
            return  # evicted meanwhile
        _log.warning("a block was not loaded (%s): %s", name.hex(), result)
        if isinstance(result, UGDSError) and not isinstance(result, NVMeError):
            return
        self._mark(name, spoiled=True)
        try:
            await self.store.delete(name)
        except ChunkPinnedError:
            return  # another load holds it; looking it up finds nothing
        except UGDSError as error:
            _log.error("a block cannot be deleted (%s): %s", name.hex(), error)
            return
        self._mark(name, spoiled=False)

    def _mark(self, name: bytes, *, spoiled: bool) -> None:
        with self._ended:
            if spoiled:
                self._spoiled.add(name)
            else:
                self._spoiled.discard(name)

    def _row(self, row: int) -> RegistrationSlice:
        found = self.hosted.within(self._ptr + row * self.row_bytes, self.row_bytes)
        assert found is not None, row
        return found


def _row_bytes(rows: memoryview) -> int:
    if not rows.c_contiguous:
        raise MemoryLayoutError(
            f"the primary tier's memory is not contiguous (shape {rows.shape}, strides "
            f"{rows.strides}): the blocks cannot be registered as one"
        )
    assert rows.strides is not None
    return rows.strides[0]
