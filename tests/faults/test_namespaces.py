"""Namespaces that grow, shrink, go, come back and come new, under open objects."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, Opened, World

from aiougds import (
    BatchError,
    NamespaceGoneError,
    NVMeError,
    OptionError,
    RangeError,
    UGDSError,
    testing,
)


def wait_for_size(ns: Opened, nbytes: int) -> None:
    """Wait until the event was handled; nothing is told, and no loop has to turn."""
    deadline = time.monotonic() + 5
    while ns.size != nbytes:
        assert time.monotonic() < deadline, f"still {ns.size} bytes, not {nbytes}"
        time.sleep(0.0005)


def wait_for_ids(ns: Opened, ids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while ns.controller.namespaces() != ids:
        assert time.monotonic() < deadline, f"still {ns.controller.namespaces()}"
        time.sleep(0.0005)


async def test_a_namespace_grows(world: World) -> None:
    data = pattern(4 * PAGE)
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(4 * PAGE) as reg:
        assert ns.size == MIB
        with pytest.raises(RangeError, match=str(MIB)):
            await ns.write(data, offset=MIB)
        testing.resize(ns, 3 * MIB)
        wait_for_size(ns, 3 * MIB)
        await ns.write(data, offset=3 * MIB - len(data))
        assert await ns.read(reg, offset=3 * MIB - len(data)) == len(data)
        assert reg.view == data
        assert await ns.read(reg, offset=MIB) == len(data)
        assert reg.view == bytes(len(data))
        assert "3145728 bytes" in repr(ns)
        with pytest.raises(RangeError, match=str(3 * MIB)):
            await ns.read(reg, offset=3 * MIB - PAGE)


async def test_a_namespace_shrinks(world: World) -> None:
    async with world.open(emu={"size": 2 * MIB}) as ns, ns.allocate(2 * PAGE) as reg:
        await ns.write(pattern(PAGE), offset=2 * MIB - PAGE)
        testing.resize(ns, MIB)
        wait_for_size(ns, MIB)
        one = reg[:PAGE]
        calls = (
            partial(ns.read, one, offset=MIB),
            partial(ns.read, reg, offset=MIB - PAGE),
            partial(ns.write, one, offset=2 * MIB - PAGE),
            partial(ns.read_many, [(one, 0), (one, MIB)]),
            partial(ns.write_zeroes, offset=MIB, nbytes=PAGE),
            partial(ns.read, bytearray(PAGE), offset=MIB),
        )
        sent = ns.controller.statistics().commands
        for call in calls:
            with pytest.raises(RangeError, match=str(MIB)):
                await call()
        assert ns.controller.statistics().commands == sent
        assert await ns.read(one, offset=MIB - PAGE) == PAGE
        # What was cut off is not seen again.
        testing.resize(ns, 2 * MIB)
        wait_for_size(ns, 2 * MIB)
        assert await ns.read(one, offset=2 * MIB - PAGE) == PAGE
        assert one.view == bytes(PAGE)


@pytest.mark.few
async def test_the_device_has_the_last_word(world: World) -> None:
    """A command that was sent before the event was handled is answered by it."""
    async with world.open(emu={"size": 2 * MIB}) as ns, ns.allocate(PAGE) as reg:
        # The notice is told once, until its log page is read: hold that back.
        with testing.inject(ns, testing.Fault.hold(0x02).on(queue=0)):
            testing.resize(ns, MIB)
            wait_for_size(ns, MIB)
            testing.resize(ns, PAGE)
            assert ns.size == MIB
            with pytest.raises(NVMeError, match="LBA Out of Range"):
                await ns.read(reg, offset=PAGE)
        wait_for_size(ns, PAGE)
        with pytest.raises(RangeError):
            await ns.read(reg, offset=PAGE)


async def test_regions_are_cut_and_come_back(world: World) -> None:
    async with world.open(emu={"size": 4 * MIB}) as ns, ns.allocate(PAGE) as reg:
        low, high = ns.region(MIB, MIB), ns.region(3 * MIB, MIB)
        testing.resize(ns, MIB + MIB // 2)
        wait_for_size(ns, MIB + MIB // 2)
        assert (low.size, high.size) == (MIB // 2, 0)
        assert await low.read(reg, offset=MIB // 2 - PAGE) == PAGE
        for region, offset in ((low, MIB // 2), (high, 0)):
            with pytest.raises(RangeError):
                await region.read(reg, offset=offset)
        testing.resize(ns, 16 * MIB)
        wait_for_size(ns, 16 * MIB)
        assert (low.size, high.size) == (MIB, MIB)
        assert await high.read(reg, offset=MIB - PAGE) == PAGE
        await low.aclose()
        await high.aclose()
        assert high.size == MIB


async def test_a_namespace_goes_and_comes_back(world: World) -> None:
    data = pattern(PAGE)
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        await ns.write(data, offset=0)
        testing.detach(ns)
        wait_for_size(ns, 0)
        assert ns.controller.namespaces() == []
        sent = ns.controller.statistics().commands
        calls = (
            partial(ns.read, reg, offset=0),
            partial(ns.write, reg, offset=0),
            partial(ns.compare, reg, offset=0),
            ns.flush,
            partial(ns.deallocate, offset=0, nbytes=PAGE),
            partial(ns.read_many, [(reg, 0)]),
            partial(ns.read, bytearray(PAGE), offset=0),
        )
        for call in calls:
            with pytest.raises(NamespaceGoneError, match="detached"):
                await call()
        assert ns.controller.statistics().commands == sent
        assert ns.controller.state == "live"
        with pytest.raises(RangeError, match="no namespace 1"):
            ns.controller.namespace(1)
        testing.attach(ns)
        wait_for_size(ns, MIB)
        assert ns.controller.namespaces() == [1]
        assert await ns.read(reg, offset=0) == PAGE
        assert reg.view == data


async def test_a_new_namespace_is_found(world: World) -> None:
    data = pattern(PAGE)
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        testing.attach(ns, 2 * MIB, nsid=9)
        testing.attach(ns, 3 * MIB, nsid=4)
        wait_for_ids(ns, [1, 4, 9])
        second = ns.controller.namespace(9)
        assert second.size == 2 * MIB
        await second.write(data, offset=2 * MIB - PAGE)
        assert await second.read(reg, offset=2 * MIB - PAGE) == PAGE
        assert reg.view == data
        await ns.controller.reset()
        assert await second.read(reg, offset=0) == PAGE
        testing.detach(second)
        wait_for_ids(ns, [1, 4])
        with pytest.raises(NamespaceGoneError):
            await second.read(reg, offset=0)
        await second.aclose()
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_a_change_while_it_is_reset_is_seen(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        for size in (2 * MIB, MIB, 5 * MIB):
            testing.resize(ns, size)
            await ns.controller.reset()
            wait_for_size(ns, size)


@pytest.mark.few
async def test_files_grow_and_never_shrink(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    data = pattern(PAGE)
    async with world.open(path, emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        testing.resize(ns, 2 * MIB)
        wait_for_size(ns, 2 * MIB)
        await ns.write(data, offset=2 * MIB - PAGE)
        assert path.stat().st_size == 2 * MIB
        testing.resize(ns, MIB)
        wait_for_size(ns, MIB)
        assert path.stat().st_size == 2 * MIB
        with pytest.raises(RangeError):
            await ns.read(reg, offset=2 * MIB - PAGE)
    assert path.read_bytes()[-PAGE:] == data


@pytest.mark.few
async def test_reads_in_flight_while_it_changes(world: World) -> None:
    """Each ends once: with its bytes, or with why not."""
    if world.loop == "blocking":
        return
    data = pattern(16 * PAGE)
    async with world.open(emu={"size": 2 * MIB}) as ns, ns.allocate(16 * PAGE) as reg:
        await ns.write(data, offset=0)
        ends = {"ok": 0, "refused": 0}
        stop = False

        async def load(i: int) -> None:
            part = reg[i * PAGE : (i + 1) * PAGE]
            offset = i * PAGE if i % 2 else 2 * MIB - (i + 1) * PAGE
            while not stop:
                try:
                    assert await ns.read(part, offset=offset) == PAGE
                    if i % 2:
                        assert part.view == data[offset : offset + PAGE]
                    ends["ok"] += 1
                except (RangeError, NamespaceGoneError, NVMeError, BatchError):
                    ends["refused"] += 1
                await anyio.lowlevel.checkpoint()

        async def until(true: Callable[[], bool]) -> None:
            with anyio.fail_after(20):
                while not true():
                    await anyio.sleep(0.001)

        async with anyio.create_task_group() as group:
            for i in range(16):
                group.start_soon(load, i)
            for _ in range(5):
                for change, size, told in (
                    (partial(testing.resize, ns, MIB), MIB, "refused"),
                    (partial(testing.detach, ns), 0, "refused"),
                    (partial(testing.attach, ns), MIB, "ok"),
                    (partial(testing.resize, ns, 2 * MIB), 2 * MIB, "ok"),
                ):
                    change()
                    await until(lambda size=size: ns.size == size)
                    # Reads meet each state, however long they take to come round.
                    before = ends[told]
                    await until(lambda told=told, n=before: ends[told] > n + 16)
            stop = True
        assert testing.counters(ns).iommu_faults == 0


@pytest.mark.few
async def test_what_cannot_be_is_refused(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        for call, kind in (
            (partial(testing.resize, ns, PAGE + 1), UGDSError),
            (partial(testing.resize, ns, 0), UGDSError),
            (partial(testing.resize, ns, 1 << 50), UGDSError),
            (partial(testing.resize, ns, -1), OptionError),
            (partial(testing.resize, ns.controller, MIB), OptionError),
            (partial(testing.resize, ns, MIB, nsid=7), UGDSError),
            (partial(testing.detach, ns, nsid=7), UGDSError),
            (partial(testing.attach, ns, MIB), UGDSError),
            (partial(testing.attach, ns, 0, nsid=5), UGDSError),
        ):
            with pytest.raises(kind):
                call()
        assert ns.size == MIB
        assert ns.controller.namespaces() == [1]
