"""The secondary tier, as vLLM's scheduler uses it."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from aiougds._store_options import StoreOptions
from aiougds.vllm._host import (
    JobResult,
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingSpec,
    RequestOffloadingContext,
    SecondaryTierManager,
    TransferJob,
    layout_digest,
)
from aiougds.vllm._jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds.store import StoreEvent

_log: Final = logging.getLogger("aiougds.vllm")
_ANSWERS: Final = {
    "there": LookupResult.HIT,
    "coming": LookupResult.RETRY,
    "missing": LookupResult.MISS,
}


class AiougdsTier(SecondaryTierManager):
    """A tier of raw namespaces: blocks in a crash-safe store, there after a restart.

    A member of ``secondary_tiers``: ``{"type": "AiougdsTier", "module_path":
    "aiougds.vllm", "addresses": "emu:/data/kv.img?size=100GiB"}``, and what
    :class:`aiougds.lmcache.AiougdsL2AdapterConfig` takes besides. Slots are as large as
    a block unless said otherwise.
    """

    medium: ClassVar[Medium | None] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: object = None,
        *,
        enable_kv_events: bool = False,
        locality: str | None = None,
        **options: object,
    ) -> None:
        super().__init__(
            offloading_spec, primary_kv_view, tier_type, backpressure_detector
        )
        self.locality = None if locality is None else Locality(locality)
        self._events: deque[OffloadingEvent] | None = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self._events = deque()
        wanted = StoreOptions.parse(options)
        if wanted.slot_bytes is None and not wanted.classes:
            assert primary_kv_view.strides is not None
            row = primary_kv_view.strides[0]
            wanted = dataclasses.replace(wanted, slot_bytes=row)
        self._prefix = layout_digest(offloading_spec)
        self._jobs = Jobs(
            wanted, primary_kv_view, prefix=self._prefix, listener=self._happened
        )
        _log.info(
            "tier of %d chunks of %d bytes on %s; %d are there",
            self._jobs.store.capacity.slots,
            self._jobs.row_bytes,
            ", ".join(wanted.addresses),
            len(self._jobs.store),
        )

    # ---- what the scheduler asks ----

    def lookup(self, key: bytes, req_context: object) -> LookupResult:
        """Say whether a chunk is there; from memory."""
        return _ANSWERS[self._jobs.look(key)]

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Begin to store chunks of the primary tier."""
        job = job_metadata
        self._jobs.store_rows(job.job_id, list(job.keys), _numbers(job.chunk_ids))

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Begin to load chunks into the primary tier."""
        job = job_metadata
        self._jobs.load_rows(job.job_id, list(job.keys), _numbers(job.chunk_ids))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Return how jobs ended, each with the keys that succeeded, time and bytes."""
        return [
            JobResult(
                done.job,
                done.success,
                successful_keys=None if done.success else done.keys,
                transfer_time=done.seconds,
                transfer_bytes=done.nbytes,
            )
            for done in self._jobs.finished()
        ]

    def has_pending_work(self) -> bool:
        """Whether jobs are under way."""
        return self._jobs.pending > 0

    def touch(self, keys: Iterable[bytes], req_context: object) -> None:
        """Note that chunks were used."""
        self._jobs.touch(keys)

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return what came and went since the last call, if that was asked for."""
        if self._events is None:
            return ()
        return [self._events.popleft() for _ in range(len(self._events))]

    def on_new_request(self, req_context: object) -> RequestOffloadingContext:
        """Chunks are offloaded as they come."""
        return RequestOffloadingContext()

    def drain_jobs(self) -> None:
        """Wait until no job touches the primary tier."""
        self._jobs.drain()

    def shutdown(self) -> None:
        """Let jobs end, and close the store."""
        self._jobs.close()

    # ---- inside ----

    def _happened(self, event: StoreEvent) -> None:
        """Note an event; on the store's loop."""
        if self._events is None or event.kind == "restored":
            return
        size = len(self._prefix)
        keys = [name[size:] for name, _ in event.items if name[:size] == self._prefix]
        if keys:
            self._events.append(
                OffloadingEvent(
                    keys=keys,
                    medium=Medium.STORAGE,
                    removed=event.kind != "stored",
                    locality=self.locality,
                    ownership=self.tier_type,
                )
            )


def _numbers(rows: Iterable[int]) -> list[int]:
    return [int(row) for row in rows]
