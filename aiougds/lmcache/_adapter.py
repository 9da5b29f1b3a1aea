"""The L2 adapter of LMCache's multiprocess mode, one class for 0.5.6 and 0.5.7."""

from __future__ import annotations

import base64
import bisect
import logging
from typing import TYPE_CHECKING, Final, Self

from aiougds._errors import OptionError
from aiougds._store_options import HELP, StoreOptions
from aiougds.lmcache._host import (
    Bitmap,
    KeyEntry,
    KeyListPage,
    L1MemoryDesc,
    L2AdapterConfigBase,
    L2AdapterInterface,
    L2AdapterListener,
    L2StoreResult,
    ObjectKey,
    create_event_notifier,
    local_storage_tags,
)
from aiougds.lmcache._keys import decode
from aiougds.lmcache._work import Found, MemoryObject, Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiougds.store import StoreEvent

_log: Final = logging.getLogger("aiougds.lmcache")


class AiougdsL2AdapterConfig(L2AdapterConfigBase):
    """``adapter_params`` of :class:`AiougdsL2Adapter`, checked."""

    def __init__(self, options: StoreOptions, *, register_arena: bool = True) -> None:
        self.options = options
        self.register_arena = register_arena

    @classmethod
    def from_dict(cls, d: Mapping[str, object]) -> Self:
        """Check what was configured; OptionError, a ValueError, says what is wrong."""
        register = d.get("register_arena", True)
        if not isinstance(register, bool):
            raise OptionError(f"register_arena={register!r}: true or false is needed")
        options = StoreOptions.parse(d, more=("register_arena",))
        return cls(options, register_arena=register)

    @classmethod
    def help(cls) -> str:
        """Say what ``adapter_params`` may hold."""
        return (
            f"aiougds adapter_params:\n{HELP}\n"
            "- register_arena (bool): register LMCache's memory once, at the start\n"
            "    (default true)"
        )


