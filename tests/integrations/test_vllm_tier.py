"""The tier under vLLM's own factory; on host memory, without a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager, TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

import aiougds

ROW = 3_098_112 // 64  # no multiple of 4 KiB, as with hybrid models
ROWS = 8
REQUEST = ReqContext("request")


def spec(model: str = "some/model") -> Any:  # noqa: ANN401
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(16, ("layer.0",), 0),),
        worker_kv_bytes_per_block=ROW,
        enable_kv_cache_events=True,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(model, "float16"),
        cache=OffloadingCacheConfig(16, 1),
        parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
    )
    events = SimpleNamespace(enable_kv_cache_events=True)
    return SimpleNamespace(config=config, kv_events_config=events, blocks_per_chunk=1)


class Tier:
    """A tier, and the primary tier's memory."""

    def __init__(self, folder: Path, model: str = "some/model", **more: object) -> None:
        self.rows = np.zeros((ROWS, ROW), dtype=np.int8)
        config = {
            "type": "AiougdsTier", "module_path": "aiougds.vllm",
            "addresses": f"emu:{folder}/kv?size=16MiB", **more,
        }  # fmt: skip
        self.tier: Any = SecondaryTierFactory.create_secondary_tier(
            config, memoryview(self.rows), spec(model)
        )
        self._job = 0

    def run(self, keys: list[bytes], rows: list[int], *, load: bool) -> Any:  # noqa: ANN401
        self._job += 1
        ids = np.array(rows, dtype=np.int64)
        job = TransferJob(self._job, keys, ids, load, REQUEST)  # type: ignore[arg-type]
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        self.tier.drain_jobs()
        (done,) = self.tier.get_finished_jobs()
        assert done.job_id == self._job
        return done


def key(number: int) -> bytes:
    return make_offload_key(number.to_bytes(32, "big"), 0)


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Callable[..., Tier]]:
    made: list[Tier] = []

    def make(**options: Any) -> Tier:  # noqa: ANN401
        made.append(Tier(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.tier.shutdown()


def test_it_is_a_tier_by_configuration_alone(tiers: Callable[..., Tier]) -> None:
    tier = tiers().tier
    assert isinstance(tier, SecondaryTierManager)
    assert tier.medium is Medium.STORAGE
    assert tier.tier_type == "AiougdsTier"
    assert tier.lookup(key(1), REQUEST) is LookupResult.MISS
    assert not tier.has_pending_work()


def test_blocks_are_stored_and_loaded(tiers: Callable[..., Tier]) -> None:
    tier = tiers()
    for row in range(4):
        tier.rows[row] = row + 1
    keys = [key(i) for i in range(4)]
    stored = tier.run(keys, [0, 1, 2, 3], load=False)
    assert (stored.success, stored.transfer_bytes) == (True, 4 * ROW)
    assert stored.transfer_time > 0
    assert {tier.tier.lookup(one, REQUEST) for one in keys} == {LookupResult.HIT}
    tier.rows[:] = 0
    loaded = tier.run(keys, [7, 6, 5, 4], load=True)
    assert loaded.success
    assert [int(tier.rows[row][-1]) for row in (7, 6, 5, 4)] == [1, 2, 3, 4]


def test_one_missing_block_fails_alone(tiers: Callable[..., Tier]) -> None:
    tier = tiers()
    assert tier.run([key(1)], [0], load=False).success
    done = tier.run([key(1), key(2)], [1, 2], load=True)
    assert not done.success
    assert list(done.successful_keys) == [key(1)]


def test_blocks_outlive_the_process_but_not_the_model(
    tiers: Callable[..., Tier],
) -> None:
    tier = tiers()
    tier.rows[0] = 42
    assert tier.run([key(1)], [0], load=False).success
    tier.tier.shutdown()
    other = tiers(model="other/model")
    assert other.tier.lookup(key(1), REQUEST) is LookupResult.MISS
    other.tier.shutdown()
    again = tiers()
    assert again.tier.lookup(key(1), REQUEST) is LookupResult.HIT
    assert again.run([key(1)], [3], load=True).success
    assert (again.rows[3] == 42).all()


def test_events_tell_what_comes_and_goes(tiers: Callable[..., Tier]) -> None:
    tier = tiers(enable_kv_events=True, locality="LOCAL")
    count = 400
    for i in range(count):
        assert tier.run([key(i)], [0], load=False).success
    events = list(tier.tier.take_events())
    stored = [one for e in events if not e.removed for one in e.keys]
    removed = [one for e in events if e.removed for one in e.keys]
    assert stored == [key(i) for i in range(count)]
    assert removed
    assert tier.tier.lookup(removed[0], REQUEST) is LookupResult.MISS
    assert {e.ownership for e in events} == {"AiougdsTier"}
    assert list(tier.tier.take_events()) == []


def test_the_scheduler_is_never_kept_waiting(tiers: Callable[..., Tier]) -> None:
    tier = tiers()
    longest = 0.0
    for i in range(200):
        began = time.perf_counter()
        job = TransferJob(i, [key(i)], np.array([i % ROWS]), False, REQUEST)  # type: ignore[arg-type]
        tier.tier.submit_store(job)
        tier.tier.lookup(key(i), REQUEST)
        list(tier.tier.get_finished_jobs())
        longest = max(longest, time.perf_counter() - began)
    assert longest < 1
    tier.tier.drain_jobs()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(aiougds.OptionError, match="no option 'address'"):
        Tier(tmp_path, address="emu:")
    with pytest.raises(aiougds.OptionError, match="leave it out"):
        Tier(tmp_path, slot_bytes=4096)
