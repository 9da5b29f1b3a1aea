"""When an operation ends, and when its stream may pass: DESIGN's table, case by case.

Behind each operation the stream copies the status cell away, and the event tells when
it has passed: so the cell was there before the stream went on.
"""

from __future__ import annotations

import errno
from typing import Any

import anyio
import pytest
from gpu.on_stream import SMALL, buffer, cells_given_back, copy_in, ended, obj, until
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import World, served

import aiougds
from aiougds import (
    ControllerWedgedError,
    MediaError,
    OperationTimeoutError,
    OperationWithdrawnError,
    StatusCell,
)
from aiougds._ffi import address_of
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
BAD = Fault.status("read", sct=2, sc=0x81)


class Witness:
    """A copy of a status cell that the stream makes as it passes."""

    def __init__(self, gpu: GPU, stream: int, cell: StatusCell | None = None) -> None:
        self._gpu = gpu
        self._stream = stream
        self.cell = cell or StatusCell(device=gpu.name)
        self._ptr = gpu.alloc(16, fill=0xFF)

    def look(self) -> None:
        """Queue the copy."""
        copy_in(self._gpu, self._ptr, address_of(self.cell._host), 16, self._stream)

    def seen(self) -> tuple[int, int, int]:
        """Return state, error and bytes as the stream saw them."""
        raw = self._gpu.get(self._ptr, 16)
        return (
            int.from_bytes(raw[:4], "little"),
            int.from_bytes(raw[4:8], "little", signed=True),
            int.from_bytes(raw[8:], "little"),
        )

    @property
    def passed(self) -> bool:
        return self.seen()[0] != 0xFFFFFFFF


@pytest.fixture(autouse=True)
def _cells(gpu: GPU) -> Any:  # noqa: ANN401
    with cells_given_back():
        yield


async def test_success_passes_at_the_completion(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        witness = Witness(gpu, stream)
        with inject(ns, Fault.hold("read")) as fault:
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=witness.cell)
            witness.look()
            await until(world, lambda: op.state == "running")
            await until(world, lambda: fault.hits)
            assert witness.cell.state == "waiting"
            assert not witness.passed
            assert not op.event.query()
        assert await ended(world, op) == PAGE
        await until(world, lambda: witness.passed)
        assert witness.seen() == (2, 0, PAGE)
        cell = witness.cell
        assert (cell.state, cell.errno, cell.bytes_done) == ("done", 0, PAGE)


async def test_one_cell_for_all_of_a_stream(world: World, gpu: GPU) -> None:
    """Each kernel sees the operation before it; here it says how the last one is."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 2 * PAGE, "host") as buf:
        first = Witness(gpu, stream)
        second = Witness(gpu, stream, first.cell)
        cell = first.cell
        with inject(ns, Fault.hold("read").on(slba=8, nlb=1)):
            op = ns.read_on(obj(gpu, stream), buf[:512], offset=0, status=cell)
            first.look()
            last = ns.read_on(obj(gpu, stream), buf.reg, offset=PAGE, status=cell)
            second.look()
            assert await ended(world, op) == 512
            await until(world, lambda: first.passed)
            assert first.seen() == (2, 0, 512)
            assert (cell.state, cell.bytes_done) == ("waiting", 0)
            assert not second.passed
        assert await ended(world, last) == 2 * PAGE
        await until(world, lambda: second.passed)
        assert second.seen() == (2, 0, 2 * PAGE)
        assert (cell.state, cell.bytes_done) == ("done", 2 * PAGE)
        cell.clear()
        assert (cell.state, cell.bytes_done) == ("waiting", 0)


@pytest.mark.software
async def test_a_cell_is_no_two_streams(world: World, gpu: GPU) -> None:
    stream, other = gpu.stream(), gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        cell = StatusCell(device=gpu.name)
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=cell)
        gpu.soft.fail({"cuda": "cuEventRecord", "hip": "hipEventRecord"}[gpu.name], 2)
        with pytest.raises(aiougds.GPUError):  # halfway: it writes the cell yet
            ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=cell)
        with pytest.raises(aiougds.BusyError, match="which has not passed it"):
            ns.read_on(obj(gpu, other), buf.reg, offset=0, status=cell)
        with pytest.raises(aiougds.BusyError, match="await that first"):
            cell.clear()
        gpu.soft.end_kernels()
        assert await ended(world, op) == PAGE
        await until(world, lambda: cell.state == "failed")
        op = ns.read_on(obj(gpu, other), buf.reg, offset=0, status=cell)
        assert await ended(world, op) == PAGE
        assert cell.state == "done"


async def test_a_failure_passes_and_says_so(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        witness = Witness(gpu, stream)
        with inject(ns, BAD):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=witness.cell)
            witness.look()
            for _ in range(2):  # the same error, any number of times
                with pytest.raises(MediaError) as failure:
                    await ended(world, op)
        assert (failure.value.sct, failure.value.sc) == (2, 0x81)
        assert failure.value.offset == 0
        assert op.state == "failed"
        await until(world, lambda: witness.passed)
        assert witness.seen() == (4, -failure.value.errno, 0)
        assert witness.cell.errno == failure.value.errno
        # What comes behind is not touched by it.
        assert await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))


async def test_the_failure_of_a_set_says_which(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, 4 * PAGE, "host") as buf:
        bad = BAD.on(slba=2 * PAGE // 512, nlb=1)
        with inject(ns, bad):
            with ns.on_stream(obj(gpu, stream)) as group:
                for i in range(4):
                    group.read(buf[i * PAGE : (i + 1) * PAGE], offset=i * PAGE)
            with pytest.raises(MediaError) as failure:
                await ended(world, group.operation)
        assert failure.value.offset == 2 * PAGE
        assert failure.value.__notes__ == ["transfer 2 of the set of 4"]


async def test_withdrawn_before_go(world: World, gpu: GPU) -> None:
    """Its cell says cancelled, nothing was sent, and the stream passes it."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        witness = Witness(gpu, stream)
        sent = served(ns)
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=witness.cell)
        witness.look()
        assert op.cancel()
        assert not op.cancel()
        # It ends at once, though the stream is still before it.
        with pytest.raises(OperationWithdrawnError) as failure:
            await ended(world, op)
        assert failure.value.errno == errno.ECANCELED
        assert op.state == "cancelled"
        assert not op.event.query()
        assert buf.reg.inflight
        gpu.soft.end_kernels()
        await until(world, lambda: witness.passed)
        assert witness.seen() == (3, -errno.ECANCELED, 0)
        await until(world, lambda: not buf.reg.inflight)
        assert served(ns) == sent
        assert buf.get() == b"\xee" * PAGE


