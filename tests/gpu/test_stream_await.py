"""Awaiting operations and events: often, from anywhere, or not at all."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from typing import Any

import anyio
import pytest
from gpu.on_stream import SMALL, buffer, ended, obj, recorded, until
from gpu.real import RealGPU
from gpu.rig import GPU
from helpers.facade import bare
from helpers.model import PAGE, pattern
from helpers.world import MIB, World

import aiougds
from aiougds import MediaError, RegistrationBusyError, WrongLoopError
from aiougds._streams import MANY
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
BAD = Fault.status("read", sct=2, sc=0x81)


async def test_by_many_tasks_and_many_times(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream, seconds=0.05)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        calls = [lambda: ended(world, op)] * 5
        assert await world.gather(*calls) == [PAGE] * 5
        assert await ended(world, op) == PAGE


async def test_from_another_thread(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream, seconds=0.05)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        seen: list[int] = []

        async def work() -> None:
            seen.append(await op)

        threads = [
            threading.Thread(target=lambda: seen.append(op.wait())),
            threading.Thread(target=lambda: asyncio.run(work())),
        ]
        for thread in threads:
            thread.start()
        assert await ended(world, op) == PAGE
        await until(world, lambda: len(seen) == 2)
        assert seen == [PAGE, PAGE]
        for thread in threads:
            thread.join()


async def test_a_thread_waits_so_long(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        if world.loop == "blocking":
            with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
                op.wait(0.01)
            assert not aiougds.gpu_event(op.event).wait(0.01)
        else:
            for call in (op.wait, aiougds.gpu_event(op.event).wait):
                with pytest.raises(WrongLoopError, match="inside a running event loop"):
                    call()
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE


async def test_times_that_are_none(world: World, gpu: GPU) -> None:
    """Refused before the loop is looked at; 0 looks once, endless is endless."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        bad: list[Any] = ["x", -1, -0.001, float("nan"), [], 1j]
        for value in bad:
            for call in (op.wait, aiougds.gpu_event(op.event).wait):
                with pytest.raises(aiougds.OptionError, match="0 to look once"):
                    call(value)
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE


def test_a_thread_looks_once(gpu: GPU) -> None:
    stream = gpu.stream()
    with aiougds.blocking.open("emu:?size=1MiB&lba=512") as ns:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
        with pytest.raises(TimeoutError, match="within 0 s"):
            op.wait(0)
        assert not aiougds.gpu_event(op.event).wait(0)
        gpu.soft.end_kernels()
        end = time.monotonic() + 20
        while op.state != "done":  # nobody was told of it yet
            assert time.monotonic() < end
            time.sleep(0.001)
        assert op.wait(0) == PAGE
        gpu.soft.kernel(stream, seconds=0.05)
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
        assert op.wait(float("inf")) == PAGE
        gpu.soft.kernel(stream, seconds=0.05)
        with recorded(gpu, stream) as event:
            assert aiougds.gpu_event(event).wait(float("inf"))


async def test_a_failure_that_nobody_awaits_is_logged(
    world: World, gpu: GPU, caplog: pytest.LogCaptureFixture
) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        with caplog.at_level(logging.ERROR, "aiougds.stream"), inject(ns, BAD):
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            gc.collect()
            await until(world, lambda: not buf.reg.inflight)
            # A thread hears of it with its next call.
            last = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            with pytest.raises(MediaError):
                await ended(world, last)
            del last
            gc.collect()
            await until(world, lambda: caplog.records)
        assert len(caplog.records) == 1
        assert "nobody awaited it: MediaError" in caplog.text


