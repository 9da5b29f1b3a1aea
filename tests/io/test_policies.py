"""Policies of one's own: all that they can say, for open and of an operation."""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from helpers.model import PAGE
from helpers.world import KIB, MIB, Opened, World

import aiougds
from aiougds import Intent, IoClass, OptionError, Plan, Preset, RangeError
from aiougds._options import open_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 30  # a busy machine may take longer than it is looked for


class Own:
    """All that a policy can say: for open, and of an operation."""

    preset = Preset(
        mode="interrupt",
        depth=32,
        batch_depth=64,
        spin_us=3.0,
        chunk=64 * KIB,
        bulk_inflight=2 * MIB,
        background_inflight=MIB,
        coalesce_commands=4,
        coalesce_us=200.0,
        arbitration="rr",
    )

    def plan(self, intent: Intent, /) -> Plan:
        if intent.name in ("flush", "verify"):
            return Plan(mode="poll")
        large = (intent.nbytes or 0) > PAGE
        return Plan(
            mode="inline",
            io_class="background" if large else "normal",
            spin_us=1000,
            chunk=64 * KIB,
        )


def executors(ns: Opened) -> int:
    """Return the commands of the executor's queue pair, which is the last."""
    return max((q.queue_id, q.commands) for q in ns.controller.statistics().queues)[1]


async def none_is_looked_for(ns: Opened, reg: Opened) -> bool:
    """Whether so many reads in a row did not end in the call that sent them.

    One may, where its thread lost the processor for as long as the device takes.
    With a look of a millisecond next to all of them would.
    """
    end, row = time.monotonic() + PATIENCE_S, 0
    while row < 20 and time.monotonic() < end:
        before = ns.controller.statistics().inline_completions
        await ns.read(reg[:PAGE], offset=0)
        row = row + 1 if ns.controller.statistics().inline_completions == before else 0
    return row == 20


@pytest.mark.few
async def test_a_policy_of_ones_own_says_all_there_is(world: World) -> None:
    policy = Own()
    emu = {"size": "16MiB", "latency": "200us", "step": 0}
    async with world.open(emu=emu, policy=policy, depth=48) as ns:
        caps = ns.controller.capabilities  # an argument goes first
        assert (caps.depth, caps.batch_depth, caps.spin_us) == (48, 64, 3.0)
        async with ns.allocate(512 * KIB) as reg:
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                await ns.read(reg[:PAGE], offset=0)
                after = ns.controller.statistics()
                if after.inline_completions:  # looked for, as the plan says
                    break
            assert after.inline_completions
            assert await none_is_looked_for(ns.using(policy="throughput"), reg)
            sent = ns.controller.statistics().commands
            await ns.write(reg, offset=0)
            assert ns.controller.statistics().commands - sent == 8
            polled = executors(ns)
            await ns.flush()
            await ns.verify(offset=0, nbytes=PAGE)
            assert executors(ns) - polled == 2


def test_what_presets_choose() -> None:
    policy = Own()
    chosen = policy.preset.chosen() | {"depth": 48}
    options = open_options({"policy": policy, "depth": 48}, {})
    assert {name: getattr(options, name) for name in chosen} == chosen
    policy.preset = 3  # type: ignore[assignment]
    with pytest.raises(OptionError, match="no Preset"):
        open_options({"policy": policy}, {})
    policy.preset = Preset(chunk=3)
    with pytest.raises(OptionError, match=r"an object \(no class\) with plan"):
        open_options({"policy": Own}, {})
    with pytest.raises(OptionError, match="chunk=3"):
        open_options({"policy": policy}, {})


@pytest.mark.few
async def test_a_plan_is_a_policy(world: World) -> None:
    """Chunks of each of several operations, single and in a batch, are their own."""
    emu = {"size": "16MiB", "step": 0}
    async with world.open(emu=emu) as ns, ns.allocate(512 * KIB) as reg:

        async def commands(work: Any) -> int:  # noqa: ANN401
            before = ns.controller.statistics().commands
            await work
            return ns.controller.statistics().commands - before

        fine = ns.using(policy=Plan(io_class="background", chunk=64 * KIB))
        assert await commands(fine.read(reg, offset=0)) == 8
        assert await commands(fine.read_many([(reg, 0)])) == 8
        where = array("q", [0, 256 * KIB])
        many = fine.read_many(reg, offsets=where, nbytes=256 * KIB)
        assert await commands(many) == 8
        plain = ns.using(io_class="background")
        assert await commands(plain.read(reg, offset=0)) == 2
        much = Plan(io_class="background", chunk=1 << 30)
        assert await commands(ns.read(reg, offset=0, policy=much)) == 2


