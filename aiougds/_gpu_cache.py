"""Allocations of frameworks that stay registered: what ``cached=True`` is about.

A framework's allocator cuts its tensors out of large allocations that it rarely gives
back. Such an allocation is registered once, with its first tensor, and every later one
looks into that mapping. It is known by the runtime's buffer id, not by its address
alone: what was freed, and what took its place, is noticed and let go of.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from aiougds._errors import ClosedError, RangeError
from aiougds._gpu_memory import GPUMemory
from aiougds._pinned import PinnedMemory

if TYPE_CHECKING:
    from typing import Final

    from aiougds._device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationCache:
    """What is kept of ``register(..., cached=True)`` now, and how well it did."""

    entries: int
    """Allocations that are registered."""
    nbytes: int
    """Their bytes."""
    max_entries: int
    """The limit ``gpu_cache_entries``."""
    max_bytes: int
    """The limit ``gpu_cache_bytes``."""
    hits: int
    """Registrations that found their allocation registered."""
    misses: int
    """Those that had it registered."""
    stale: int
    """Allocations found to be freed, and let go of."""
    evictions: int
    """Allocations let go of because of a limit, least recently used first."""


class _Segment(PinnedMemory):
    """A registered allocation. Its end is the cache's."""

    __slots__ = ()

    asked_for = False

    def __del__(self) -> None:
        if self._memory is not None and self._mappings:
            self._strays()  # its controller was dropped, which warns by itself


class SegmentCache:
    """The registered allocations of one controller; any thread may use it."""

    __slots__ = (
        "__weakref__",
        "_device",
        "_lock",
        "_segments",
        "evictions",
        "hits",
        "misses",
        "stale",
    )

    def __init__(self, device: Device) -> None:
        self._device = ref(device)
        self._lock = threading.Lock()
        self._segments: OrderedDict[int, _Segment] = OrderedDict()  # by address
        self.hits = self.misses = self.stale = self.evictions = 0
        _caches.add(self)

    def hold(self, device: Device, memory: GPUMemory) -> None:
        """Have the allocation around some memory registered. May block."""
        whole = memory.whole()
        limit = device.options.gpu_cache_bytes
        if whole.nbytes > limit:
            raise RangeError(
                f"{memory.what} lies in an allocation of {whole.nbytes} bytes, more "
                f"than gpu_cache_bytes={limit} of open(): raise it, or leave out "
                "cached=True"
            )
        with self._lock:
            known = self._segments.get(whole.ptr)
            if (
                known is not None
                and known._memory is not None
                and (memory.lies_in(known._memory))
            ):
                self._segments.move_to_end(whole.ptr)
                self.hits += 1
                return
            self.misses += 1
            self._drop_stale()
            if whole.ptr in self._segments:  # it has grown since
                self.stale += 1
                self._let_go(whole.ptr)
            self._make_room(whole.nbytes, device)
            segment = _Segment(whole, device)
            try:
                segment._map_now(device)
            except BaseException:
                segment.abandon()
                raise
            self._segments[whole.ptr] = segment
            if device.closing or device.ended:  # after drop() looked, perhaps
                self._let_go(whole.ptr)
                raise ClosedError(f"{device.address} is being closed")

    def _drop_stale(self) -> None:
        for base, segment in list(self._segments.items()):
            memory = segment._memory
            if not isinstance(memory, GPUMemory) or not memory.is_there():
                self.stale += 1
                self._let_go(base)

    def _make_room(self, nbytes: int, device: Device) -> None:
        options = device.options
        while self._segments and (
            len(self._segments) >= options.gpu_cache_entries
            or self._nbytes() + nbytes > options.gpu_cache_bytes
        ):
            self.evictions += 1
            self._let_go(next(iter(self._segments)))

    def _let_go(self, base: int) -> None:
        # Unmapped as soon as the device is done with it, and nothing looks into it.
        self._segments.pop(base).abandon()

    def _nbytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments.values())

    def drop(self) -> None:
        """Let go of everything. May block."""
        with self._lock:
            for base in list(self._segments):
                self._let_go(base)

    def info(self) -> RegistrationCache:
        """Return what there is."""
        device = self._device()
        assert device is not None  # whoever asks has it
        with self._lock:
            return RegistrationCache(
                entries=len(self._segments),
                nbytes=self._nbytes(),
                max_entries=device.options.gpu_cache_entries,
                max_bytes=device.options.gpu_cache_bytes,
                hits=self.hits,
                misses=self.misses,
                stale=self.stale,
                evictions=self.evictions,
            )

    def forget(self) -> None:
        """In a fork's child: nothing is registered, and the lock may be held."""
        self._lock = threading.Lock()
        self._segments = OrderedDict()


def segments_of(device: Device) -> SegmentCache:
    """Return a controller's cache; make it if it has none."""
    with device.lock:
        if not isinstance(device.cache, SegmentCache):
            device.cache = SegmentCache(device)
        return device.cache


_caches: Final[WeakSet[SegmentCache]] = WeakSet()


def _forget_all() -> None:
    for cache in list(_caches):
        cache.forget()


os.register_at_fork(after_in_child=_forget_all)