class AiougdsL2Adapter(L2AdapterInterface):
    """Keeps LMCache's chunks in a crash-safe store on raw namespaces.

    ``--l2-adapter '{"type": "plugin", "module_path": "aiougds.lmcache", "class_name":
    "AiougdsL2Adapter", "adapter_params": {"addresses": "emu:/data/kv.img?size=100GiB",
    "slot_bytes": 4194304}}'``

    Lookups and locks are answered from memory, in the thread that asks. What was
    published is there after a restart, and LMCache's eviction is told of it.
    """

    def __init__(
        self,
        params: AiougdsL2AdapterConfig | Mapping[str, object],
        l1_memory_desc: L1MemoryDesc | None = None,
    ) -> None:
        config = (
            params
            if isinstance(params, AiougdsL2AdapterConfig)
            else AiougdsL2AdapterConfig.from_dict(params)
        )
        self._closed = False
        self._notifiers = [create_event_notifier() for _ in range(3)]
        store, lookup, load = self._notifiers
        self._ready = False
        self._work: Work[ObjectKey]
        try:
            self._work = Work(
                config.options,
                listener=self._happened,
                accessed=self._notify_keys_accessed,
                stored=store.notify,
                looked_up=lookup.notify,
                loaded=load.notify,
            )
            capacity = self._work.store.capacity.bytes
            super().__init__(max_capacity_bytes=capacity)
            self._ready = True
            keys, sizes = self._restored()
            self._notify_keys_stored(keys, sizes)
            if config.register_arena and l1_memory_desc is not None:
                self._register(l1_memory_desc)
        except BaseException:
            self.close()
            raise

    # ---- file descriptors ----

    def get_store_event_fd(self) -> int:
        """Return what is signalled when a store task is done."""
        return self._notifiers[0].fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        """Return what is signalled when a lookup is done."""
        return self._notifiers[1].fileno()

    def get_load_event_fd(self) -> int:
        """Return what is signalled when a load task is done."""
        return self._notifiers[2].fileno()

    # ---- tasks ----

    def submit_store_task(
        self, keys: Sequence[ObjectKey], objects: Sequence[MemoryObject]
    ) -> int:
        """Store a batch; returns at once."""
        return self._work.submit_store(keys, objects)

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Take the results of all store tasks that are done."""
        return {
            task: L2StoreResult(success, moved)
            for task, (success, moved) in self._work.stored.take_all().items()
        }

    def submit_lookup_and_lock_task(
        self, keys: Sequence[ObjectKey], group_layout_descs: object = None
    ) -> int:
        """Look keys up, and keep what is there from going; answered at once."""
        return self._work.submit_lookup(keys)

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Take the result of a lookup, once."""
        return _bitmap(self._work.looked_up.take(task_id))

    def submit_unlock(self, keys: Sequence[ObjectKey]) -> None:
        """Give locks back."""
        self._work.unlock(keys)

    def submit_load_task(
        self, keys: Sequence[ObjectKey], objects: Sequence[MemoryObject]
    ) -> int:
        """Load a batch into the objects; returns at once."""
        return self._work.submit_load(keys, objects)

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """Take the result of a load, once."""
        return _bitmap(self._work.loaded.take(task_id))

    # ---- what there is ----

    def delete(self, keys: Sequence[ObjectKey]) -> None:
        """Delete what is not locked; done when it returns."""
        self._work.delete(keys)

    def register_listener(self, listener: L2AdapterListener) -> None:
        """Tell a listener what comes and goes, beginning with what is there now."""
        super().register_listener(listener)
        keys, sizes = self._restored()
        if keys:
            listener.on_l2_keys_stored(keys, sizes)

    def list_l2_keys(
        self,
        model_name: str | None = None,
        page_size: int = 500,
        cursor: str | None = None,
    ) -> KeyListPage:
        """List what is there, a page at a time, in the order of the stored names."""
        if page_size <= 0:
            raise OptionError(f"page_size={page_size}: 1 at least")
        chunks = sorted(self._work.snapshot())
        begin = 0
        if cursor is not None:
            begin = bisect.bisect_right(
                chunks, _name_of(cursor), key=lambda one: one[0]
            )
        entries: list[KeyEntry] = []
        last = None
        for name, nbytes in chunks[begin:]:
            fields = decode(name)
            if fields is None or model_name not in (None, fields.model_name):
                continue
            if len(entries) == page_size:
                break
            entries.append(
                KeyEntry(
                    key=ObjectKey(*fields).to_encoded_object_key(),
                    size_bytes=nbytes,
                )
            )
            last = name
        else:
            last = None
        token = None if last is None else base64.b16encode(last).decode()
        return KeyListPage(entries=tuple(entries), next_page_token=token)

    def get_memory_tags(self) -> object:
        """Return where the bytes lie, for LMCache 0.5.7."""
        return local_storage_tags()

    def report_status(self) -> dict[str, object]:
        """Return whether it is healthy, and what it has done."""
        report = self._work.report()
        healthy = bool(report["is_healthy"]) and not self._closed
        return {"type": "AiougdsL2Adapter", **report, "is_healthy": healthy}

    def close(self) -> None:
        """Let tasks end, close the store and the file descriptors."""
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "_work"):
            self._work.close()
        for notifier in self._notifiers:
            notifier.close()

    # ---- inside ----

    def _register(self, arena: L1MemoryDesc) -> None:
        # A lazy arena grows: only the part that stays as it is.
        nbytes = arena.stable_registration_size or 0
        if nbytes:
            self._work.register_arena(arena.ptr, min(nbytes, arena.size))
        else:
            _log.info(
                "LMCache names no part of its memory that stays as it is: transfers "
                "pin what they need, each for itself"
            )

    def _happened(self, event: StoreEvent) -> None:
        """Tell LMCache; on the store's loop, in the order in which it happened."""
        if not self._ready:
            return  # counted with what was restored
        keys: list[ObjectKey] = []
        sizes: list[int] = []
        for name, nbytes in event.items:
            fields = decode(name)
            if fields is not None:
                keys.append(ObjectKey(*fields))
                sizes.append(self._work.charge(nbytes))
        if event.kind == "stored":
            self._notify_keys_stored(keys, sizes)
        elif event.kind in ("evicted", "deleted", "corrupt"):
            self._notify_keys_deleted(keys, sizes)

    def _restored(self) -> tuple[list[ObjectKey], list[int]]:
        keys: list[ObjectKey] = []
        sizes: list[int] = []
        for name, nbytes in self._work.snapshot():
            fields = decode(name)
            if fields is not None:
                keys.append(ObjectKey(*fields))
                sizes.append(self._work.charge(nbytes))
        return keys, sizes


def _bitmap(found: Found | None) -> Bitmap | None:
    if found is None:
        return None
    bits = Bitmap(found.asked)
    for index in found.indices:
        bits.set(index)
    return bits


def _name_of(cursor: str) -> bytes:
    try:
        return base64.b16decode(cursor)
    except ValueError:
        raise OptionError(
            f"cursor={cursor!r} is none of ours: begin without one"
        ) from None