@pytest.mark.few
@pytest.mark.parametrize("form", ["single", "batch"])
async def test_how_long_an_operation_is_looked_for(world: World, form: str) -> None:
    async def inline(plan: Plan, latency: str, least: int) -> int:
        emu = {"size": "1MiB", "latency": latency, "step": 0}
        async with (
            world.open(emu=emu, mode="interrupt") as ns,
            ns.using(policy=plan) as handle,
            ns.allocate(PAGE) as reg,
        ):
            end = time.monotonic() + (PATIENCE_S if least else 0.1)
            while time.monotonic() < end:
                if form == "single":
                    await handle.read(reg, offset=0)
                else:
                    await handle.read_many([(reg, 0)])
                if ns.controller.statistics().inline_completions:
                    break
            return ns.controller.statistics().inline_completions

    for mode in ("inline", "adaptive"):
        assert await inline(Plan(mode=mode, spin_us=0), "5ms", 0) == 0
    if form == "single":  # those of a batch are not counted
        assert await inline(Plan(mode="inline", spin_us=1000), "50us", 1)


def test_plans_that_are_refused() -> None:
    for bad in (
        {"spin_us": -1},
        {"spin_us": 1001},
        {"spin_us": True},
        {"chunk": 32 * KIB},
        {"chunk": 96 * KIB},
        {"chunk": 2 << 30},
        {"mode": "fast"},
        {"io_class": "urgent"},
    ):
        with pytest.raises(OptionError, match=next(iter(bad))):
            Plan(**bad)  # type: ignore[arg-type]


