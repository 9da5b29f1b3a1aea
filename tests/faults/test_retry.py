"""``open(retries=...)``: what failed without "Do Not Retry" is sent again."""

from __future__ import annotations

import time
from functools import partial

import anyio
import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, Opened, World
from life.live import PATIENT_S, Clock, cancelled_when

from aiougds import (
    BatchError,
    CompareError,
    MediaError,
    NVMeError,
    OperationTimeoutError,
    OptionError,
)
from aiougds.testing import Fault, counters, inject

COMMANDS = (
    "read",
    "write",
    "flush",
    "compare",
    "write_zeroes",
    "deallocate",
    "verify",
)


def retries(ns: Opened) -> tuple[int, int]:
    """Return how many commands were sent again, and how many failed for good."""
    seen = ns.controller.statistics()
    return seen.retries, seen.errors


async def test_a_failure_is_survived(world: World) -> None:
    data = pattern(16 * PAGE)
    async with world.open(retries=3) as ns, ns.allocate(16 * PAGE) as reg:
        with inject(ns, Fault.status("write", sc=0x06, count=3)) as fault:
            assert await ns.write(data, offset=0) == len(data)
        assert fault.hits == 3
        with inject(ns, Fault.status("read", sct=2, sc=0x81, count=2)) as fault:
            assert await ns.read(reg, offset=0) == len(data)
        assert fault.hits == 2
        assert reg.view == data
        assert retries(ns) == (5, 0)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.few
async def test_every_command_is_retried(world: World, command: str) -> None:
    async with world.open(retries=2) as ns, ns.allocate(PAGE) as reg:
        calls = {
            "read": partial(ns.read, reg, offset=PAGE),
            "write": partial(ns.write, reg, offset=PAGE),
            "flush": ns.flush,
            "compare": partial(ns.compare, reg, offset=PAGE),
            "write_zeroes": partial(ns.write_zeroes, offset=PAGE, nbytes=PAGE),
            "deallocate": partial(ns.deallocate, offset=PAGE, nbytes=PAGE),
            "verify": partial(ns.verify, offset=PAGE, nbytes=PAGE),
        }
        with inject(ns, Fault.status(command, sc=0x06, count=2)) as fault:
            await calls[command]()
        assert fault.hits == 2
        assert retries(ns) == (2, 0)


@pytest.mark.few
async def test_the_number_of_tries_is_bounded(world: World) -> None:
    async with world.open(retries=4) as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.status("read", sct=2, sc=0x81)) as fault:
            with pytest.raises(MediaError):
                await ns.read(reg, offset=0)
            assert fault.hits == 5
        assert retries(ns) == (4, 1)
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_nothing_is_retried_unless_asked(world: World) -> None:
    async with world.open() as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.status("read", sc=0x06)) as fault:
            with pytest.raises(NVMeError):
                await ns.read(reg, offset=0)
            assert fault.hits == 1
        assert retries(ns) == (0, 1)


@pytest.mark.parametrize(
    ("sct", "sc", "dnr"),
    [(0, 0x06, True), (2, 0x81, True), (0, 0x07, False), (2, 0x85, False)],
    ids=["dnr", "media-dnr", "aborted", "compare"],
)
@pytest.mark.few
async def test_what_is_never_retried(
    world: World, sct: int, sc: int, dnr: bool
) -> None:
    async with world.open(retries=5) as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.status("read", sct=sct, sc=sc, dnr=dnr)) as fault:
            with pytest.raises(NVMeError) as failed:
                await ns.read(reg, offset=0)
            assert fault.hits == 1
        assert failed.value.dnr is dnr
        assert retries(ns) == (0, 1)


@pytest.mark.few
async def test_a_real_difference_is_told_at_once(world: World) -> None:
    async with world.open(retries=5) as ns, ns.register(bytearray(PAGE)) as reg:
        reg.view[7] = 1
        with pytest.raises(CompareError):
            await ns.compare(reg, offset=0)
        assert retries(ns) == (0, 1)


async def test_only_the_command_that_failed_is_sent_again(world: World) -> None:
    """A request of many commands, of which some fail, some of them twice."""
    size = 64 * PAGE
    data = pattern(size)
    emu = {"mdts": 1}  # commands of two pages
    async with world.open(emu=emu, retries=2) as ns, ns.allocate(size) as reg:
        await ns.write(data, offset=0)
        before = ns.controller.statistics().commands
        with (
            inject(ns, Fault.status("read", sc=0x06, count=2).on(slba=6, nlb=2)),
            inject(ns, Fault.status("read", sc=0x06, count=1).on(slba=40, nlb=2)),
            inject(ns, Fault.status("read", sc=0x06, count=2).on(slba=62, nlb=2)),
        ):
            assert await ns.read(reg, offset=0) == size
        assert reg.view == data
        assert ns.controller.statistics().commands - before == 32 + 5
        assert retries(ns) == (5, 0)


