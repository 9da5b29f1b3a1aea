"""Hits of replayed traces are exactly those that each policy is to have."""

from __future__ import annotations

import asyncio

import pytest
from store.replay import (
    ARC,
    LRU,
    SHARES,
    Trace,
    generated,
    load,
    prefix_hits,
    recorded,
    replay,
)

from aiougds import store as st

pytestmark = pytest.mark.once


def simulated(
    trace: Trace, slots: int, eviction: st.Eviction, high: float, low: float
) -> list[int]:
    return prefix_hits(
        trace, LRU(slots, high, low) if eviction == "lru" else ARC(slots)
    )


def compare(
    trace: Trace, share: float, eviction: st.Eviction, high: float, low: float
) -> float:
    """Replay and simulate; return the share of blocks that were there."""
    distinct = len({block for blocks in trace for block in blocks})
    slots = int(share * distinct)
    done = asyncio.run(replay(trace, slots, eviction, high, low))
    assert done.hits == simulated(trace, slots, eviction, high, low)
    return sum(done.hits) / sum(map(len, trace))


@pytest.mark.parametrize("eviction", ["lru", "arc"])
def test_a_generated_trace(eviction: st.Eviction) -> None:
    trace = generated()
    ratios = [compare(trace, share, eviction, 1.0, 1.0) for share in SHARES]
    assert ratios == sorted(ratios)
    assert 0 < ratios[0] < ratios[1] < ratios[3]


def test_watermarks_cost_hits() -> None:
    trace = generated()
    assert compare(trace, 0.25, "lru", 0.95, 0.6) < compare(trace, 0.25, "lru", 1, 1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("eviction", ["lru", "arc"])
def test_the_trace_of_mooncake(eviction: st.Eviction, share: float) -> None:
    path = recorded()
    if path is None:
        pytest.skip(
            "the trace of Mooncake is not here; name it with AIOUGDS_TRACE=PATH"
        )
    ratio = compare(load(path), share, eviction, 1.0, 1.0)
    if share == 1.0:  # nothing is evicted
        assert f"{ratio:.3f}" == "0.640"
