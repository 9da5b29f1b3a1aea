"""Queues of any legal depth, and any number of them and of interrupt vectors."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from helpers.model import PAGE, numbered, pattern
from helpers.world import MIB, Opened, World, served

from aiougds import OperationTimeoutError, OptionError, testing


async def hammer(world: World, ns: Opened, rounds: int, at_once: int) -> None:
    """Write and read distinct blocks, several at once, often enough to wrap."""
    data = pattern(at_once * PAGE, rounds)
    async with ns.register(bytearray(data)) as reg:
        for turn in range(rounds):
            first = (turn % 3) * at_once
            parts = [
                (reg[i * PAGE : (i + 1) * PAGE], (first + i) * PAGE)
                for i in range(at_once)
            ]
            await world.gather(*(partial(ns.write, b, offset=at) for b, at in parts))
            reg.view[:] = bytes(len(data))
            await world.gather(*(partial(ns.read, b, offset=at) for b, at in parts))
            assert bytes(reg.view) == data


@pytest.mark.core
async def test_a_queue_of_three_wraps(world: World) -> None:
    async with world.open(depth=3, batch_depth=3) as ns:
        assert ns.controller.capabilities.depth == 3
        await hammer(world, ns, rounds=6, at_once=7)


@pytest.mark.parametrize("depth", [2, 3, 7, 64, 100, 1000, 1024])
async def test_any_depth(world: World, depth: int) -> None:
    """The ring wraps where its length says, a power of two or not."""
    emu = {"size": "16MiB", "data": "none"}
    async with world.open(emu=emu, depth=depth, batch_depth=depth, queues=2) as ns:
        caps = ns.controller.capabilities
        assert (caps.depth, caps.batch_depth) == (depth, depth)
        total = 3 * depth + 1
        async with ns.allocate(PAGE) as reg:
            done = await ns.read_many([(reg, i % 64 * PAGE) for i in range(total)])
            assert done == [PAGE] * total
            for _ in range(min(total, 210)):
                assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_thousands_in_flight(world: World) -> None:
    """Operations wait for room in the queues, not for room in memory."""
    count = 5000
    async with world.open(emu={"lba": 512}, depth=16, queues=2) as ns:
        data = numbered(count, 512)
        await ns.write(data, offset=0)
        async with ns.allocate(count * 512) as reg:
            parts = [(reg[i * 512 : (i + 1) * 512], i * 512) for i in range(count)]
            done = await world.gather(
                *(partial(ns.read, part, offset=offset) for part, offset in parts)
            )
            assert done == [512] * count
            assert reg.view == data


@pytest.mark.core
@pytest.mark.tasks
async def test_who_finds_no_room_waits_for_it(world: World) -> None:
    """The device has what fits, and no more; giving up meanwhile sends nothing."""
    async with (
        world.open(depth=4, batch_depth=4, queues=2) as ns,
        ns.allocate(40 * PAGE) as reg,
    ):
        done: list[int] = []

        async def read(index: int) -> None:
            at = index * PAGE
            await ns.read(reg[at : at + PAGE], offset=at)
            done.append(index)

        held = testing.inject(ns, testing.Fault.hold("read"))
        async with anyio.create_task_group() as group:
            for index in range(40):
                group.start_soon(read, index)
            with anyio.fail_after(20):
                while held.hits < 3:
                    await anyio.sleep(0.002)
            with pytest.raises(OperationTimeoutError, match="never sent"):
                await ns.read(reg[:PAGE], offset=0, timeout_s=0.1)
            assert held.hits == 3
            assert ns.controller.statistics().inflight == 3
            assert done == []
            held.clear()
        assert sorted(done) == list(range(40))
        assert served(ns) == 40


@pytest.mark.parametrize("mqes", [1, 2, 6, 127, 1023, 65535])
async def test_depth_is_clamped_to_mqes(world: World, mqes: int) -> None:
    """MQES is zero based; 65 535 plus one does not fit into 16 bits."""
    emu = {"size": MIB, "mqes": mqes}
    async with world.open(emu=emu, depth=4096, batch_depth=65536, queues=2) as ns:
        caps = ns.controller.capabilities
        assert caps.depth == min(4096, mqes + 1)
        assert caps.batch_depth == min(65536, mqes + 1)
        await hammer(world, ns, rounds=3, at_once=8)


@pytest.mark.parametrize("asked", [1, 2, 5, 16])
@pytest.mark.parametrize("granted", [1, 2, 16])
@pytest.mark.few
async def test_fewer_queues_may_be_granted(
    world: World, asked: int, granted: int
) -> None:
    async with world.open(emu={"size": MIB, "queues": granted}, queues=asked) as ns:
        caps = ns.controller.capabilities
        assert caps.queue_pairs == min(asked, granted)
        await hammer(world, ns, rounds=2, at_once=4)
        # The last pair is the executor's: a lone one is shared.
        shared = caps.queue_pairs == 1 or world.mode == "poll"
        assert ns.controller.capabilities.queue == ("shared" if shared else "own")


@pytest.mark.core
async def test_one_shared_queue_pair(world: World) -> None:
    async with world.open(queues=1, depth=4) as ns:
        assert ns.controller.capabilities.queue == "shared"
        await hammer(world, ns, rounds=3, at_once=9)


@pytest.mark.core
async def test_eight_pairs_on_two_vectors(world: World) -> None:
    async with world.open(emu={"vectors": 2}, queues=8) as ns:
        assert ns.controller.capabilities.vectors == 2
        await hammer(world, ns, rounds=4, at_once=12)


@pytest.mark.parametrize("vectors", [1, 2, 3, 16])
async def test_fewer_vectors_than_queues(world: World, vectors: int) -> None:
    async with world.open(emu={"size": MIB, "vectors": vectors}, queues=8) as ns:
        assert ns.controller.capabilities.vectors == vectors
        await hammer(world, ns, rounds=2, at_once=6)


@pytest.mark.parametrize("dstrd", [0, 1, 2, 3, 4])
async def test_doorbell_stride(world: World, dstrd: int) -> None:
    async with world.open(emu={"size": MIB, "dstrd": dstrd}, queues=3) as ns:
        assert ns.controller.info.cap >> 32 & 0xF == dstrd
        await hammer(world, ns, rounds=3, at_once=6)


@pytest.mark.core
async def test_shadow_doorbells_carry_everything(world: World) -> None:
    async with world.open(emu={"shadow": 1}, depth=5) as ns:
        assert ns.controller.capabilities.shadow_doorbells
        await hammer(world, ns, rounds=4, at_once=7)


@pytest.mark.few
async def test_shadow_doorbells_spare_register_writes(world: World) -> None:
    seen = {}
    for asked in (True, False):
        async with world.open(emu={"shadow": 1}, shadow_doorbells=asked) as ns:
            assert ns.controller.capabilities.shadow_doorbells is asked
            async with ns.allocate(PAGE) as reg:
                before = testing.counters(ns).doorbell_writes_seen
                for _ in range(20):
                    await ns.read_many([(reg, 0)] * 64)
                seen[asked] = testing.counters(ns).doorbell_writes_seen - before
    assert seen[True] < seen[False]


async def test_shadow_doorbells_only_where_advertised(world: World) -> None:
    async with world.open(emu={"size": MIB}, shadow_doorbells=True) as ns:
        assert not ns.controller.capabilities.shadow_doorbells
        await ns.read(bytearray(PAGE), offset=0)


@pytest.mark.parametrize("priority", ["urgent", "high", "medium", "low"])
async def test_weighted_round_robin(world: World, priority: str) -> None:
    async with world.open(
        emu={"size": MIB, "arbitration": "wrr"},
        arbitration="wrr",
        queue_priority=priority,
    ) as ns:
        assert ns.controller.capabilities.arbitration == "wrr"
        await hammer(world, ns, rounds=2, at_once=6)


async def test_weighted_round_robin_needs_the_controller(world: World) -> None:
    with pytest.raises(OSError, match="round robin"):
        async with world.open(arbitration="wrr"):
            raise AssertionError("it was opened")


@pytest.mark.few
@pytest.mark.parametrize(
    ("option", "value"),
    [("depth", 1), ("depth", 65537), ("queues", 0), ("queues", 129), ("vectors", 0)],
)
async def test_limits_of_options(world: World, option: str, value: int) -> None:
    with pytest.raises(OptionError, match=rf"{option}={value} is outside"):
        async with world.open(**{option: value}):
            raise AssertionError("it was opened")


@pytest.mark.few
async def test_all_general_queues_may_not_be_batch_queues(world: World) -> None:
    with pytest.raises(OptionError, match="batch_queues=4 leaves no general"):
        async with world.open(queues=4, batch_queues=4):
            raise AssertionError("it was opened")
    async with world.open(queues=6, batch_queues=3) as ns:
        assert ns.controller.capabilities.batch_queue_pairs == 3
        await hammer(world, ns, rounds=2, at_once=4)


@pytest.mark.few
async def test_latency_model_delays_reads(world: World) -> None:
    emu = {
        "latency": "2ms",
        "latency_per_kib": "10us",
        "jitter": "100us",
        "channels": 4,
    }
    async with world.open(emu=emu) as ns:
        await hammer(world, ns, rounds=1, at_once=6)
