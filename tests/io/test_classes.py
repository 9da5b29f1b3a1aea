"""Classes and policies: what goes before what, and how a handle says so."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from helpers.model import PAGE, pattern
from helpers.world import KIB, MIB, Opened, Option, World

from aiougds import Intent, IoClass, Mode, OptionError, Plan, testing

CHUNK = 64 * KIB
LARGE = 4 * MIB
EMU = {"size": "16MiB", "mdts": 4}
OPTIONS: dict[str, Any] = {
    "chunk": CHUNK,
    "bulk_inflight": MIB,
    "background_inflight": MIB // 2,
    "queues": 2,
}


async def settled(count: Callable[[], int]) -> int:
    """Return a number that has come to be more than 0 and has not changed since."""
    seen, since, end = 0, time.monotonic(), time.monotonic() + 20
    while time.monotonic() < min(end, since + 0.1 if seen else end):
        now = count()
        if now != seen:
            seen, since = now, time.monotonic()
        await anyio.sleep(0.002)
    return seen


@pytest.mark.tasks
@pytest.mark.core
async def test_small_reads_pass_a_large_one(world: World) -> None:
    async with world.open(emu=EMU, **OPTIONS) as ns, ns.allocate(LARGE + PAGE) as reg:
        fault = testing.inject(ns, testing.Fault.hold("write"))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(ns.write, reg[:LARGE], offset=0))
            held = await settled(lambda: fault.hits)
            assert 1 <= held <= MIB // CHUNK
            for i in range(20):
                assert await ns.read(reg[LARGE:], offset=8 * MIB + i * PAGE) == PAGE
            fault.clear()


@pytest.mark.tasks
@pytest.mark.core
@pytest.mark.parametrize("scheduling", ["classes", "fifo"])
async def test_the_background_has_little_at_the_device(
    world: World, scheduling: str
) -> None:
    options = {**OPTIONS, "scheduling": scheduling}
    async with world.open(emu=EMU, **options) as ns, ns.allocate(LARGE) as reg:
        fault = testing.inject(ns, testing.Fault.hold("write"))
        async with anyio.create_task_group() as group:
            write = partial(ns.write, reg, offset=0, io_class="background")
            group.start_soon(write)
            held = await settled(lambda: fault.hits)
            if scheduling == "fifo":
                assert held > MIB // 2 // CHUNK
            else:
                assert held == MIB // 2 // CHUNK
            fault.clear()


@pytest.mark.core
@pytest.mark.parametrize("io_class", ["latency", "normal", "background"])
async def test_bytes_are_right_in_every_class(world: World, io_class: IoClass) -> None:
    data = pattern(LARGE + 12 * KIB, 7)
    async with (
        world.open(emu=EMU, **OPTIONS) as ns,
        ns.register(bytearray(data)) as reg,
    ):
        await ns.write(reg, offset=0, io_class=io_class)
        reg.view[:] = bytes(len(data))
        assert await ns.read(reg, offset=0, io_class=io_class) == len(data)
        assert bytes(reg.view) == data
        reg.view[:] = bytes(len(data))
        starts = [i * MIB for i in range(4)]
        parts = [(reg[at : at + MIB], at) for at in starts]
        starts = [LARGE + i * PAGE for i in (2, 0, 1)]
        parts += [(reg[at : at + PAGE], at) for at in starts]
        done = await ns.read_many(parts, io_class=io_class)
        assert done == [MIB] * 4 + [PAGE] * 3
        assert bytes(reg.view) == data


@pytest.mark.tasks
@pytest.mark.core
async def test_the_background_does_not_starve(world: World) -> None:
    """However many small reads there are, a background write gets on."""
    async with world.open(emu=EMU, **OPTIONS) as ns, ns.allocate(LARGE + PAGE) as reg:
        done = anyio.Event()

        async def write() -> None:
            await ns.write(reg[:LARGE], offset=0, io_class="background")
            done.set()

        async def read() -> None:
            while not done.is_set():
                await ns.read(reg[LARGE:], offset=8 * MIB, io_class="latency")
                await anyio.sleep(0)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(write)
                for _ in range(4):
                    group.start_soon(read)


@pytest.mark.tasks
@pytest.mark.core
async def test_a_handle_has_a_class(world: World) -> None:
    async with world.open(emu=EMU, **OPTIONS) as ns, ns.allocate(LARGE) as reg:
        quiet = ns.using(io_class="background")
        part = quiet.region(0, 8 * MIB)
        for handle in (quiet, part, part.using(mode=world.mode)):
            assert await held_of(ns, handle, reg) == MIB // 2 // CHUNK
            assert await held_of(ns, handle, reg, io_class="normal") > MIB // 2 // CHUNK


async def held_of(ns: Opened, handle: Opened, reg: Opened, **how: Option) -> int:
    """Return how many commands of a large write are at the device."""
    fault = testing.inject(ns, testing.Fault.hold("write"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(handle.write, reg, offset=0, **how))
        held = await settled(lambda: fault.hits)
        fault.clear()
    return held


class BySize:
    """Large ones are background work; it notes what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Intent] = []

    def plan(self, intent: Intent, /) -> Plan:
        self.seen.append(intent)
        large = intent.nbytes is None or intent.nbytes > MIB
        return Plan(io_class="background" if large else "latency", mode="interrupt")


