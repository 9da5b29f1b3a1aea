"""Which stream is it? Default streams, threads that end, handles that come again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from gpu.on_stream import SMALL, buffer, ended, obj, until
from gpu.rig import GPU
from gpu.vendors import done
from helpers.facade import bare
from helpers.model import PAGE, pattern
from helpers.world import World

import aiougds
from aiougds import ArgumentError, OperationTimeoutError
from aiougds._streams import Streams
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few, pytest.mark.software]
ADDRESS = "emu:?size=1MiB&lba=512"


def in_a_thread(work: Callable[[], object]) -> int:
    """Run it in a new thread, and return that one's identifier."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    ident = thread.ident
    thread.join()
    if failure:
        raise failure[0]
    assert ident is not None
    return ident


@pytest.mark.parametrize("handle", [0, 1, 2])
async def test_default_streams_are_of_the_memorys_gpu(
    world: World, gpu: GPU, handle: int
) -> None:
    """Whichever is current: here it is the other one."""
    data = pattern(PAGE, 1)
    ptr = gpu.alloc(PAGE, device=1)
    before = gpu.api.current()
    async with world.open(emu=SMALL) as ns:
        await ns.write(data, offset=0)
        async with ns.register((ptr, PAGE, f"{gpu.name}:1")) as reg:
            op = ns.read_on(handle, bare(reg), offset=0)
            assert await ended(world, op) == PAGE
            assert op.event.device == 1
            with ns.on_stream(handle) as group:
                group.write(bare(reg), offset=PAGE)
            assert await ended(world, group.operation) == PAGE
            await ns.write(bare(reg), offset=2 * PAGE, stream=handle)
        assert gpu.get(ptr, PAGE) == data
        del op, group
    assert gpu.api.current() == before


@pytest.mark.parametrize("handle", [0, 1, 2])
def test_in_a_thread_where_nothing_is_current(gpu: GPU, handle: int) -> None:
    """The memory says where; without, CUDA cannot know, and HIP means device 0."""
    data = pattern(PAGE, 2)
    ptr = gpu.alloc(PAGE)
    with aiougds.blocking.open(ADDRESS) as ns:
        ns.write(data, offset=0)

        def with_memory_of_the_gpu() -> None:
            memory = (ptr, PAGE, gpu.name)
            assert ns.read_on(handle, memory, offset=0).wait() == PAGE
            assert ns.write(memory, offset=PAGE, stream=handle) == PAGE

        def with_memory_of_the_host() -> None:
            target, stream = bytearray(PAGE), obj(gpu, handle)
            if gpu.name == "hip":
                assert ns.read_on(stream, target, offset=0).wait() == PAGE
                return
            with pytest.raises(ArgumentError, match="where nothing is, and memory of"):
                ns.read_on(stream, target, offset=0)

        in_a_thread(with_memory_of_the_gpu)
        in_a_thread(with_memory_of_the_host)
        assert gpu.get(ptr, PAGE) == data


def test_beside_host_memory_they_are_of_what_is_current(gpu: GPU) -> None:
    """Here the second GPU: a plain write waits for its kernel, not for the first's."""
    with aiougds.blocking.open(ADDRESS) as ns:
        stream = obj(gpu, 0)

        def on_the_second() -> None:
            if gpu.name == "cuda":
                from cuda.bindings import driver

                ctx = done(driver.cuDevicePrimaryCtxRetain(1))
                done(driver.cuCtxSetCurrent(ctx))
            else:
                from hip import hip

                done(hip.hipSetDevice(1))
            gpu.soft.kernel(0)
            with pytest.raises(OperationTimeoutError, match="the work on its stream"):
                ns.write(b"x" * 512, offset=0, stream=stream, timeout_s=0.05)
            gpu.soft.end_kernels()
            assert ns.write(b"x" * 512, offset=0, stream=stream) == 512

        def where_nothing_is() -> None:
            if gpu.name == "hip":  # it is the first GPU there
                assert ns.write(b"x" * 512, offset=0, stream=stream) == 512
                return
            with pytest.raises(ArgumentError, match="where nothing is, and memory of"):
                ns.write(b"x" * 512, offset=0, stream=stream)

        in_a_thread(on_the_second)
        in_a_thread(where_nothing_is)


