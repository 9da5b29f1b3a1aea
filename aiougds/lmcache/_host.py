"""What is used of LMCache, typed by us: the only module that imports its L2 interface.

LMCache ships no types, and type checkers run without it. What stands below
``TYPE_CHECKING`` says what of it is relied on, as it is in 0.5.6 and 0.5.7.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol, Self

    class ObjectKey:
        """The identity of a chunk."""

        def __init__(
            self,
            chunk_hash: bytes,
            model_name: str,
            kv_rank: int,
            object_group_id: int = 0,
            cache_salt: str = "",
        ) -> None: ...
        @property
        def chunk_hash(self) -> bytes: ...
        @property
        def model_name(self) -> str: ...
        @property
        def kv_rank(self) -> int: ...
        @property
        def object_group_id(self) -> int: ...
        @property
        def cache_salt(self) -> str: ...
        def __hash__(self) -> int: ...
        def to_encoded_object_key(self) -> object: ...

    class KeyEntry:
        """A line of a list of keys."""

        def __init__(self, *, key: object, size_bytes: int) -> None: ...

    class KeyListPage:
        """A part of a list of keys."""

        def __init__(
            self, *, entries: tuple[KeyEntry, ...], next_page_token: str | None
        ) -> None: ...

    class L2StoreResult(int):
        """How a store task ended."""

        def __new__(cls, success: bool, bytes_transferred: int) -> Self: ...

    class Bitmap:
        """Bits, one for each key."""

        def __init__(self, size: int) -> None: ...
        def set(self, index: int) -> None: ...

    class L1MemoryDesc:
        """LMCache's memory."""

        ptr: int
        size: int
        stable_registration_size: int | None

    class EventNotifier(Protocol):
        """A file descriptor that can be polled."""

        def fileno(self) -> int: ...
        def notify(self) -> None: ...
        def close(self) -> None: ...

    def create_event_notifier() -> EventNotifier: ...

    class L2AdapterListener(Protocol):
        """Is told what comes and goes."""

        def on_l2_keys_stored(
            self, keys: list[ObjectKey], sizes: list[int]
        ) -> object: ...

    class L2AdapterInterface:
        """The base class of adapters, with the byte accounting."""

        def __init__(self, max_capacity_bytes: int = 0) -> None: ...
        def register_listener(self, listener: L2AdapterListener) -> None: ...
        def _notify_keys_stored(
            self, keys: list[ObjectKey], sizes: list[int]
        ) -> None: ...
        def _notify_keys_accessed(self, keys: list[ObjectKey]) -> None: ...
        def _notify_keys_deleted(
            self, keys: list[ObjectKey], sizes: list[int]
        ) -> None: ...

    class L2AdapterConfigBase:
        """The base class of configurations."""

        @classmethod
        def from_dict(cls, d: Mapping[str, object]) -> Self: ...
        @classmethod
        def help(cls) -> str: ...

else:
    from lmcache.lmcache_native import Bitmap
    from lmcache.v1.distributed.api import KeyEntry, KeyListPage, ObjectKey
    from lmcache.v1.distributed.internal_api import (
        L1MemoryDesc,
        L2AdapterListener,
        L2StoreResult,
    )
    from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
    from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
    from lmcache.v1.platform import EventNotifier, create_event_notifier

__all__ = [
    "Bitmap",
    "EventNotifier",
    "KeyEntry",
    "KeyListPage",
    "L1MemoryDesc",
    "L2AdapterConfigBase",
    "L2AdapterInterface",
    "L2AdapterListener",
    "L2StoreResult",
    "ObjectKey",
    "create_event_notifier",
    "local_storage_tags",
]


def local_storage_tags() -> object:
    """Return LMCache's tags for storage of this host; from 0.5.7 on."""
    api = importlib.import_module("lmcache.v1.distributed.api")
    tags: object = api.MemoryTags(api.MemorySegment.STORAGE, api.MemoryResidency.LOCAL)
    return tags