async def test_too_late_to_be_withdrawn(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        with inject(ns, Fault.hold("read")) as fault:
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
            await until(world, lambda: fault.hits)
            assert not op.cancel()
            assert op.state == "running"
        assert await ended(world, op) == PAGE
        assert not op.cancel()


async def test_a_time_out_fails_it_but_the_stream_waits(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        witness = Witness(gpu, stream)
        with inject(ns, Fault.hold("read")):
            op = ns.read_on(
                obj(gpu, stream),
                buf.reg,
                offset=0,
                timeout_s=0.05,
                status=witness.cell,
            )
            witness.look()
            with pytest.raises(OperationTimeoutError, match=r"timeout_s=0\.05"):
                await ended(world, op)
            assert op.state == "failed"
            assert not op.event.query()
            assert not witness.passed
            assert witness.cell.state == "waiting"
            assert buf.reg.inflight
        # The device answers: now the stream passes.
        await until(world, lambda: witness.passed)
        assert witness.seen()[:2] == (4, -errno.ETIMEDOUT)
        await until(world, lambda: not buf.reg.inflight)
        assert ns.controller.state == "live"


async def test_the_time_limit_runs_from_go(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream, seconds=0.3)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, timeout_s=0.1)
        assert await ended(world, op) == PAGE


async def test_stalled_and_resumed(world: World, gpu: GPU) -> None:
    data = pattern(PAGE, 1)
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        await ns.write(data, offset=0)
        witness = Witness(gpu, stream)
        with inject(ns, BAD):
            op = ns.read_on(
                obj(gpu, stream),
                buf.reg,
                offset=0,
                on_error="stall",
                status=witness.cell,
            )
            witness.look()
            with pytest.raises(MediaError):
                await ended(world, op)
            assert op.state == "stalled"
            assert op.resume()  # and fails again
            with pytest.raises(MediaError):
                await ended(world, op)
            assert op.state == "stalled"
            assert witness.cell.state == "waiting"
            assert not witness.passed
        assert op.resume()
        assert not op.resume()
        assert await ended(world, op) == PAGE
        assert (op.state, buf.get()) == ("done", data)
        await until(world, lambda: witness.passed)
        assert witness.seen() == (2, 0, PAGE)
        assert not op.fail()


async def test_stalled_and_failed(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        witness = Witness(gpu, stream)
        with inject(ns, BAD):
            op = ns.read_on(
                obj(gpu, stream),
                buf.reg,
                offset=0,
                on_error="stall",
                status=witness.cell,
            )
            witness.look()
            await until(world, lambda: op.state == "stalled")
        assert op.fail()
        with pytest.raises(MediaError):
            await ended(world, op)
        assert op.state == "failed"
        await until(world, lambda: witness.passed)
        assert witness.seen()[0] == 4


async def test_stalled_until_its_memory_is_let_go(world: World, gpu: GPU) -> None:
    """An exception that leaves the registration's block does not wait for itself."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns:
        witness = Witness(gpu, stream)

        async def natural() -> None:
            async with ns.allocate(PAGE) as reg:
                op = ns.read_on(obj(gpu, stream), reg, offset=0, on_error="stall")
                witness.look()
                await ended(world, op)

        with inject(ns, BAD), pytest.raises(MediaError):
            await natural()
        await until(world, lambda: witness.passed)


async def test_stalled_until_close(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    address = world.address(**SMALL)
    async with world.opening(address, "open_controller", mode=world.mode) as ctrl:
        ns = ctrl.namespace()
        reg = bytearray(PAGE)
        with inject(ctrl, BAD):
            op = ns.read_on(obj(gpu, stream), reg, offset=0, on_error="stall")
            await until(world, lambda: op.state == "stalled")
        with pytest.raises(aiougds.ControllerBusyError):
            await ctrl.aclose(timeout_s=0)
        assert op.state == "stalled"
        await ctrl.aclose()
    assert op.state == "failed"
    with pytest.raises(MediaError):
        await ended(world, op)


async def test_a_wedged_controller_lets_the_stream_pass(world: World, gpu: GPU) -> None:
    stream = gpu.stream()
    options = {**SMALL}
    async with (
        world.opening(
            world.address(**options), hang_timeout_s=0.2, mode=world.mode
        ) as ns,
        buffer(ns, gpu, PAGE, "host") as buf,
    ):
        witness = Witness(gpu, stream)
        with inject(ns, Fault.drop("read")):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=0, status=witness.cell)
            witness.look()
            with pytest.raises(ControllerWedgedError):
                await ended(world, op)
        await until(world, lambda: witness.passed)
        assert witness.seen()[0] == 4
        assert ns.controller.state == "wedged"
        assert ns.controller.quarantine
        with pytest.raises(ControllerWedgedError):
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        await ns.controller.reset()
        assert not ns.controller.quarantine
        again = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert await ended(world, again) == PAGE


async def test_cancelling_an_await_withdraws_nothing(world: World, gpu: GPU) -> None:
    if world.loop == "blocking":
        return
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        with anyio.move_on_after(0.05) as scope:
            await op
        assert scope.cancelled_caught
        assert op.state == "waiting"
        gpu.soft.end_kernels()
        assert await op == PAGE


@pytest.mark.software
async def test_a_lost_gpu_ends_it_once(world: World, gpu: GPU) -> None:
    """Its references are given back, and the controller works on for the host."""
    stream = gpu.stream()
    async with world.open(emu=SMALL) as ns, buffer(ns, gpu, PAGE, "host") as buf:
        gpu.soft.kernel(stream)
        op = ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert op.state == "waiting"
        gpu.soft.lose()
        for _ in range(2):
            with pytest.raises(aiougds.GPUContextError) as failure:
                await ended(world, op)
        assert failure.value.name in str(failure.value)
        assert op.state == "failed"
        await until(world, lambda: not buf.reg.inflight)
        with pytest.raises(aiougds.GPUError):
            ns.read_on(obj(gpu, stream), buf.reg, offset=0)
        assert await ns.read(buf.reg, offset=0) == PAGE


async def test_a_failed_read_brings_nothing_of_another(world: World, gpu: GPU) -> None:
    """The first of its commands fails, the others do not: zeros, not the ring's."""
    stream = gpu.stream()
    part, whole = 64 << 10, 256 << 10
    async with (
        world.open(emu={**SMALL, "mdts": 4}) as ns,
        buffer(ns, gpu, whole, "gpu") as buf,
    ):
        await ns.write(b"\xaa" * whole, offset=0)
        await ns.write(b"\xbb" * whole, offset=whole)
        for _ in range(2):  # both slots of the ring
            await ended(world, ns.read_on(obj(gpu, stream), buf.reg, offset=0))
        with inject(ns, BAD.on(slba=whole // 512, nlb=part // 512)):
            op = ns.read_on(obj(gpu, stream), buf.reg, offset=whole)
            with pytest.raises(MediaError):
                await ended(world, op)
        await until(world, op.event.query)
        assert b"\xaa" not in buf.get()
