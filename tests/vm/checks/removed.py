"""A drive that goes while it is in use, and one that comes from another driver."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

import aiougds
import aiougds.blocking
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import node

PAGE = 4096
MAPPINGS = Path("/sys/module/ugds_drv/parameters/mappings")


async def until_gone(ns: aiougds.Namespace) -> list[aiougds.UGDSError]:
    """Read in every manner until each of them has failed; return how."""
    failed: list[aiougds.UGDSError] = []

    async def load(i: int, reg: aiougds.Registration, many: bool) -> None:
        part = reg[i * PAGE : (i + 1) * PAGE]
        try:
            while True:
                if many:
                    await ns.read_many([(part, n * PAGE) for n in range(8)])
                else:
                    await ns.read(part, offset=i * PAGE)
        except aiougds.BatchError as errors:
            failed.append(next(e for e in errors.results if not isinstance(e, int)))
        except aiougds.UGDSError as error:
            failed.append(error)

    reg = await ns.allocate(12 * PAGE)
    async with asyncio.TaskGroup() as group:
        for i in range(12):
            group.create_task(load(i, reg, i >= 8))
    assert reg.inflight == 0
    await reg.aclose(timeout_s=5)
    return failed


async def taken_away(ground: Ground, name: str, unbind: bool) -> None:
    path = node(ground, name)
    ns = await aiougds.open(path)
    load = asyncio.create_task(until_gone(ns))
    while ns.controller.statistics().reads < 100:
        await asyncio.sleep(0.01)
    if unbind:
        ground.release(name)
    else:
        ground.qmp.device_del(name)
    failed = await asyncio.wait_for(load, 20)
    assert len(failed) == 12
    for error in failed:
        assert isinstance(error, aiougds.DeviceRemovedError), repr(error)
    assert ns.controller.state == "removed"
    # Its DMA was cut, so nothing is held back on its account.
    for _ in range(200):
        if not ns.controller.quarantine:
            break
        await asyncio.sleep(0.01)
    assert ns.controller.quarantine == ()
    for work in (ns.flush(), ns.controller.reset(), ns.controller.identify()):
        try:
            await work
        except aiougds.DeviceRemovedError:
            continue
        raise AssertionError("a removed controller did something")
    await ns.aclose(timeout_s=5)
    assert int(MAPPINGS.read_text()) == 0


@check(limit_s=40)
async def a_drive_is_unbound_under_load(ground: Ground) -> None:
    await taken_away(ground, "nv0", unbind=True)
    ns = await aiougds.open(node(ground, "nv0"))
    assert await ns.read(bytearray(PAGE), offset=0) == PAGE
    await ns.aclose()


@check(limit_s=60)
async def a_drive_is_unplugged_under_load(ground: Ground) -> None:
    for _ in range(2):
        await taken_away(ground, "hot", unbind=False)
        deadline = time.monotonic() + 10
        while ground.is_present("hot"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        ground.qmp.device_add(ground.device("hot"))
        while not ground.is_present("hot"):
            assert time.monotonic() < deadline + 10
            await asyncio.sleep(0.05)
    ns = await aiougds.open(node(ground, "hot"))
    assert await ns.read(bytearray(PAGE), offset=0) == PAGE
    await ns.aclose()


@check(limit_s=40)
def a_drive_goes_to_the_kernel_and_back(ground: Ground) -> None:
    """It is brought up from whatever state the driver before left it in."""
    ground.run("modprobe", "nvme")
    for turn in range(2):
        with aiougds.blocking.open(node(ground, "nv0")) as ns:
            data = os.urandom(PAGE)
            ns.write(data, offset=turn * PAGE, fua=True)
        ground.bind("nv0", "nvme")
        disk = ground.kernel_disk("nv0")
        with disk.open("rb") as file:
            file.seek(turn * PAGE)
            assert file.read(PAGE) == data
        ground.bind("nv0", "ugds_drv")
        with aiougds.blocking.open(node(ground, "nv0")) as ns:
            back = bytearray(PAGE)
            assert ns.read(back, offset=turn * PAGE) == PAGE
            assert back == data


@check()
def a_second_opener_is_told_who_has_it(ground: Ground) -> None:
    path = node(ground, "nv0")
    said = ""
    with aiougds.blocking.open(path):
        try:
            aiougds.blocking.open(path)
        except aiougds.AddressInUseError as error:
            said = str(error)
    assert f"in use by this process ({os.getpid()})" in said, said
    aiougds.blocking.open(path).close()


@check()
def hugepages_are_used_where_there_are_some(ground: Ground) -> None:
    pages = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    path = node(ground, "nv0")
    for count, memory in ((8, "hugepage"), (0, "coherent")):
        pages.write_text(str(count))
        with aiougds.blocking.open(path) as ns:
            found = ns.controller.capabilities
            assert found.queue_memory == memory, found
            assert found.hugepages is (memory == "hugepage")
            assert found.batch_depth == 512
            with ns.allocate(1 << 20) as reg:
                items = [(reg[i * PAGE :][:PAGE], i * PAGE) for i in range(256)]
                assert ns.read_many(items) == [PAGE] * 256
                assert ns.read(reg, offset=0) == 1 << 20
    assert int(MAPPINGS.read_text()) == 0


@check()
def strict_options_are_kept(ground: Ground) -> None:
    path = node(ground, "nv0")
    with aiougds.blocking.open(
        path, require_direct=True, completion="interrupt", shadow_doorbells=False
    ) as ns:
        found = ns.controller.capabilities
        assert found.direct
        assert not found.stepping
        assert not found.shadow_doorbells
        assert found.completion == "interrupt"
        assert found.iommu == ("translated" if ground.iommu else "none"), found.iommu
        assert ns.controller.info.pci_address == ground.address("nv0")
        assert ns.read(bytearray(PAGE), offset=0) == PAGE


@check()
def a_limit_of_locked_memory_is_named(ground: Ground) -> None:
    """It counts for whoever may not exceed it: not for root."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    said = ""
    with aiougds.blocking.open(node(ground, "nv0")) as ns:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, before[1]))
        os.seteuid(65534)
        try:
            with ns.allocate(4 << 20) as reg:
                assert ns.read(reg, offset=0) == 4 << 20
            ns.allocate(16 << 20).__enter__()
        except aiougds.MemoryLimitError as error:
            said = str(error)
        finally:
            os.seteuid(0)
            resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
        assert "16777216 bytes at" in said, said
        assert "(RLIMIT_MEMLOCK) is 8388608 bytes; raise it" in said, said
        assert ns.read(bytearray(PAGE), offset=0) == PAGE
    assert int(MAPPINGS.read_text()) == 0
