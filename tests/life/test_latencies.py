"""Every command is in one histogram, and took as long as the device made it take."""

from __future__ import annotations

import bisect
import math

import anyio
import pytest
from life.conftest import Case, Live
from life.live import BLOCK, until

from aiougds import LatencyHistogram, MediaError, Statistics
from aiougds._tallies import BUCKETS, bucket_low_ns, read_head
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio


def agrees(stats: Statistics) -> bool:
    """All that was sent is back, and in one bucket."""
    everything = stats.latency()
    counted = sum(count for _, count in everything.buckets)
    sent = sum(queue.commands for queue in stats.queues)
    return stats.commands == sent == everything.commands == counted


async def test_each_command_is_in_one(live: Live) -> None:
    async with live("latency=300us") as ns, ns.allocate(64 * BLOCK) as reg:
        for i in range(10):
            await ns.read(reg[:BLOCK], offset=i * BLOCK)
        await ns.write(reg, offset=0)
        await ns.flush()
        await ns.read_many([(reg[i * BLOCK :][:BLOCK], i * BLOCK) for i in range(64)])
        stats = ns.controller.statistics()
        assert agrees(stats)
        reads = stats.latency("read")
        assert (reads.command, reads.commands, reads.errors) == ("read", 74, 0)
        assert (reads.nbytes, reads.max_bytes) == (74 * BLOCK, BLOCK)
        assert 300e-6 <= reads.percentile(0) <= reads.percentile(50) <= reads.max_s
        assert 300e-6 <= reads.mean_s <= reads.max_s
        assert stats.latency("read", max_bytes=2 * BLOCK).commands == 0
        writes = stats.latency("write")
        assert (writes.commands, writes.nbytes) == (1, 64 * BLOCK)
        assert writes.max_bytes == 64 * BLOCK
        assert stats.latency("flush").commands == 1
        assert stats.latency(io_class="background").commands == 0


async def test_failures_are_counted_apart(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        fault = Fault.status("read", sct=2, sc=0x81)
        with inject(ns, fault), pytest.raises(MediaError):
            await ns.read(reg, offset=0)
        reads = ns.controller.statistics().latency("read")
        assert (reads.commands, reads.errors, reads.nbytes) == (2, 1, BLOCK)


async def test_classes_are_told_apart(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0, io_class="background")
        await ns.read(reg, offset=0, io_class="latency")
        await ns.read_many([(reg, 0)] * 5, io_class="background")
        await ns.read(reg, offset=0)
        stats = ns.controller.statistics()
        for name, count in (("background", 6), ("latency", 1), ("normal", 1)):
            assert stats.latency(io_class=name).commands == count  # type: ignore[arg-type]
        assert agrees(stats)


async def test_what_is_at_the_device(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                for i in range(4):
                    part = reg[i * BLOCK : (i + 1) * BLOCK]
                    group.start_soon(lambda p=part: ns.read(p, offset=0))
                await until(lambda: held.hits == 4)
                stats = ns.controller.statistics()
                assert sum(queue.inflight for queue in stats.queues) == 4
                assert stats.latency("read").commands == 0
        await until(lambda: agrees(ns.controller.statistics()))


async def test_a_reset_is_survived(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        await ns.controller.reset()
        await ns.read(reg, offset=0)
        stats = ns.controller.statistics()
        assert stats.latency("read").commands == 2
        assert sum(queue.inflight for queue in stats.queues) == 0


async def test_switched_off(live: Live, case: Case) -> None:
    async with live(statistics=False) as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        stats = ns.controller.statistics()
        assert (stats.reads, stats.queues, stats.latencies) == (1, (), ()), case
        assert stats.latency().percentile(99) == 0


def histogram(times_ns: list[int]) -> LatencyHistogram:
    lows = [bucket_low_ns(i) for i in range(BUCKETS + 1)]
    counts: dict[float, int] = {}
    for ns in times_ns:
        limit = lows[bisect.bisect_right(lows, ns)] / 1e9
        counts[limit] = counts.get(limit, 0) + 1
    return LatencyHistogram(
        queue_id=1,
        io_class="normal",
        command="read",
        max_bytes=BLOCK,
        commands=len(times_ns),
        nbytes=0,
        errors=0,
        total_s=sum(times_ns) / 1e9,
        max_s=max(times_ns) / 1e9,
        buckets=tuple(sorted(counts.items())),
    )


def test_percentiles_are_within_a_bucket() -> None:
    times = [1000 + 37 * k for k in range(2000)]
    seen = histogram(times)
    for percent in (1, 25, 50, 90, 99, 99.9, 100):
        true = times[math.ceil(len(times) * percent / 100) - 1] / 1e9
        assert true <= seen.percentile(percent) <= true * 1.0626, percent
    for percent in (-1, 100.5):
        with pytest.raises(ValueError, match="outside"):
            seen.percentile(percent)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "no statistics segment"),
        (b"x" * 128, "no statistics segment"),
        (b"UGDSTALY" + bytes([9]) + bytes(119), "layout 9"),
        (b"UGDSTALY" + bytes([1]) + bytes(119), "contradicts"),
    ],
)
def test_memory_of_others_is_refused(raw: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_head(raw)