def test_threads_that_end_take_their_default_stream_with_them(gpu: GPU) -> None:
    """Another thread may get the identifier, not the stream; none is kept for good."""
    ptr = gpu.alloc(PAGE)
    with aiougds.blocking.open(ADDRESS) as ns:
        streams = ns.controller._device.streams
        lines: list[object] = []
        idents: list[int] = []
        pinned: list[int] = []

        def work() -> None:
            assert ns.read_on(2, (ptr, PAGE, gpu.name), offset=0).wait() == PAGE
            (line,) = streams._lines.values()
            lines.append(line)
            pinned.append(gpu.soft.live().pinned)

        for _ in range(6):
            idents.append(in_a_thread(work))
            assert len(streams._lines) == 1
        assert len(set(idents)) < 6, "no identifier came again: this shows nothing"
        assert len(set(map(id, lines))) == 6
        assert not streams._retired
        assert len(set(pinned)) == 1, "a ring of each would be kept"


async def test_a_handle_that_is_anothers_by_now(world: World, gpu: GPU) -> None:
    """What is pending of the destroyed one keeps its place in its own order."""
    data = pattern(2 * PAGE, 3)
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 2 * PAGE, "gpu") as buf:
        await ns.write(data, offset=0)
        first = gpu.stream()
        for on in (obj(gpu, first), first):
            gpu.soft.kernel(first)
            op = ns.read_on(on, buf[:PAGE], offset=0)
            gpu.destroy(first)
            assert gpu.stream() == first, "the handle comes again"
            behind = ns.read_on(on, buf[PAGE:], offset=PAGE)
            assert await ended(world, behind) == PAGE
            assert op.state == "waiting"
            assert buf.get() == b"\xee" * PAGE + data[PAGE:]
            # While the old one is not over, each has its own.
            again = ns.write_on(on, buf[PAGE:], offset=PAGE)
            assert await ended(world, again) == PAGE
            gpu.soft.end_kernels()
            assert await ended(world, op) == PAGE
            assert buf.get() == data
            buf.put(b"\xee" * 2 * PAGE)
        assert ns.controller._device.streams.unfinished() == 0


async def test_a_stall_on_a_destroyed_stream_waits_for_its_user(
    world: World, gpu: GPU
) -> None:
    """New lines are made meanwhile, which lets go of old ones that are over."""
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        first = gpu.stream()
        with inject(ns, Fault.status("read", sct=2, sc=0x81)):
            op = ns.read_on(obj(gpu, first), buf.reg, offset=0, on_error="stall")
            await until(world, lambda: op.state == "stalled")
        gpu.destroy(first)
        handles = [gpu.stream() for _ in range(4)]
        for handle in handles:
            behind = ns.read_on(obj(gpu, handle), buf.reg, offset=0)
            assert await ended(world, behind) == PAGE
        assert op.state == "stalled"
        assert op.resume()
        assert await ended(world, op) == PAGE


async def test_streams_are_let_go_with_their_controller(
    world: World, gpu: GPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that the GPU passes behind the last look at it before C's own."""
    close = Streams.close

    def late(streams: Streams, *, force: bool) -> bool:
        over = streams._device.ended
        return close(streams, force=force) if over else False

    stream = gpu.stream()
    monkeypatch.setattr(Streams, "close", late)
    async with world.opening(world.address(**SMALL), mode=world.mode) as ns:
        streams = ns.controller._device.streams
        op = ns.read_on(obj(gpu, stream), bytearray(PAGE), offset=0)
        assert await ended(world, op) == PAGE
        assert streams._all()
    assert not streams._all()