@pytest.mark.parametrize("before", [True, False], ids=["stalled", "waiting"])
@pytest.mark.parametrize("heard", ["by a loop", "by one that is over", "by nobody"])
def test_a_stall_that_nobody_can_end_fails(
    gpu: GPU, caplog: pytest.LogCaptureFixture, heard: str, before: bool
) -> None:
    """Dropped before it stalls or after, with a loop that is told or without."""
    stream = gpu.stream()

    def passed(event: aiougds.StreamEvent) -> None:
        end = time.monotonic() + 20
        while not event.query():
            assert time.monotonic() < end, "the stream is not let pass"
            time.sleep(0.001)

    async def begin(ns: aiougds.Namespace) -> aiougds.StreamOperation | None:
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0, on_error="stall")
        if heard == "by one that is over":
            return op
        while before and op.state != "stalled":
            await asyncio.sleep(0.001)
        event = op.event
        del op
        await asyncio.to_thread(passed, event)
        return None

    with aiougds.blocking.open("emu:?size=1MiB&lba=512") as ns:
        gpu.soft.kernel(stream, seconds=0.05)
        with caplog.at_level(logging.ERROR, "aiougds.stream"), inject(ns, BAD):
            if heard == "by nobody":
                op = ns.read_on(
                    obj(gpu, stream), bytearray(PAGE), offset=0, on_error="stall"
                )
            else:
                op = asyncio.run(begin(ns._ns))
            if op is not None:
                while before and op.state != "stalled":
                    time.sleep(0.001)
                event = op.event
                del op
                passed(event)
                del event
        # A thread hears of it with its next call.
        assert ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0).wait() == PAGE
        assert ns.controller._device.streams.unfinished() == 0
        assert len(caplog.records) == 1
        assert "nobody awaited it: MediaError" in caplog.text


async def test_a_dropped_operation_keeps_what_it_uses(world: World, gpu: GPU) -> None:
    data = pattern(PAGE, 1)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns:
        await ns.write(data, offset=0)
        gpu.soft.kernel(stream)
        target = bytearray(PAGE)
        op = ns.read_on(obj(gpu, stream), target, offset=0)
        with pytest.raises(BufferError):
            target.append(0)
        del op
        gc.collect()
        with pytest.raises(BufferError):
            target.append(0)
        gpu.soft.end_kernels()
        await until(world, lambda: bytes(target) == data)
        async with ns.allocate(PAGE) as reg:  # a thread hears with its next call
            await ended(world, ns.read_on(obj(gpu, stream), bare(reg), offset=0))
        target.append(0)  # it was let go


async def test_registered_memory_is_busy(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, ns.allocate(PAGE) as reg:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), bare(reg), offset=0)
        with pytest.raises(RegistrationBusyError):
            await reg.aclose(timeout_s=0)
        with pytest.raises(aiougds.ControllerBusyError):
            await ns.aclose(timeout_s=0)
        assert op.state == "waiting"
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE


