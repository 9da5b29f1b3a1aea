"""The numbers are exact."""

from __future__ import annotations

import anyio
import pytest
from life.conftest import Case, Live
from life.live import BLOCK, until

from aiougds import MediaError, Namespace, OperationTimeoutError, Statistics
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio

UNSTEADY = (
    "doorbells", "wakeups", "inline_completions", "stragglers", "queues", "latencies",
    "executors",
)  # fmt: skip


def changes(ns: Namespace, before: Statistics) -> dict[str, int]:
    """Return the counters that are not what they were."""
    now = ns.controller.statistics()
    return {
        name: getattr(now, name) - getattr(before, name)
        for name in Statistics.__dataclass_fields__
        if getattr(now, name) != getattr(before, name) and name not in UNSTEADY
    }


async def test_of_a_new_controller(live: Live) -> None:
    async with live() as ns:
        stats = ns.controller.statistics()
        assert all(
            getattr(stats, name) == 0
            for name in Statistics.__dataclass_fields__
            if name not in ("queues", "latencies", "executors")
        ), stats
        assert stats.latencies == ()
        assert len(stats.queues) == ns.controller.capabilities.queue_pairs
        assert all(queue.commands == 0 for queue in stats.queues)


async def test_of_reads_and_writes(live: Live) -> None:
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        assert (start.others, start.channels, start.mappings) == (1, 1, 1)
        for i in range(10):
            await ns.read(reg[: BLOCK * (i + 1)], offset=0)
        assert changes(ns, start) == {
            "reads": 10,
            "read_bytes": 55 * BLOCK,
            "commands": 10,
        }
        start = ns.controller.statistics()
        for _ in range(7):
            await ns.write(reg[: 2 * BLOCK], offset=BLOCK)
        await ns.write(reg[:BLOCK], offset=BLOCK, fua=True)
        assert changes(ns, start) == {
            "writes": 8,
            "write_bytes": 15 * BLOCK,
            "commands": 8,
        }
        start = ns.controller.statistics()
        await ns.flush()
        await ns.write_zeroes(offset=0, nbytes=8 * BLOCK)
        await ns.deallocate(offset=0, nbytes=8 * BLOCK)
        await ns.verify(offset=0, nbytes=8 * BLOCK)
        reg.view[:] = bytes(64 * BLOCK)
        await ns.compare(reg[: 4 * BLOCK], offset=0)
        assert changes(ns, start) == {"others": 5, "commands": 5}


async def test_of_split_requests(live: Live) -> None:
    async with live("mdts=2") as ns, ns.allocate(64 * BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        await ns.read(reg, offset=0)
        await ns.write(reg[: 9 * BLOCK], offset=0)
        assert changes(ns, start) == {
            "reads": 16,
            "read_bytes": 64 * BLOCK,
            "writes": 3,
            "write_bytes": 9 * BLOCK,
            "commands": 19,
        }


async def test_of_batches(live: Live) -> None:
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
        await ns.read_many(pairs)
        await ns.write_many(pairs[:10])
        async with ns.batch(4) as batch:
            batch.read(reg[:BLOCK], offset=0)
            batch.flush()
            batch.submit()
            await batch.harvest(2)
        assert changes(ns, start) == {
            "reads": 65,
            "read_bytes": 65 * BLOCK,
            "writes": 10,
            "write_bytes": 10 * BLOCK,
            "others": 1,
            "commands": 76,
        }


async def test_one_doorbell_for_a_batch(live: Live, case: Case) -> None:
    async with live(depth=128, batch_depth=128) as ns, ns.allocate(64 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(64)]
        await ns.read_many(pairs)
        start = ns.controller.statistics()
        await ns.read_many(pairs)
        rung = ns.controller.statistics().doorbells - start.doorbells
        assert 1 <= rung <= 2, case


async def test_of_failures(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        with inject(ns, Fault.status("read", sct=2, sc=0x81, count=3)):
            for _ in range(3):
                with pytest.raises(MediaError):
                    await ns.read(reg, offset=0)
        seen = changes(ns, start)
        assert (seen["errors"], seen["commands"]) == (3, 3)
        assert "read_bytes" not in seen  # nothing was moved


async def test_of_timeouts_and_cancels(live: Live) -> None:
    async with live(cancel_grace_s=0.02) as ns, ns.allocate(4 * BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        with inject(ns, Fault.hold("read")) as held:
            with pytest.raises(OperationTimeoutError):
                await ns.read(reg[:BLOCK], offset=0, timeout_s=0.2)
            with anyio.move_on_after(0.2):
                await ns.read(reg[BLOCK : 2 * BLOCK], offset=0)
            await until(lambda: held.hits == 2)
        await until(lambda: not ns.controller.quarantine)
        seen = changes(ns, start)
        assert (seen["timeouts"], seen["cancels"]) == (1, 1)
        assert seen["commands"] == 2
        assert "quarantined" not in seen
        assert "inflight" not in seen


async def test_of_memory(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        memory = bytearray(2 * BLOCK)
        for _ in range(5):
            await ns.read(memory, offset=0)
        assert changes(ns, start) == {
            "reads": 5,
            "read_bytes": 10 * BLOCK,
            "commands": 5,
            "jit_pins": 5,
        }
        start = ns.controller.statistics()
        await ns.read(reg[:100], offset=50, edges="bounce")
        await ns.read(reg[100:300], offset=BLOCK - 100, edges="bounce")
        seen = changes(ns, start)
        assert (seen["bounces"], seen["bounced_bytes"]) == (2, 300)
        assert seen["read_bytes"] == 3 * BLOCK


async def test_of_what_was_refused(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        await ns.flush()
        start = ns.controller.statistics()
        for offset in (1, 511, ns.size, ns.size - 512, -BLOCK):
            with pytest.raises(ValueError, match=r"offset|end|multiple|negative"):
                await ns.read(reg, offset=offset)
        assert await ns.read(reg[:0], offset=0) == 0
        assert changes(ns, start) == {}


async def test_of_what_is_in_flight(live: Live) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        async with anyio.create_task_group() as group:
            with inject(ns, Fault.hold("read")) as held:
                for i in range(4):
                    part = reg[i * BLOCK : (i + 1) * BLOCK]
                    group.start_soon(lambda p=part: ns.read(p, offset=0))
                await until(lambda: held.hits == 4)
                assert ns.controller.statistics().inflight == 4
                assert reg.inflight == 4
        assert ns.controller.statistics().inflight == 0
        assert reg.inflight == 0


async def test_a_named_command_is_one_of_the_io_queues(live: Live) -> None:
    """Flush has the opcode of Delete I/O Submission Queue, which a close needs."""
    async with live() as ns:
        fault = inject(ns, Fault.hold("flush"))
    assert fault.hits == 0
