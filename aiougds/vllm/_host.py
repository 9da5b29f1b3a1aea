"""What is used of vLLM, typed by us: the only module that imports it.

What stands below ``TYPE_CHECKING`` says what is relied on, as it is in 0.32.
"""

from __future__ import annotations

import hashlib
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from enum import Enum
    from typing import ClassVar, Protocol

    class LookupResult(Enum):
        """What a lookup answers."""

        MISS = 1
        HIT = 2
        RETRY = 4

    class Medium(Enum):
        """Where a tier keeps its blocks."""

        STORAGE = "STORAGE"

    class Locality(Enum):
        """Whose storage it is."""

        LOCAL = "LOCAL"

    class RequestOffloadingContext:
        """How the blocks of a request are offloaded."""

    class OffloadingEvent:
        """Blocks that came or went."""

        def __init__(
            self,
            *,
            keys: list[bytes],
            medium: Medium,
            removed: bool,
            locality: Locality | None = None,
            ownership: str | None = None,
        ) -> None: ...

    class JobResult:
        """How a job ended."""

        def __init__(
            self,
            job_id: int,
            success: bool,
            successful_keys: Collection[bytes] | None = None,
            transfer_time: float | None = None,
            transfer_bytes: int | None = None,
        ) -> None: ...

    class TransferJob(Protocol):
        """A job."""

        job_id: int
        keys: Collection[bytes]
        chunk_ids: Iterable[int]
        is_promotion: bool

    class EventsConfig(Protocol):
        """Whether events are published."""

        enable_kv_cache_events: bool

    class OffloadingSpec(Protocol):
        """What is offloaded, and how."""

        kv_events_config: EventsConfig
        blocks_per_chunk: int

    class SecondaryTierManager:
        """The base class of tiers."""

        medium: ClassVar[Medium | None]
        locality: Locality | None
        tier_type: str

        def __init__(
            self,
            offloading_spec: OffloadingSpec,
            primary_kv_view: memoryview,
            tier_type: str,
            backpressure_detector: object = None,
        ) -> None: ...

else:
    from vllm.v1.kv_offload.base import (
        Locality,
        LookupResult,
        Medium,
        OffloadingEvent,
        RequestOffloadingContext,
    )
    from vllm.v1.kv_offload.tiering.base import (
        JobResult,
        SecondaryTierManager,
        TransferJob,
    )

    OffloadingSpec = object

__all__ = [
    "JobResult",
    "Locality",
    "LookupResult",
    "Medium",
    "OffloadingEvent",
    "OffloadingSpec",
    "RequestOffloadingContext",
    "SecondaryTierManager",
    "TransferJob",
    "layout_digest",
]


def layout_digest(spec: OffloadingSpec) -> bytes:
    """Return what tells chunks of one model and layout from those of others.

    vLLM's own file tier names its folder by the same things.
    """
    module = importlib.import_module("vllm.v1.kv_offload.file_mapper")
    mapper = module.FileMapper.from_offloading_spec(
        root_dir="aiougds",
        offloading_spec=spec,
        blocks_per_file=spec.blocks_per_chunk,
        parallel_agnostic=True,
    )
    named = f"{mapper.base_path} {mapper.rank}"
    return hashlib.blake2b(named.encode(), digest_size=12).digest()