@pytest.mark.few
async def test_a_split_request_that_fails_in_the_end(world: World) -> None:
    size = 64 * PAGE
    emu = {"mdts": 1}
    async with world.open(emu=emu, retries=2) as ns, ns.allocate(size) as reg:
        bad = Fault.status("read", sct=2, sc=0x81).on(slba=40, nlb=1)
        with inject(ns, bad) as fault:
            with pytest.raises(MediaError) as failed:
                await ns.read(reg, offset=0)
            assert fault.hits == 3
        assert failed.value.bytes_done <= size - 2 * PAGE
        assert retries(ns) == (2, 1)
        assert await ns.read(reg, offset=0) == size


async def test_items_of_a_batch_are_retried(world: World) -> None:
    data = pattern(64 * PAGE)
    async with world.open(retries=1) as ns, ns.allocate(64 * PAGE) as reg:
        await ns.write(data, offset=0)
        pairs = [(reg[i * PAGE : (i + 1) * PAGE], i * PAGE) for i in range(64)]
        with inject(ns, Fault.status("read", sc=0x21, count=40)) as fault:
            # Each command fails at most once: forty of them do.
            slow = inject(ns, Fault.status("read", sc=0x06).on(slba=50, nlb=1))
            with slow, pytest.raises(BatchError) as failed:
                await ns.read_many(pairs)
        assert fault.hits == 40
        bad = [
            i for i, r in enumerate(failed.value.results) if isinstance(r, Exception)
        ]
        assert 50 in bad
        assert await ns.read_many(pairs) == [PAGE] * 64
        assert reg.view == data


@pytest.mark.parametrize("crd", [1, 2, 3])
@pytest.mark.few
async def test_the_delay_is_the_controllers(world: World, crd: int) -> None:
    emu = {"crdt": "1:3:2"}
    delay = {1: 0.1, 2: 0.3, 3: 0.2}[crd]
    async with world.open(emu=emu, retries=2) as ns, ns.allocate(PAGE) as reg:
        assert ns.controller.info.retry_delays_s == (0.1, 0.3, 0.2)
        with inject(ns, Fault.status("read", sc=0x21, crd=crd, count=1)):
            clock = Clock()
            assert await ns.read(reg, offset=0) == PAGE
            assert clock.within(delay, delay + 0.15)
        with (
            inject(ns, Fault.status("read", sc=0x21, crd=crd, dnr=True)),
            pytest.raises(NVMeError, match="do not retry") as failed,
        ):
            await ns.read(reg, offset=0)
        assert (failed.value.crd, failed.value.retry_after_s) == (crd, delay)


@pytest.mark.few
async def test_a_delay_beyond_the_hang_limit_is_the_callers(world: World) -> None:
    """A controller can name 109 minutes, also by mistake."""
    emu = {"crdt": "1:2048"}
    async with (
        world.open(emu=emu, retries=2, hang_timeout_s=5.0) as ns,
        ns.allocate(2 * PAGE) as reg,
    ):
        with inject(ns, Fault.status("read", sc=0x21, crd=1, count=1)):
            assert await ns.read(reg[:PAGE], offset=0) == PAGE
        clock = Clock()
        with (
            inject(ns, Fault.status("read", sc=0x21, crd=2, count=1)),
            pytest.raises(NVMeError, match=r"retry after 204\.8 s") as failed,
        ):
            await ns.read(reg[:PAGE], offset=0)
        assert failed.value.retry_after_s == 204.8
        pairs = [(reg[:PAGE], 0), (reg[PAGE:], PAGE)]
        fault = Fault.status("read", sc=0x21, crd=2, count=1).on(slba=0, nlb=1)
        with inject(ns, fault), pytest.raises(BatchError) as several:
            await ns.read_many(pairs)
        assert several.value.results[1] == PAGE
        assert clock.within(0, 4)
        assert retries(ns) == (1, 2)


@pytest.mark.few
async def test_delays_are_not_told_to_who_did_not_ask(world: World) -> None:
    async with world.open(emu={"crdt": "1:3:2"}) as ns, ns.allocate(PAGE) as reg:
        assert ns.controller.info.retry_delays_s == (0, 0, 0)
        with (
            inject(ns, Fault.status("read", sc=0x21, crd=2)),
            pytest.raises(NVMeError) as failed,
        ):
            await ns.read(reg, offset=0)
        assert (failed.value.crd, failed.value.retry_after_s) == (0, 0)


@pytest.mark.few
async def test_delays_are_asked_for_again_after_a_reset(world: World) -> None:
    emu = {"crdt": "1"}
    async with world.open(emu=emu, retries=1) as ns, ns.allocate(PAGE) as reg:
        await ns.controller.reset()
        with inject(ns, Fault.status("read", sc=0x21, crd=1, count=1)):
            start = time.monotonic()
            assert await ns.read(reg, offset=0) == PAGE
        assert time.monotonic() - start >= 0.1