async def test_close_waits_for_the_stream(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    address = world.address(**SMALL)
    async with world.opening(address, mode=world.mode) as ns:
        gpu.soft.kernel(stream, seconds=0.1)
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
        assert op.state == "waiting"
    assert op.state == "done"
    assert await ended(world, op) == PAGE
    assert not op.cancel()
    assert not op.resume()


async def test_events_of_others(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    gpu.soft.kernel(stream)
    with recorded(gpu, stream) as event:
        waiting = aiougds.gpu_event(event)
        assert not waiting.done
        if world.loop == "blocking":
            assert not waiting.wait(0.01)
            gpu.soft.end_kernels()
            assert waiting.wait(10)
        else:
            before = threading.active_count()
            with anyio.move_on_after(0.02) as scope:
                await waiting
            assert scope.cancelled_caught
            gpu.soft.end_kernels()
            await waiting
            await waiting
            assert threading.active_count() == before, "no thread of Python's"
        assert waiting.done


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_sinks_end_with_their_loops(gpu: GPU, loop: str) -> None:
    import trio
    import uvloop

    stream = gpu.stream()

    def fds() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def once(ns: aiougds.Namespace) -> None:
        assert await ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0) == PAGE
        with recorded(gpu, stream) as event:
            await aiougds.gpu_event(event)

    def run() -> None:
        if loop == "trio":
            trio.run(once, ns)
        else:
            factory = uvloop.new_event_loop if loop == "uvloop" else None
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(once(ns))

    with aiougds.blocking.open("emu:?size=1MiB") as blocking:
        ns = blocking._ns
        run()
        before = fds()
        for _ in range(5):
            run()
        assert fds() <= before


async def test_many_streams_wait_at_once(world: World, gpu: GPU) -> None:
    """64 gated streams, and the default one: no hang, and every byte is right."""
    count = 64
    data = pattern(count * PAGE, 2)
    streams = [gpu.stream() for _ in range(count)]
    async with (
        world.open(emu={"size": MIB, "lba": 512}) as ns,
        buffer(ns, gpu, count * PAGE, "gpu") as buf,
    ):
        await ns.write(data, offset=0)
        parts = [slice(i * PAGE, (i + 1) * PAGE) for i in range(count)]
        with inject(ns, Fault.hold("read")):
            ops = [
                ns.read_on(obj(gpu, stream), buf[part], offset=part.start)
                for stream, part in zip(streams, parts, strict=True)
            ]
            ops.append(ns.write_on(obj(gpu, 0), buf[parts[0]], offset=len(data)))
        for op in ops[:count]:
            assert await ended(world, op) == PAGE
        assert await ended(world, ops[-1]) == PAGE
        assert buf.get() == data


async def test_streams_overlap(world: World, gpu: GPU) -> None:
    """Eight of 20 ms each take far less than one behind the other."""
    streams = [gpu.stream() for _ in range(8)]
    emu = {"size": MIB, "lba": 512, "channels": 8}
    async with world.open(emu=emu) as ns, buffer(ns, gpu, 8 * PAGE, "gpu") as buf:
        for stream in streams:  # made at their first operation
            await ended(world, ns.read_on(obj(gpu, stream), buf[:PAGE], offset=0))

        async def took(chosen: list[int]) -> float:
            start = time.monotonic()
            ops = [
                ns.read_on(obj(gpu, stream), buf[i * PAGE : (i + 1) * PAGE], offset=0)
                for i, stream in enumerate(chosen)
            ]
            for op in ops:
                await ended(world, op)
            return time.monotonic() - start

        with inject(ns, Fault.delay(0.02, "read")):
            in_turn = await took(streams[:1] * 8)
            at_once = await took(streams)
        assert in_turn >= 8 * 0.02
        assert at_once < in_turn / 2


async def test_a_long_kernel_is_no_hang_and_costs_little(
    world: World, gpu: GPU
) -> None:
    stream = gpu.stream()
    address = world.address(**SMALL)
    async with world.opening(address, hang_timeout_s=0.2, mode=world.mode) as ns:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
        spent = time.process_time()
        if world.loop == "blocking":
            time.sleep(1)
        else:
            await anyio.sleep(1)
        spent = time.process_time() - spent
        assert ns.controller.state == "live"
        assert op.state == "waiting"
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE
        # The software GPU's own thread naps too: a generous bar. Polling is asked for.
        assert spent < 0.25 or world.mode == "poll"


async def test_what_no_loop_is_told_of_is_let_go_all_the_same(
    world: World, gpu: GPU
) -> None:
    """A program that never gives its loop a turn does not hold more and more."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        end = time.monotonic() + 20
        for _ in range(4 * MANY):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            while not op.event.query():
                assert time.monotonic() < end
        (line,) = ns._device.streams._all()
        assert line.info().held <= 2 * MANY
        await ended(world, op)


async def test_an_event_that_is_held_stays_its_own(world: World, gpu: GPU) -> None:
    """Its operation is gone, and many others come and go."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "gpu") as buf:
        held = ns.read_on(obj(gpu, stream), buf.reg, offset=0).event
        handle = held.handle
        for _ in range(4 * MANY):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            assert op.event.handle != handle
        await ended(world, op)
        assert held.handle == handle
        assert held.query()


@pytest.mark.parametrize("kept", [True, False])
async def test_many_that_ended_unseen(world: World, gpu: GPU, kept: bool) -> None:
    """More than a recursion could take: they are let go of one after another."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        ops = []
        # a queue of hardware takes some hundreds, and the call waits for room
        for _ in range(100 if isinstance(gpu.soft, RealGPU) else 1500):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            if kept:
                ops.append(op)
        gpu.soft.end_kernels()
        end = time.monotonic() + 20
        while not op.event.query():  # whatever runs here is busy
            assert time.monotonic() < end
            time.sleep(0.001)
        assert await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))
        for op in ops:
            assert await ended(world, op) == PAGE
        del ops
        await until(world, lambda: not buf.reg.inflight)