class Asked:
    """It notes what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Intent] = []

    def plan(self, intent: Intent, /) -> Plan:
        self.seen.append(intent)
        large = intent.nbytes is None or intent.nbytes > MIB
        return Plan(io_class="background" if large else "latency", mode="interrupt")


def classes_of(ns: Opened) -> set[IoClass]:
    """Return the classes that commands were of."""
    return {row.io_class for row in ns.controller.statistics().latencies}


def counted(ns: Opened) -> Counter[IoClass]:
    """Return how many commands were of each class."""
    rows = ns.controller.statistics().latencies
    return sum((Counter({row.io_class: row.commands}) for row in rows), Counter())


@pytest.mark.core
async def test_commands_without_data_are_done_as_they_say(world: World) -> None:
    policy = Asked()
    async with world.open(emu={"size": "16MiB"}, queues=2) as ns:
        quiet = ns.using(io_class="background")
        await quiet.flush(policy=policy)
        for call in (quiet.write_zeroes, quiet.deallocate, quiet.verify):
            await call(offset=0, nbytes=PAGE, policy=policy)
            await call(offset=0, nbytes=PAGE, io_class="normal", mode="poll")
        assert [intent.name for intent in policy.seen] == [
            "flush",
            "write_zeroes",
            "deallocate",
            "verify",
        ]
        assert classes_of(ns) == {"latency", "background", "normal"}
        for call in (quiet.write_zeroes, quiet.deallocate, quiet.verify):
            with pytest.raises(OptionError, match="mode"):
                await call(offset=0, nbytes=PAGE, mode="fast")
        with pytest.raises(OptionError, match="io_class"):
            await quiet.flush(io_class="urgent")


class Steady:
    """It says the same of all, and counts how often it was asked."""

    def __init__(self, **plan: Any) -> None:  # noqa: ANN401
        self.answer = Plan(**plan)
        self.seen: list[Intent] = []

    def plan(self, intent: Intent, /) -> Plan:
        self.seen.append(intent)
        return self.answer


SAID: tuple[dict[str, Any], ...] = (
    {"io_class": "background"},
    {"io_class": "normal"},
    {"mode": "poll"},
    {"mode": "interrupt", "io_class": "latency"},
    {"policy": "latency"},
    {"policy": "latency", "io_class": "background", "mode": "poll"},
    {"policy": Plan(mode="poll", chunk=64 * KIB)},
    {"policy": Steady(mode="poll", io_class="background", chunk=64 * KIB)},
    {"policy": Steady(chunk=64 * KIB), "mode": "poll", "io_class": "background"},
)


@pytest.mark.few
@pytest.mark.parametrize("handle", [{}, {"policy": Steady(io_class="latency")}])
async def test_a_call_is_done_as_a_handle_that_says_the_same(
    world: World, handle: dict[str, Any]
) -> None:
    """Once when it is looked up, and when it is known."""
    async with (
        world.open(emu={"size": "16MiB"}, queues=2) as base,
        base.allocate(256 * KIB) as reg,
    ):
        ns = base.using(**handle)

        async def done(call: Any) -> tuple[object, ...]:  # noqa: ANN401
            def seen() -> tuple[dict[str, int], int, int]:
                stats = base.controller.statistics()
                rows = {str(c): 0 for c in ("latency", "normal", "background")}
                for row in stats.latencies:
                    rows[row.io_class or ""] += row.commands
                return rows, executors(base), stats.commands

            before, polled, sent = seen()
            await call
            after, now, total = seen()
            classes = {name: after[name] - count for name, count in before.items()}
            return classes, now - polled, total - sent

        for said in SAID:
            other = ns.using(**said)
            for work in ("read", "write"):
                want = await done(getattr(other, work)(reg, offset=0))
                for _ in range(2):
                    got = await done(getattr(ns, work)(reg, offset=0, **said))
                    assert got == want, said
                want = await done(getattr(other, f"{work}_many")([(reg, 0)]))
                for _ in range(2):
                    call = getattr(ns, f"{work}_many")([(reg, 0)], **said)
                    assert await done(call) == want, said


@pytest.mark.few
async def test_a_policy_is_asked_once_for_each_operation(world: World) -> None:
    policy = Steady(io_class="latency")
    async with world.open(emu={"size": "16MiB"}) as ns, ns.allocate(2 * PAGE) as reg:
        asked = ns.using(policy=policy)
        for _ in range(2):
            policy.seen.clear()
            await asked.read(reg[PAGE:], offset=PAGE)
            await asked.read(reg, offset=0, nbytes=PAGE)
            await ns.write(reg, offset=0, policy=policy)
            await asked.read_many([(reg, 0)])
            with pytest.raises(RangeError):
                await asked.read(reg, offset=16 * MIB)
            assert policy.seen == [
                ("read", PAGE, PAGE),
                ("read", 0, PAGE),
                ("write", 0, 2 * PAGE),
                ("read_many", None, None),
                ("read", 16 * MIB, 2 * PAGE),
            ]
        for bad in ({"mode": "fast"}, {"io_class": ["normal"]}, {"policy": "urgent"}):
            with pytest.raises(OptionError, match=next(iter(bad))):
                await ns.read(reg, offset=0, **bad)
            with pytest.raises(OptionError, match=next(iter(bad))):
                await asked.read_many([(reg, 0)], **bad)
        policy.answer = "latency"  # type: ignore[assignment]
        for call in (asked.read, asked.write):
            with pytest.raises(OptionError, match="no Plan"):
                await call(reg, offset=0)


class Fickle(Plan):
    """A plan that is a policy, and changes its mind."""

    def plan(self, intent: Intent, /) -> Plan:
        """Return itself, or another."""
        return self if intent.offset else Plan(io_class="background")


@pytest.mark.few
async def test_a_policy_may_answer_otherwise_each_time(world: World) -> None:
    turns = Steady(io_class="latency")
    plans = [Plan(io_class="latency"), Plan(io_class="background")]
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for handle, said in (
            (ns, {"policy": turns}),
            (ns.using(policy=turns), {}),
            (ns.using(policy=turns, mode="interrupt"), {}),
        ):
            for answer in (*plans, *plans):
                turns.answer = answer
                before = counted(ns)
                await handle.read(reg, offset=0, **said)
                assert counted(ns) - before == Counter({answer.io_class: 1})
            turns.answer = None  # type: ignore[assignment]
            with pytest.raises(OptionError, match="no Plan"):
                await handle.read(reg, offset=0, **said)
        fickle = Fickle(io_class="latency")
        for offset, io_class in ((PAGE, "latency"), (0, "background")) * 2:
            before = counted(ns)
            await ns.read(reg, offset=offset, policy=fickle)
            assert counted(ns) - before == Counter({io_class: 1})


@pytest.mark.few
async def test_what_is_said_with_a_policy_goes_before_it(world: World) -> None:
    policy = Steady(mode="inline", io_class="background")
    async with world.open(emu={"size": "16MiB"}, queues=2) as ns:
        handle = ns.using(policy=policy, mode="poll", io_class="latency")
        async with ns.allocate(PAGE) as reg:
            polled = executors(ns)
            await handle.read(reg, offset=0)
            assert executors(ns) - polled == 1
            assert classes_of(ns) == {"latency"}


async def _calls(work: Callable[[], Awaitable[object]]) -> int:
    """Return how many Python functions it calls where it ends inside the call."""
    count, least = 0, 1000

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(100):  # what is found once is found, and some end later
        count = 0
        sys.setprofile(note)
        try:
            await work()
        finally:
            sys.setprofile(None)
        least = min(least, count)
    return least


def test_what_a_call_says_is_cheap() -> None:
    """The fast path goes on: one call more, and its own where a policy is asked."""

    async def compare() -> None:
        async with aiougds.open("emu:?size=1MiB") as ns, ns.allocate(PAGE) as reg:
            for method in (ns.read, ns.write):
                plain = await _calls(partial(method, reg, offset=0))
                for said, more in (
                    ({"io_class": "latency"}, 1),
                    ({"mode": "inline", "io_class": "background"}, 1),
                    ({"policy": "latency"}, 1),
                    ({"policy": Plan(mode="inline")}, 1),
                    ({"policy": Steady(mode="inline")}, 2),
                ):
                    calls = await _calls(partial(method, reg, offset=0, **said))
                    assert calls <= plain + more, said
            for extra in ({}, {"io_class": "latency"}):
                handle = ns.using(policy=Steady(mode="inline"), **extra)
                calls = await _calls(partial(handle.read, reg, offset=0))
                assert calls <= plain + 2, extra

    asyncio.run(compare())
