"""A crash-safe store of chunks on raw namespaces.

.. code-block:: python

    layout = aiougds.store.Layout(slot_bytes=4 << 20)
    async with aiougds.store.open(["emu:kv.bin?size=8GiB"], create=layout) as store:
        memory = await store.allocate(4 << 20)
        await store.put(b"key", memory[:3_000_001])
        n = await store.get(b"key", memory)

Chunks of any length by key, on one device or striped over several; an index in
memory, a journal and checkpoints on the device; LRU or ARC eviction. After a loss of
power, at any moment, each chunk is there as a whole or not at all.
"""

from __future__ import annotations

from aiougds import _public as _public  # what errors are called
from aiougds.store._check import CheckReport, check
from aiougds.store._checksum import Checksum
from aiougds.store._errors import (
    ChunkCorruptError,
    ChunkNotFoundError,
    ChunkPinnedError,
    ChunkTooLargeError,
    OccupiedError,
    StoreBrokenError,
    StoreError,
    StoreFormatError,
    StoreFullError,
)
from aiougds.store._index import StoreListener
from aiougds.store._layout import Layout, Place, SlotClass
from aiougds.store._open import (
    DeviceInfo,
    Devices,
    Flush,
    StoreInfo,
    StoreKeywords,
    format,  # noqa: A004
    info,
    open,  # noqa: A004
)
from aiougds.store._policy import Eviction
from aiougds.store._statistics import (
    Capacity,
    ChunkInfo,
    EventKind,
    StoreEvent,
    StoreStatistics,
)
from aiougds.store._store import ChunkMemory, ChunkStore

__all__ = [
    "Capacity",
    "CheckReport",
    "Checksum",
    "ChunkCorruptError",
    "ChunkInfo",
    "ChunkMemory",
    "ChunkNotFoundError",
    "ChunkPinnedError",
    "ChunkStore",
    "ChunkTooLargeError",
    "DeviceInfo",
    "Devices",
    "EventKind",
    "Eviction",
    "Flush",
    "Layout",
    "OccupiedError",
    "Place",
    "SlotClass",
    "StoreBrokenError",
    "StoreError",
    "StoreEvent",
    "StoreFormatError",
    "StoreFullError",
    "StoreInfo",
    "StoreKeywords",
    "StoreListener",
    "StoreStatistics",
    "check",
    "format",
    "info",
    "open",
]

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type) or hasattr(_value, "__code__"):
        _value.__module__ = __name__