@pytest.mark.few
async def test_others_go_on_while_one_waits(world: World) -> None:
    emu = {"crdt": "5"}
    if world.loop == "blocking":
        return
    async with world.open(emu=emu, retries=1) as ns, ns.allocate(2 * PAGE) as reg:
        ended: list[str] = []

        async def slow() -> None:
            await ns.read(reg[:PAGE], offset=0)
            ended.append("slow")

        fault = Fault.status("read", sc=0x21, crd=1, count=1).on(slba=0, nlb=1)
        with inject(ns, fault) as waiting:
            async with anyio.create_task_group() as group:
                group.start_soon(slow)
                while not waiting.hits:
                    await anyio.sleep(0)
                for i in range(100):
                    await ns.read(reg[PAGE:], offset=(1 + i) * PAGE)
                assert not ended
        assert ended == ["slow"]


async def test_a_time_limit_ends_the_retries(world: World) -> None:
    """And nothing of it is at the device: the memory is free at once."""
    emu = {"crdt": "100"}
    async with world.open(emu=emu, retries=9) as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.status("read", sc=0x21, crd=1)) as fault:
            clock = Clock()
            with pytest.raises(OperationTimeoutError):
                await ns.read(reg, offset=0, timeout_s=0.5)
            assert clock.within(0.5, 2)
            assert fault.hits == 1
        assert ns.controller.quarantine == ()
        assert await ns.read(reg, offset=0) == PAGE
        pairs = [(reg, i * PAGE) for i in range(8)]
        with inject(ns, Fault.status("read", sc=0x21, crd=1)):
            for timeout_s in (0.05, *PATIENT_S):
                with pytest.raises(BatchError):
                    await ns.read_many(pairs, timeout_s=timeout_s)
                if not ns.controller.quarantine:  # all of them were back by then
                    break
                await ns.controller.settled(timeout_s=30)
            else:
                raise AssertionError("what waits for its retry was kept")
        assert await ns.read_many(pairs) == [PAGE] * 8


@pytest.mark.few
async def test_a_cancel_ends_the_retries(world: World) -> None:
    emu = {"crdt": "100"}
    if world.loop == "blocking":
        return
    async with world.open(emu=emu, retries=9) as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.status("read", sc=0x21, crd=1)) as fault:
            clock = Clock()
            assert await cancelled_when(
                lambda: fault.hits == 1, lambda: ns.read(reg, offset=0)
            )
            assert clock.within(0, 1)
            assert fault.hits == 1
        assert ns.controller.quarantine == ()
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_a_reset_ends_the_retries(world: World) -> None:
    emu = {"crdt": "100"}
    if world.loop == "blocking":
        return
    async with world.open(emu=emu, retries=9) as ns, ns.allocate(PAGE) as reg:
        failures: list[BaseException] = []

        async def read() -> None:
            try:
                await ns.read(reg, offset=0)
            except OSError as error:
                failures.append(error)

        with inject(ns, Fault.status("read", sc=0x21, crd=1)) as fault:
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                while not fault.hits:
                    await anyio.sleep(0)
                await ns.controller.reset()
        assert len(failures) == 1
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_a_wedge_ends_the_retries(world: World) -> None:
    emu = {"crdt": "100"}
    if world.loop == "blocking":
        return
    async with world.open(emu=emu, retries=9) as ns, ns.allocate(PAGE) as reg:
        failures: list[BaseException] = []

        async def read() -> None:
            try:
                await ns.read(reg, offset=0)
            except OSError as error:
                failures.append(error)

        with inject(ns, Fault.status("read", sc=0x21, crd=1)) as fault:
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                while not fault.hits:
                    await anyio.sleep(0)
                with inject(ns, Fault.cfs("flush")), pytest.raises(OSError):
                    await ns.flush()
        assert len(failures) == 1
        await ns.controller.reset()
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_delays_of_our_own_grow(world: World) -> None:
    """At once, then after 1, 2, 4 ... ms: nine retries take half a second."""
    async with world.open(retries=9) as ns, ns.allocate(PAGE) as reg:
        for tries in (2, 6, 9):
            start = time.monotonic()
            with inject(ns, Fault.status("read", sc=0x06, count=tries)):
                assert await ns.read(reg, offset=0) == PAGE
            assert time.monotonic() - start >= (2 ** (tries - 1) - 1) / 1000


@pytest.mark.few
async def test_many_failures_at_once(world: World) -> None:
    """More commands than a lane has records for: each ends, with or without."""
    count = 600
    async with world.open(emu={"size": 4 * MIB, "lba": 512}, retries=3) as ns:
        async with ns.allocate(count * 512) as reg:
            pairs = [(reg[i * 512 : (i + 1) * 512], i * 512) for i in range(count)]
            with inject(ns, Fault.status("read", sc=0x06, count=count)) as fault:
                try:
                    results = await ns.read_many(pairs)
                except BatchError as error:
                    results = list(error.results)
            assert len(results) == count
            failed = [r for r in results if not isinstance(r, int)]
            assert all(isinstance(r, NVMeError) for r in failed)
            assert fault.hits == count
            assert await ns.read_many(pairs) == [512] * count
        assert counters(ns).iommu_faults == 0


@pytest.mark.parametrize("bad", [-1, 101, 1.5, True, "3"])
@pytest.mark.few
async def test_the_option_is_checked(world: World, bad: object) -> None:
    with pytest.raises(OptionError, match="retries"):
        async with world.open(retries=bad):
            pass
