"""In asyncio's debug mode, what is waited for has a name."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine

import pytest
import uvloop

import aiougds
from aiougds.testing import Fault, inject

ADDRESS = "emu:?size=1MiB&lba=512"
pytestmark = pytest.mark.few
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]
loops = pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])


def run(
    work: Coroutine[object, object, None],
    loop: Callable[[], asyncio.AbstractEventLoop],
    *,
    debug: bool = True,
) -> None:
    with asyncio.Runner(debug=debug, loop_factory=loop) as runner:
        runner.run(work)


async def waits_for(task: asyncio.Task[object]) -> str:
    """Return how a task that has begun to wait is shown."""
    async with asyncio.timeout(20):
        while "wait_for=" not in repr(task):
            await asyncio.sleep(0.001)
    return repr(task)


@loops
def test_a_task_says_what_it_waits_for(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with aiougds.open(ADDRESS) as ns, ns.allocate(4096) as reg:
            where = f"namespace 1 of {ADDRESS}"
            part = ns.region(65536, 65536)
            with inject(ns, Fault.hold()):
                calls: dict[str, Coroutine[object, object, object]] = {
                    f"read of 512 bytes at offset 1024 of {where}": ns.read(
                        reg[:512], offset=1024
                    ),
                    f"write of 4096 bytes at offset 69632 of {where}": part.write(
                        reg, offset=4096
                    ),
                    f"flush of {where}": ns.flush(),
                    f"write_zeroes of 1024 bytes at offset 0 of {where}": (
                        ns.write_zeroes(offset=0, nbytes=1024)
                    ),
                    f"batch of 2 operations of {ADDRESS}": ns.read_many(
                        [(reg[:512], 0), (reg[512:1024], 512)]
                    ),
                }
                tasks = {
                    what: asyncio.ensure_future(call) for what, call in calls.items()
                }
                for what, task in tasks.items():
                    assert f"<Future aiougds: {what}, pending" in await waits_for(task)
            await asyncio.gather(*tasks.values())

    run(main(), loop)


@loops
def test_a_batch_and_a_thread_have_names(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with aiougds.open(ADDRESS) as ns, ns.allocate(4096) as reg:
            pairs = [(reg[i * 512 :][:512], 0) for i in range(4)]

            async def all_of_them() -> int:
                async with ns.as_completed(pairs[1:]) as done:
                    return sum([result async for _, result in done])

            with inject(ns, Fault.hold()):
                async with ns.batch(1) as batch:
                    batch.read(pairs[0][0], offset=0)
                    batch.submit()
                    harvest = asyncio.ensure_future(batch.harvest(1))
                    assert "aiougds: batch of 1 operations" in await waits_for(harvest)
                    several = asyncio.ensure_future(all_of_them())
                    assert "aiougds: batch of 3 operations" in await waits_for(several)
                    harvest.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await harvest
                    late = asyncio.ensure_future(batch.harvest(1, timeout_s=0.02))
                    assert "aiougds: batch of 1 operations" in await waits_for(late)
                    assert await late == []
                    batch.cancel()
            assert await several == 3 * 512
        never = aiougds.open(f"{ADDRESS}&csts=1&to=2")  # becomes not ready in a second
        opening = asyncio.ensure_future(never.__aenter__())
        assert "in a thread, pending" in await waits_for(opening)
        with pytest.raises(aiougds.OpenError):
            await opening

    run(main(), loop)


@loops
def test_a_cancelled_one_still_does(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with aiougds.open(ADDRESS) as ns, ns.allocate(4096) as reg:
            with inject(ns, Fault.hold()):
                task = asyncio.ensure_future(ns.read(reg, offset=0))
                await waits_for(task)
                task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert "aiougds: read of 4096 bytes" in repr(task)
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main(), loop)


def test_without_it_they_are_plain() -> None:
    async def main() -> None:
        async with aiougds.open(ADDRESS) as ns, ns.allocate(4096) as reg:
            with inject(ns, Fault.hold()):
                task = asyncio.ensure_future(ns.read(reg, offset=0))
                assert "aiougds:" not in await waits_for(task)
            await task

    run(main(), asyncio.new_event_loop, debug=False)


def test_a_slow_step_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0.02
        address = f"{ADDRESS}&latency=2ms"
        async with aiougds.open(address) as ns, ns.allocate(4096) as reg:
            await ns.read(reg, offset=0)
            time.sleep(0.05)
            await ns.read(reg, offset=512)

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(main(), asyncio.new_event_loop)
    slow = [record.message for record in caplog.records if "took" in record.message]
    assert any("aiougds: read of 4096 bytes at offset 512" in line for line in slow)


def test_the_environment_turns_it_on() -> None:
    script = f"""
import asyncio, aiougds
from aiougds.testing import Fault, inject
async def main():
    async with aiougds.open({ADDRESS!r}) as ns, ns.allocate(4096) as reg:
        with inject(ns, Fault.hold()):
            task = asyncio.ensure_future(ns.read(reg, offset=0))
            while "wait_for=" not in repr(task):
                await asyncio.sleep(0.001)
            print(task)
        await task
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONASYNCIODEBUG": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "Future aiougds: read of 4096 bytes at offset 0" in done.stdout
    assert not done.stderr
