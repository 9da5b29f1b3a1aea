"""Drives that fail, stall or vanish under a program, through the whole stack."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import aiougds
import aiougds.blocking
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.leaks import nothing_left
from vm.guest.peer_ground import node
from vm.guest.transfers import error_in

PAGE, SECTOR, MIB = 4096, 512, 1 << 20
# As the machine has it: reads of one sector fail, and writes of another.
BAD_READ, BAD_WRITE = 400 * SECTOR, 1200 * SECTOR
UNRECOVERED_READ, WRITE_FAULT = 0x281, 0x280


def state(ns: aiougds.Namespace) -> str:
    return ns.controller.state


async def until(true: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)  # the device's own time


# ---- media errors ----


def is_media(error: object, status: int) -> aiougds.MediaError:
    assert isinstance(error, aiougds.MediaError), repr(error)
    assert error.status & 0x7FF == status, hex(error.status)
    assert error.sct == 2
    assert error.errno in (5, 61, 121), error.errno
    return error


@check(limit_s=40)
async def media_errors_have_their_type_and_place(ground: Ground) -> None:
    async with aiougds.open(node(ground, "bad")) as ns, ns.allocate(MIB) as reg:
        is_media(await error_in(ns.read(reg[:PAGE], offset=BAD_READ)), UNRECOVERED_READ)
        is_media(await error_in(ns.write(reg[:PAGE], offset=BAD_WRITE)), WRITE_FAULT)
        is_media(await error_in(ns.read(bytearray(PAGE), offset=BAD_READ)), 0x281)
        # The sectors beside it are sound, and so is a write to what cannot be read.
        for at in (BAD_READ - PAGE, BAD_READ + SECTOR, BAD_WRITE):
            assert await ns.read(reg[:PAGE], offset=at) == PAGE
            assert reg.view[:PAGE] == ground.original("bad-1", at, PAGE)
        assert ns.controller.state == "live"
        assert ns.controller.statistics().errors == 3


@check(limit_s=40)
async def one_bad_sector_fails_one_item(ground: Ground) -> None:
    path = node(ground, "bad")
    async with (
        aiougds.open(path, max_transfer=128 << 10) as ns,
        ns.allocate(MIB) as reg,
    ):
        first = BAD_READ // PAGE * PAGE - 8 * PAGE
        items = [(reg[i * PAGE :][:PAGE], first + i * PAGE) for i in range(64)]
        error = None
        try:
            await ns.read_many(items)
        except aiougds.BatchError as group:
            error = group
        assert error is not None
        for i, result in enumerate(error.results):
            if i == 8:
                is_media(result, UNRECOVERED_READ)
                continue
            assert result == PAGE, (i, result)
            wanted = ground.original("bad-1", first + i * PAGE, PAGE)
            assert reg.view[i * PAGE :][:PAGE] == wanted
        async with ns.batch(64) as batch:
            for own, at in items:
                batch.read(own, offset=at)
            batch.submit()
            done = await batch.harvest(64)
            failed = [item.error for item in done if item.error is not None]
            assert len(failed) == 1
            is_media(failed[0], UNRECOVERED_READ)
        # Of one that is several commands, one fails, and the others are done.
        command = ns.controller.capabilities.max_transfer_bytes
        large = is_media(await error_in(ns.read(reg, offset=0)), UNRECOVERED_READ)
        assert large.bytes_done == MIB - command, large


# ---- a drive that stalls ----


@contextmanager
def stalled(ground: Ground, name: str, limits: dict[str, int]) -> Generator[None]:
    """QEMU keeps to the limits also in a reset, which waits for what is in flight."""
    path = f"/objects/tg-{name}-1"
    ground.qmp.qom_set(path, "limits", limits)
    try:
        yield
    finally:
        ground.qmp.qom_set(path, "limits", {"iops-total": 0, "iops-size": 0})


@check(limit_s=60)
async def a_stalled_drive_is_given_up_and_reset(ground: Ground) -> None:
    """Beyond the hang time-out, and QEMU aborts nothing: only a reset helps."""
    path = node(ground, "slow")
    async with (
        aiougds.open(path, hang_timeout_s=0.6, cancel_grace_s=0.1) as ns,
        ns.allocate(64 * PAGE) as reg,
    ):
        controller = ns.controller
        with stalled(ground, "slow", {"iops-total": 1, "iops-size": PAGE // 2}):
            await ns.read(reg[:PAGE], offset=0)  # the next one takes two seconds
            began = time.monotonic()
            reads = (ns.read(reg[i * PAGE :][:PAGE], offset=0) for i in range(3))
            lost = await asyncio.gather(*map(error_in, reads))
            assert 1 < time.monotonic() - began < 15
            for error in lost[1:]:
                assert isinstance(error, aiougds.ControllerWedgedError), repr(error)
                assert not isinstance(error, aiougds.MemoryRevokedError)
            assert state(ns) == "wedged"
            assert "nor after an Abort" in controller.state_reason
            assert controller.statistics().aborts >= 1
            assert controller.quarantine
            refused = await error_in(ns.read(reg[:PAGE], offset=0))
            assert isinstance(refused, aiougds.ControllerWedgedError)
            assert "reset()" in str(refused)
            await controller.reset()  # QEMU ends what it had, for nobody
            assert state(ns) == "live"
            assert controller.quarantine == ()
            assert reg.inflight == 0
        await each_has_its_own(ground, ns, reg)
        stats = controller.statistics()
        assert (stats.unknown_cids, stats.resets, stats.quarantined) == (0, 1, 0)


async def each_has_its_own(
    ground: Ground,
    ns: aiougds.Namespace,
    reg: aiougds.Registration | aiougds.RegistrationSlice,
) -> None:
    """Read elsewhere, into all of a memory: no late data and no late completion."""
    pages = reg.nbytes // PAGE
    disk = f"{ns.controller.info.serial}-{ns.nsid}"
    reg.view[:] = bytes(reg.nbytes)
    for turn in range(3):
        base = (turn + 1) * MIB
        reads = (
            ns.read(reg[i * PAGE :][:PAGE], offset=base + i * PAGE)
            for i in range(pages)
        )
        assert await asyncio.gather(*reads) == [PAGE] * pages
        assert reg.view == ground.original(disk, base, reg.nbytes), turn


async def until_it_fails(
    ns: aiougds.Namespace, part: aiougds.RegistrationSlice
) -> aiougds.UGDSError:
    while True:
        error = await error_in(ns.read(part, offset=0))
        if error is not None:
            return error


async def reads(ns: aiougds.Namespace, count: int) -> None:
    """Wait until so many more have ended."""
    target = ns.controller.statistics().reads + count
    await until(lambda: ns.controller.statistics().reads >= target)


@check(limit_s=60)
async def resets_under_load_mix_nothing_up(ground: Ground) -> None:
    """What the old queues had in flight reaches nothing that is read after.

    Reads that are not looked for: else a loop with a slow wake-up would have one of
    them in flight at a time, and none while it asks for the reset.
    """
    async with (
        aiougds.open(node(ground, "nv0"), completion="interrupt") as ns,
        ns.allocate(128 * PAGE) as reg,
    ):
        other = reg[64 * PAGE :]
        stop, resets = asyncio.Event(), 0
        failed: list[aiougds.UGDSError] = []
        kinds = (aiougds.OperationAbortedError, aiougds.ControllerWedgedError)

        async def load(part: aiougds.RegistrationSlice) -> None:
            while not stop.is_set():
                error = await error_in(ns.read(part, offset=0))
                if error is not None:
                    failed.append(error)
                    await asyncio.sleep(0)  # refusals come at once

        def caught() -> bool:
            """Whether a reset met reads in flight: as a rule each does."""
            return any(isinstance(error, kinds[0]) for error in failed)

        async with asyncio.TaskGroup() as group:
            for i in range(64):
                group.create_task(load(reg[i * PAGE :][:PAGE]))
            while resets < 10 or not caught():
                await reads(ns, 200)
                await ns.controller.reset()
                resets += 1
                await each_has_its_own(ground, ns, other)
            stop.set()
        strange = [error for error in failed if not isinstance(error, kinds)]
        assert not strange, strange
        stats = ns.controller.statistics()
        assert (stats.unknown_cids, stats.resets, stats.quarantined) == (0, resets, 0)


@check(limit_s=60)
async def a_late_completion_reaches_nobody_else(ground: Ground) -> None:
    """After the Abort its identifier stays taken until the device has answered."""
    path = node(ground, "held")
    async with aiougds.open(path, cancel_grace_s=0.05) as ns:
        async with ns.allocate(64 * PAGE) as reg:
            ground.qmp.hold_next("held-1")
            waiting = asyncio.create_task(ns.read(reg[:PAGE], offset=0))
            await until(lambda: ns.controller.statistics().inflight == 1)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            await until(lambda: ns.controller.statistics().aborts == 1)
            (stuck,) = ns.controller.quarantine
            # Every other identifier of the queue is used, several times.
            for turn in range(4):
                base = (turn + 1) * MIB
                await asyncio.gather(
                    *(
                        ns.read(reg[i * PAGE :][:PAGE], offset=base + i * PAGE)
                        for i in range(1, 64)
                    )
                )
                wanted = ground.original("held-1", base + PAGE, 63 * PAGE)
                assert reg.view[PAGE:] == wanted
            assert [q.command_id for q in ns.controller.quarantine] == [
                stuck.command_id
            ]
            busy = [
                asyncio.create_task(
                    ns.read(reg[i * PAGE :][:PAGE], offset=8 * MIB + i * PAGE)
                )
                for i in range(1, 64)
            ]
            ground.qmp.let_go("held-1")  # it comes between the others
            assert await asyncio.gather(*busy) == [PAGE] * 63
            await until(lambda: not ns.controller.quarantine)
            wanted = ground.original("held-1", 8 * MIB + PAGE, 63 * PAGE)
            assert reg.view[PAGE:] == wanted
            assert reg.view[:PAGE] == ground.original("held-1", 0, PAGE)
        stats = ns.controller.statistics()
        assert (stats.unknown_cids, stats.errors, stats.cancels) == (0, 0, 1), stats


# ---- a drive that goes ----


@check(limit_s=60)
async def unplugged_while_it_holds_commands(ground: Ground) -> None:
    """Tasks, threads and a batch that wait end, though the drive is slow to answer."""
    with nothing_left(), stalled(ground, "hot", {"iops-total": 16}):
        ns = await aiougds.open(node(ground, "hot"))
        reg = await ns.allocate(32 * PAGE)
        here = aiougds.blocking.Namespace(ns)
        failed: list[aiougds.UGDSError] = []

        def part(i: int) -> aiougds.RegistrationSlice:
            return reg[i * PAGE : (i + 1) * PAGE]

        def in_thread(i: int) -> None:
            try:
                while True:
                    here.read(part(i), offset=0)
            except aiougds.UGDSError as error:
                failed.append(error)

        threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        tasks = [asyncio.create_task(until_it_fails(ns, part(i))) for i in range(4, 24)]
        batch = ns.batch(8)
        for i in range(24, 32):
            batch.read(part(i), offset=0)
        batch.submit()
        await until(lambda: ns.controller.statistics().inflight >= 24)
        began = time.monotonic()
        ground.qmp.device_del("hot")
        failed += await asyncio.gather(*tasks)
        items = await batch.harvest(8)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert time.monotonic() - began < 20
        assert len(failed) == 24
        failed += [item.error for item in items if item.error is not None]
        for error in failed:
            assert isinstance(error, aiougds.DeviceRemovedError), repr(error)
        assert len(items) == 8
        await batch.aclose()
        await reg.aclose(timeout_s=5)
        await ns.aclose(timeout_s=5)
    await until(lambda: not ground.is_present("hot"))


# ---- the helper's own limits ----


@check()
def an_open_drive_holds_the_module(ground: Ground) -> None:
    with aiougds.blocking.open(node(ground, "slow")) as ns:
        done = subprocess.run(["rmmod", "ugds_drv"], capture_output=True, text=True)
        assert done.returncode != 0
        assert "in use" in done.stderr
        assert ns.read(bytearray(PAGE), offset=0) == PAGE


@check(limit_s=60)
async def more_owners_than_a_vector_takes(ground: Ground) -> None:
    """All queues share one vector: who finds it full shares a queue, and is served."""
    path = node(ground, "crowd")
    async with aiougds.open_controller(
        path, queues=80, batch_queues=0, mode="interrupt", spin_us=0
    ) as controller:
        found = controller.capabilities
        assert (found.queue_pairs, found.vectors) == (80, 2), found
        ns = aiougds.blocking.Namespace(controller.namespace())
        queues: list[str] = []
        failed: list[Exception] = []
        leave, started = threading.Event(), threading.Semaphore(0)

        def work() -> None:
            try:
                with ns.allocate(PAGE) as reg:
                    for turn in range(4):
                        assert ns.read(reg, offset=turn * PAGE) == PAGE
                    queues.append(ns.controller.capabilities.queue)
                    started.release()
                    leave.wait()
            except (aiougds.UGDSError, AssertionError) as error:
                failed.append(error)
                started.release()

        threads = [threading.Thread(target=work) for _ in range(72)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert await asyncio.to_thread(started.acquire, timeout=30), queues
        leave.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert not failed, failed
        assert len(queues) == 72
        assert queues.count("own") in range(60, 65), queues.count("own")
        assert controller.statistics().stragglers <= len(queues) // 8
