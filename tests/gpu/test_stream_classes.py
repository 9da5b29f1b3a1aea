"""Classes, modes and policies of what is put on a stream."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from gpu.on_stream import Where, buffer, ended, obj, until
from gpu.rig import GPU
from helpers.model import PAGE
from helpers.world import KIB, MIB, Opened, Option, World

from aiougds import Intent, IoClass, Mode, OptionError, Plan, testing

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
CHUNK = 64 * KIB
LARGE = 4 * MIB
EMU = {"size": "16MiB", "mdts": 4, "lba": 512}
OPTIONS: dict[str, Any] = {"chunk": CHUNK, "background_inflight": MIB // 2, "queues": 2}
IN_BACKGROUND = MIB // 2 // CHUNK


def classes_of(ns: Opened) -> set[IoClass]:
    return {row.io_class for row in ns.controller.statistics().latencies}


@pytest.mark.parametrize("io_class", ["latency", "normal", "background"])
@pytest.mark.parametrize("said", ["call", "handle", "policy", "controller"])
async def test_of_which_class_they_are(
    world: World, gpu: GPU, io_class: IoClass, said: str
) -> None:
    class Always:
        def plan(self, intent: Intent, /) -> Plan:
            return Plan(io_class=io_class)

    stream = obj(gpu, gpu.stream())
    opened = {"io_class": io_class} if said == "controller" else {}
    async with (
        world.open(emu=EMU, **OPTIONS, **opened) as ns,
        buffer(ns, gpu, PAGE, "gpu") as buf,
    ):
        using = ns.using(io_class=io_class) if said == "handle" else ns
        how: dict[str, Any] = {}
        if said == "call":
            how = {"io_class": io_class}
        elif said == "policy":
            how = {"policy": Always()}
        await ended(world, using.write_on(stream, buf.reg, offset=0, **how))
        await ended(world, using.read_on(stream, buf.reg, offset=0, **how))
        with using.on_stream(stream, **how) as group:
            group.read(buf[:512], offset=0)
            group.write(buf[512:], offset=PAGE)
        await ended(world, group.operation)
        assert classes_of(ns) == {io_class}


@pytest.mark.parametrize("where", ["host", "gpu"])
async def test_the_background_has_little_at_the_device(
    world: World, gpu: GPU, where: Where
) -> None:
    stream = obj(gpu, gpu.stream())
    async with (
        world.open(emu=EMU, **OPTIONS) as ns,
        buffer(ns, gpu, LARGE, where) as buf,
    ):
        fault = testing.inject(ns, testing.Fault.hold("write"))
        op = ns.write_on(stream, buf.reg, offset=0, io_class="background")
        assert await settled(world, fault) == IN_BACKGROUND
        fault.clear()
        assert await ended(world, op) == LARGE
        fault = testing.inject(ns, testing.Fault.hold("write"))
        op = ns.write_on(stream, buf.reg, offset=0)
        assert await settled(world, fault) > IN_BACKGROUND
        fault.clear()
        assert await ended(world, op) == LARGE


async def settled(world: World, fault: testing.Active) -> int:
    """Return how many commands it holds when they are not getting more."""
    await until(world, lambda: fault.hits)
    seen, since = 0, time.monotonic()
    while time.monotonic() < since + 0.1:
        if fault.hits != seen:
            seen, since = fault.hits, time.monotonic()
        time.sleep(0.002)
    return seen


class Noting:
    """A policy that notes what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Intent] = []

    def plan(self, intent: Intent, /) -> Plan:
        self.seen.append(intent)
        return Plan(io_class="latency", mode="interrupt")


async def test_a_policy_is_asked_for_each(world: World, gpu: GPU) -> None:
    policy = Noting()
    stream = obj(gpu, gpu.stream())
    async with (
        world.open(emu=EMU, **OPTIONS, policy=policy) as ns,
        buffer(ns, gpu, PAGE, "host") as buf,
    ):
        await ended(world, ns.write_on(stream, buf.reg, offset=PAGE))
        await ended(world, ns.read_on(stream, buf.reg, offset=0, nbytes=512))
        with ns.on_stream(stream) as group:
            group.read(buf.reg, offset=0)
        await ended(world, group.operation)
        quiet = ns.read_on(stream, buf.reg, offset=0, policy="adaptive")
        await ended(world, quiet)
        assert classes_of(ns) == {"latency", "normal"}
    assert policy.seen == [
        Intent("write_on", PAGE, None),
        Intent("read_on", 0, 512),
        Intent("on_stream", None, None),
    ]


async def test_what_is_refused(world: World, gpu: GPU) -> None:
    stream = obj(gpu, gpu.stream())
    async with (
        world.open(emu=EMU) as ns,
        buffer(ns, gpu, PAGE, "host") as buf,
    ):
        bad: list[dict[str, Option]] = [
            {"io_class": "urgent"},
            {"mode": "fast"},
            {"policy": "fast"},
            {"policy": 3},
        ]
        for how in bad:
            for call in (
                partial(ns.read_on, stream, buf.reg, offset=0),
                partial(ns.write_on, stream, buf.reg, offset=0),
                partial(ns.on_stream, stream),
            ):
                with pytest.raises(OptionError):
                    call(**how)
        assert ns.controller.statistics().commands == 0


@pytest.mark.parametrize("mode", ["interrupt", "adaptive", "inline", "poll"])
async def test_in_every_mode(world: World, gpu: GPU, mode: Mode) -> None:
    """How much awake the executor is then, is seen in C (test_stream_modes.c)."""
    stream = gpu.stream()
    async with (
        world.open(emu=EMU) as ns,
        buffer(ns, gpu, PAGE, "host") as buf,
    ):
        for handle, how in ((ns.using(mode=mode), {}), (ns, {"mode": mode})):
            gpu.soft.kernel(stream, seconds=0.005)
            op = handle.read_on(obj(gpu, stream), buf.reg, offset=0, **how)
            assert await ended(world, op) == PAGE


async def test_a_plan_says_how_large_commands_are(world: World, gpu: GPU) -> None:
    stream = obj(gpu, gpu.stream())
    plan = Plan(io_class="background", chunk=CHUNK)
    async with (
        world.open(emu={"size": "16MiB", "lba": 512}, queues=2) as ns,
        buffer(ns, gpu, MIB, "host") as buf,
    ):

        async def commands(using: Opened, **how: Option) -> int:
            before = ns.controller.statistics().commands
            await ended(world, using.write_on(stream, buf.reg, offset=0, **how))
            return ns.controller.statistics().commands - before

        assert await commands(ns, io_class="background") == 4
        assert await commands(ns, policy=plan) == MIB // CHUNK
        assert await commands(ns.using(policy=plan)) == MIB // CHUNK