@pytest.mark.core
async def test_a_policy_is_asked_for_each_operation(world: World) -> None:
    policy = BySize()
    async with world.open(emu=EMU, **OPTIONS, policy=policy) as ns:
        async with ns.allocate(LARGE) as reg:
            await ns.write(reg, offset=0)
            await ns.read(reg[:PAGE], offset=PAGE)
            await ns.read_many([(reg[:PAGE], 0)])
            await ns.flush()
            plain = ns.using(policy="adaptive")
            await plain.read(reg[:PAGE], offset=0)
        assert policy.seen == [
            Intent("write", 0, LARGE),
            Intent("read", PAGE, PAGE),
            Intent("read_many", None, None),
            Intent("flush", None, None),
        ]


@pytest.mark.few
async def test_a_policy_that_raises_sends_nothing(world: World) -> None:
    class Broken:
        def plan(self, intent: Intent, /) -> Plan:
            raise LookupError(intent.name)

    class Wrong:
        def plan(self, intent: Intent, /) -> object:
            return "latency"

    async with world.open(emu=EMU) as ns, ns.allocate(PAGE) as reg:
        with pytest.raises(LookupError, match="read"):
            await ns.using(policy=Broken()).read(reg, offset=0)
        with pytest.raises(OptionError, match="no Plan"):
            await ns.using(policy=Wrong()).read(reg, offset=0)
        assert ns.controller.statistics().commands == 0


@pytest.mark.few
@pytest.mark.parametrize("policy", ["latency", "throughput", "priority", "adaptive"])
async def test_named_policies(world: World, policy: str) -> None:
    """Each opens, chooses its defaults, gives way to what is said, and moves bytes."""
    data = pattern(LARGE, 3)
    async with world.open(emu=EMU, policy=policy, chunk=CHUNK) as ns:
        caps = ns.controller.capabilities
        assert caps.completion == world.mode
        assert caps.depth == (256 if policy == "throughput" else 64)
        async with ns.register(bytearray(data)) as reg:
            await ns.write(reg, offset=0)
            reg.view[:] = bytes(LARGE)
            await ns.using(policy=policy).read(reg, offset=0)
            assert bytes(reg.view) == data


@pytest.mark.core
async def test_a_policy_of_one_call(world: World) -> None:
    """It goes before the handle's, and mode= and io_class= go before it."""
    policy = BySize()
    calls: tuple[str, ...] = ("read", "write", "compare")
    async with world.open(emu=EMU, **OPTIONS) as ns, ns.allocate(PAGE) as reg:
        quiet = ns.using(io_class="background")
        for call in calls:
            await getattr(quiet, call)(reg, offset=0, policy=policy)
        await quiet.read_many([(reg, 0)], policy=policy)
        await quiet.write_many([(reg, 0)], policy=policy, mode="interrupt")
        assert [intent.name for intent in policy.seen] == [
            *calls,
            "read_many",
            "write_many",
        ]
        assert classes_of(ns) == {"latency", "background"}
        for name in ("latency", "throughput", "priority", "adaptive"):
            await quiet.read(reg, offset=0, policy=name)
            await quiet.read_many([(reg, 0)], policy=name)
        await quiet.read(reg, offset=0, policy=policy, io_class="normal", mode="poll")
        assert len(policy.seen) == 6  # chunk and spin_us are its own still
        assert classes_of(ns) == {"latency", "background", "normal"}
        await quiet.read(reg, offset=0)
        assert ns.using(policy=policy).controller is not None


def classes_of(ns: Opened) -> set[IoClass]:
    """Return the classes that commands were of."""
    return {row.io_class for row in ns.controller.statistics().latencies}


