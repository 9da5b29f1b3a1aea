"""Polling executors that several controllers share."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, World

import aiougds
from aiougds import BusyError, ClosedError, OptionError, PollingExecutor


async def moved(world: World, ns: Any, rounds: int, seed: int) -> None:  # noqa: ANN401
    """Write and read through the executor, several at once."""
    data = pattern(8 * PAGE, seed)
    async with ns.register(bytearray(data)) as reg:
        parts = [(reg[at : at + PAGE], at) for at in range(0, 8 * PAGE, PAGE)]
        for _ in range(rounds):
            await world.gather(
                *(partial(ns.write, b, offset=at, mode="poll") for b, at in parts)
            )
            reg.view[:] = bytes(len(data))
            await world.gather(
                *(partial(ns.read, b, offset=at, mode="poll") for b, at in parts)
            )
            assert bytes(reg.view) == data


@pytest.mark.core
@pytest.mark.parametrize(("threads", "devices"), [(1, 3), (2, 3), (3, 1)])
async def test_controllers_share_threads(
    world: World, threads: int, devices: int
) -> None:
    with PollingExecutor(threads) as executor:
        async with AsyncExitStack() as stack:
            spaces = [
                await stack.enter_async_context(world.open(executor=executor))
                for _ in range(devices)
            ]
            for turn in range(2):
                for index, ns in enumerate(spaces):
                    await moved(world, ns, 3, seed=turn + index)
            seen = executor.threads
            assert len(seen) == threads
            assert sum(one.controllers for one in seen) == devices
            assert max(one.controllers for one in seen) == -(-devices // threads)
            assert sum(one.found for one in seen) > 0
            with pytest.raises(BusyError, match="in use"):
                executor.close()
        assert [one.controllers for one in executor.threads] == [0] * threads
    assert executor.closed


@pytest.mark.core
async def test_one_comes_and_goes_while_another_works(world: World) -> None:
    with PollingExecutor() as executor:
        async with world.open(executor=executor) as ns:
            await moved(world, ns, 1, seed=1)
            for turn in range(10):
                async with world.open(executor=executor) as other:
                    await world.gather(
                        partial(moved, world, ns, 2, turn),
                        partial(moved, world, other, 2, turn + 1),
                    )


@pytest.mark.few
async def test_an_idle_executor_sleeps_and_misses_nothing(world: World) -> None:
    with PollingExecutor() as executor:
        async with (
            world.open(executor=executor, emu={"latency": "3ms"}) as slow,
            world.open(executor=executor) as ns,
            ns.allocate(PAGE) as reg,
            slow.allocate(PAGE) as other,
        ):
            await ns.read(reg, offset=0, mode="poll")
            for _ in range(20):  # longer at the device than it spins
                await slow.read(other, offset=0, mode="poll")
            before = executor.threads[0]
            assert before.sleeps > 0
            time.sleep(0.3)
            after = executor.threads[0]
            assert after.passes - before.passes < 20_000
            assert after.cpu_s - before.cpu_s < 0.1
            await ns.read(reg, offset=0, mode="poll")


@pytest.mark.few
@pytest.mark.parametrize("vectors", [1, 2, 16])
async def test_it_sleeps_through_what_others_wait_for(
    world: World, vectors: int
) -> None:
    """Its queue pair shares a vector, and nothing of it is at the device."""
    with PollingExecutor() as executor:
        async with (
            # the loop has a queue pair of its own, which it has not where all is polled
            world.open(
                executor=executor,
                mode="interrupt",
                emu={"latency": "100us"},
                vectors=vectors,
            ) as ns,
            ns.allocate(PAGE) as reg,
        ):
            await ns.read(reg, offset=0, mode="poll")
            time.sleep(0.1)
            before = executor.threads[0]
            for _ in range(100):
                await ns.read(reg, offset=0, mode="interrupt")
            after = executor.threads[0]
            assert after.found == before.found  # none was its own
            assert after.sleeps - before.sleeps < 10
            assert ns.controller.statistics().stragglers == 0


@pytest.mark.few
async def test_who_is_polled_for_is_woken_once_an_operation(world: World) -> None:
    async with (
        world.open(mode="interrupt", emu={"latency": "50us"}) as ns,
        ns.allocate(PAGE) as reg,
    ):
        await ns.read(reg, offset=0)  # a pair of its own beside the executor's
        before = ns.controller.statistics().wakeups
        for _ in range(100):
            await ns.read(reg, offset=0, mode="poll")
        assert ns.controller.statistics().wakeups - before <= 100


@pytest.mark.few
async def test_it_is_kept_on_its_processors(world: World) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with PollingExecutor(3, cpus=cpus) as executor:
        async with world.open(executor=executor) as ns:
            await moved(world, ns, 1, seed=2)
        for index, one in enumerate(executor.threads):
            cpu = cpus[index % len(cpus)]
            assert one.cpu == cpu
            deadline = time.monotonic() + 30
            while not executor.threads[index].thread_id:
                assert time.monotonic() < deadline
                os.sched_yield()
            thread = executor.threads[index].thread_id
            assert os.sched_getaffinity(thread) == {cpu}


@pytest.mark.few
async def test_statistics_tell_of_it(world: World) -> None:
    cpu = min(os.sched_getaffinity(0))
    with PollingExecutor(2, cpus=[cpu]) as executor:
        async with (
            world.open(executor=executor) as ns,
            world.open(executor=executor) as other,
            ns.allocate(PAGE) as reg,
            other.allocate(PAGE) as too,
        ):
            for _ in range(3):
                await ns.read(reg, offset=0, mode="poll")
                await other.read(too, offset=0, mode="poll")
            (mine,) = ns.controller.statistics().executors
            (its,) = other.controller.statistics().executors
            assert mine.thread_id != its.thread_id
            seen = {one.thread_id: one for one in executor.threads}
            for one in (mine, its):
                assert (one.cpu, one.queue_pairs, one.controllers) == (cpu, 1, 1)
                assert 0 < one.cpu_s <= one.alive_s
                assert 0 < one.busy <= 1
                assert 0 < one.found <= one.passes <= seen[one.thread_id].passes
    async with world.open(mode="poll") as ns, ns.allocate(PAGE) as reg:
        await ns.read(reg, offset=0)
        (one,) = ns.controller.statistics().executors
        assert (one.cpu, one.queue_pairs) == (None, 1)


def test_nothing_polls_until_it_has_to() -> None:
    with aiougds.blocking.open("emu:?size=1MiB") as ns, ns.allocate(PAGE) as reg:
        ns.read(reg, offset=0)
        assert ns.controller.statistics().executors == ()


def test_what_is_refused() -> None:
    most = max(os.sched_getaffinity(0))
    for bad in ({"threads": 0}, {"threads": 65}, {"threads": True}, {"threads": "2"}):
        with pytest.raises(OptionError):
            PollingExecutor(**bad)  # type: ignore[arg-type]
    for cpus in ([most + 1], [-1], [], ["0"]):
        with pytest.raises(OptionError, match="cpu"):
            PollingExecutor(cpus=cpus)  # type: ignore[arg-type]
    executor = PollingExecutor()
    assert "threads=1 controllers=0" in repr(executor)
    executor.close()
    executor.close()
    assert repr(executor) == "<PollingExecutor closed>"
    with pytest.raises(ClosedError):
        _ = executor.threads
    with pytest.raises(ClosedError):
        executor.__enter__()


def test_a_closed_one_opens_nothing() -> None:
    executor = PollingExecutor()
    executor.close()
    with pytest.raises(ClosedError):
        aiougds.blocking.open("emu:?size=1MiB", executor=executor)
    with pytest.raises(OptionError, match="PollingExecutor"):
        aiougds.blocking.open("emu:?size=1MiB", executor=3)  # type: ignore[arg-type]


def test_a_fork_leaves_it_to_the_parent() -> None:
    with PollingExecutor() as executor:
        ns = aiougds.blocking.open("emu:?size=1MiB", executor=executor, mode="poll")
        with ns, ns.allocate(PAGE) as reg:
            ns.read(reg, offset=0)
            child = os.fork()
            if not child:
                code = 1
                try:
                    try:
                        _ = executor.threads
                    except ClosedError:
                        code = 0
                    executor.close()
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert ns.read(reg, offset=0) == PAGE
            assert ns.size == MIB