@pytest.mark.core
@pytest.mark.parametrize("form", ["pairs", "arrays", "batch"])
async def test_a_mode_of_a_batch(world: World, form: str) -> None:
    """It is told apart by who notices the end: this call, or a thread of ours."""
    options = {**OPTIONS, "queues": 4, "mode": "inline", "spin_us": 1000.0}
    emu = {"size": "16MiB", "vectors": 5}
    async with world.open(emu=emu, **options) as ns, ns.allocate(4 * PAGE) as reg:

        async def read(mode: Mode) -> None:
            handle = ns.using(mode=mode)
            where = array("q", [0, PAGE, 2 * PAGE, 3 * PAGE])
            pairs = [(reg[at : at + PAGE], at) for at in where]
            if form == "pairs":
                assert await ns.read_many(pairs, mode=mode) == [PAGE] * 4
            elif form == "arrays":
                many = handle.read_many(reg, offsets=where, nbytes=PAGE)
                assert await many == [PAGE] * 4
            else:
                async with handle.batch(4) as batch:
                    for part, at in pairs:
                        batch.read(part, offset=at)
                    batch.submit()
                    assert len(await batch.harvest(4)) == 4

        await read("inline")
        before = ns.controller.statistics()
        await read("interrupt")
        between = ns.controller.statistics()
        assert between.inline_completions == before.inline_completions
        await read("poll")
        after = ns.controller.statistics()
        assert after.inline_completions == between.inline_completions
        polled = {q.queue_id: q.commands for q in after.queues}
        for queue in between.queues:
            polled[queue.queue_id] -= queue.commands
        # The last pair is the executor's.
        assert polled[max(polled)] == 4
        await read("inline")
        assert ns.controller.statistics().reads == 16


@pytest.mark.few
async def test_what_is_refused(world: World) -> None:
    async with world.open(emu=EMU) as ns, ns.allocate(PAGE) as reg:
        refused: list[tuple[str, Callable[[], Any]]] = [
            ("io_class", partial(ns.read, reg, offset=0, io_class="urgent")),
            ("io_class", partial(ns.read_many, [(reg, 0)], io_class="low")),
            ("mode", partial(ns.read_many, [(reg, 0)], mode="fast")),
            ("policy", partial(ns.write_many, [(reg, 0)], policy="fast")),
            ("policy", partial(ns.read, reg, offset=0, policy="fast")),
            ("policy", partial(ns.write, reg, offset=0, policy=3)),
        ]
        for match, call in refused:
            with pytest.raises(OptionError, match=match):
                await call()
        for keywords in ({"policy": "fast"}, {"policy": 3}, {"io_class": "x"}):
            with pytest.raises(OptionError):
                ns.using(**keywords)
        assert ns.controller.statistics().commands == 0
    for bad in ({"chunk": 100_000}, {"policy": "fast"}, {"scheduling": "lifo"}):
        with pytest.raises(OptionError):
            async with world.opening("emu:?size=1MiB", **bad) as opened:
                await check_closed(opened)


async def check_closed(opened: Opened) -> None:
    """It is never reached."""
    raise AssertionError(opened)


@pytest.mark.few
@pytest.mark.parametrize("arbitration", ["rr", "wrr", "auto"])
@pytest.mark.parametrize("queues", [4, 9, 16])
async def test_arbitration(world: World, arbitration: str, queues: int) -> None:
    """Pairs are set aside for the classes where there are enough."""
    emu = {**EMU, "arbitration": "wrr", "queues": queues, "vectors": queues + 1}
    options = {**OPTIONS, "queues": queues, "arbitration": arbitration}
    async with world.open(emu=emu, **options) as ns, ns.allocate(LARGE) as reg:
        caps = ns.controller.capabilities
        assert caps.arbitration == ("rr" if arbitration == "rr" else "wrr")
        aside = 0 if arbitration == "rr" else queues // 8
        assert caps.class_queue_pairs == aside
        free = caps.free_queue_pairs
        await ns.read(reg[:PAGE], offset=0)
        first = free - ns.controller.capabilities.free_queue_pairs
        for io_class in ("latency", "background", "latency", "normal"):
            await ns.write(reg, offset=0, io_class=io_class)
            await ns.read(reg[:PAGE], offset=0, io_class=io_class)
            await ns.read_many([(reg[:PAGE], 0)], io_class=io_class)
        leased = free - ns.controller.capabilities.free_queue_pairs
        batch = 1 if first and caps.batch_queue_pairs else 0
        assert leased == first + batch + (2 if first and aside else 0)


@pytest.mark.few
async def test_auto_is_round_robin_where_there_is_nothing_else(world: World) -> None:
    async with world.open(emu=EMU, arbitration="auto") as ns:
        caps = ns.controller.capabilities
        assert (caps.arbitration, caps.class_queue_pairs) == ("rr", 0)
