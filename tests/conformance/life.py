"""Behaviours: time, cancelling, loops, threads, processes, resets, the end."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from functools import partial

import anyio

import aiougds
import aiougds.blocking
from conformance.tools import Tools, idle, noise, refused

BLOCK = 4096
MIB = 1 << 20


async def a_late_read_times_out(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(2 * BLOCK) as reg:
        with tools.device.hold_next_read(ns):
            work = ns.read(reg[:BLOCK], offset=0, timeout_s=0.05)
            error = await refused(aiougds.OperationTimeoutError, work)
            assert isinstance(error, TimeoutError)
            assert ns.controller.state == "live"
            assert len(ns.controller.quarantine) == 1
            await refused(aiougds.RangeBusyError, ns.read(reg[:BLOCK], offset=0))
            assert await ns.read(reg[BLOCK:], offset=BLOCK) == BLOCK
        with anyio.fail_after(20):
            while ns.controller.quarantine:  # until the late answer was seen
                await anyio.sleep(0.01)
        assert await ns.read(reg[:BLOCK], offset=0) == BLOCK
        assert ns.controller.statistics().timeouts == 1
        idle(ns)
        tools.device.clean(ns)


async def a_cancelled_read_waits_for_its_end(address: str, tools: Tools) -> None:
    async with tools.open(address, cancel_grace_s=60) as ns:
        async with ns.allocate(BLOCK) as reg, anyio.create_task_group() as group:
            ended = anyio.Event()

            async def read() -> None:
                try:
                    await ns.read(reg, offset=0)
                finally:
                    ended.set()

            with tools.device.hold_next_read(ns):
                group.start_soon(read)
                with anyio.fail_after(20):
                    while not ns.controller.statistics().inflight:
                        await anyio.sleep(0)
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
                    assert not ended.is_set()  # the device may still write
            with anyio.CancelScope(shield=True), anyio.fail_after(20):
                await ended.wait()
            assert reg.inflight == 0
        idle(ns)


async def a_given_up_read_ends_in_its_own_time(address: str, tools: Tools) -> None:
    """Some controllers obey an Abort, others answer when they are done."""
    async with tools.open(address, cancel_grace_s=0.02) as ns:
        async with ns.allocate(BLOCK) as reg:
            with tools.device.hold_next_read(ns):
                with anyio.move_on_after(0.05) as scope:
                    await ns.read(reg, offset=0)
                assert scope.cancelled_caught
                assert ns.controller.state == "live"
            with anyio.fail_after(20):
                while ns.controller.quarantine or ns.controller.statistics().inflight:
                    await anyio.sleep(0.01)
            assert await ns.read(reg, offset=0) == BLOCK
        assert ns.controller.statistics().cancels == 1
        idle(ns)


async def two_loops_share_a_controller(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(32 * BLOCK) as reg:
        reg.view[:] = data = noise(30, 32 * BLOCK)
        await ns.write(reg, offset=0)
        reg.view[:] = bytes(32 * BLOCK)

        async def half(first: int) -> None:
            for i in range(first, first + 16):
                part = reg[i * BLOCK :][:BLOCK]
                assert await ns.read(part, offset=i * BLOCK) == BLOCK

        other = partial(asyncio.run, half(16))
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, other)
            group.start_soon(half, 0)
        assert reg.view == data
        assert ns.controller.statistics().stragglers <= 4
        idle(ns)
        tools.device.clean(ns)


def _blocking(address: str, tools: Tools) -> None:
    with aiougds.blocking.open(address, mode=tools.mode) as ns:
        data = noise(31, 8 * BLOCK)
        with ns.register(bytearray(data)) as reg:
            assert ns.write(reg, offset=0) == len(data)
            ns.flush()
            failed: list[BaseException] = []

            def work(i: int) -> None:
                try:
                    with ns.allocate(BLOCK) as own:
                        for turn in range(8):
                            at = (i + turn) % 8 * BLOCK
                            assert ns.read(own, offset=at) == BLOCK
                            assert own.view == data[at : at + BLOCK]
                except BaseException as error:  # noqa: BLE001 (told below)
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed, failed
            assert ns.read_many([(reg[:BLOCK], 0), (reg[BLOCK:], BLOCK)]) == [
                BLOCK,
                7 * BLOCK,
            ]
            with ns.batch(4) as batch:
                batch.read(reg[:BLOCK], offset=0, cookie="one")
                batch.submit()
                assert [item.cookie for item in batch] == ["one"]


async def threads_do_without_a_loop(address: str, tools: Tools) -> None:
    await anyio.to_thread.run_sync(_blocking, address, tools)


async def a_blocking_call_is_refused_in_a_loop(address: str, tools: Tools) -> None:
    try:
        aiougds.blocking.open(address)
    except aiougds.WrongLoopError:
        return
    raise AssertionError("a blocking call inside a loop was not refused")


async def a_reset_ends_what_runs(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(64 * BLOCK) as reg:
        reg.view[:] = data = noise(32, 64 * BLOCK)
        await ns.write(reg, offset=0)
        ended: list[str] = []

        async def load(i: int) -> None:
            try:
                await ns.read(reg[i * BLOCK :][:BLOCK], offset=i * BLOCK)
                ended.append("done")
            except aiougds.OperationAbortedError:
                ended.append("aborted")

        for turn in range(1, 4):
            with tools.device.slow(ns):
                async with anyio.create_task_group() as group:
                    for i in range(8):
                        group.start_soon(load, i)
                    # QEMU 7.2 dies when it is reset with a doorbell just rung.
                    await anyio.sleep(0.05)
                    assert ns.controller.statistics().inflight
                    await ns.controller.reset()
            assert ns.controller.statistics().resets == turn
            assert ns.controller.state == "live"
            assert await ns.read(reg, offset=0) == len(data)
            assert reg.view == data
        assert len(ended) == 24
        assert ended.count("aborted") >= 3
        idle(ns)
        tools.device.clean(ns)


async def closing_waits_or_is_refused(address: str, tools: Tools) -> None:
    controller = await aiougds.open_controller(address, mode=tools.mode)
    ns = controller.namespace()
    async with ns.allocate(BLOCK) as reg:
        async with anyio.create_task_group() as group:
            with tools.device.hold_next_read(ns):
                group.start_soon(partial(ns.read, reg, offset=0))
                with anyio.fail_after(20):
                    while not controller.statistics().inflight:
                        await anyio.sleep(0)
                work = controller.aclose(timeout_s=0)
                await refused(aiougds.ControllerBusyError, work)
                work = reg.aclose(timeout_s=0)
                await refused(aiougds.RegistrationBusyError, work)
                assert controller.state == "live"
        assert await ns.read(reg, offset=0) == BLOCK
    await controller.aclose()
    await controller.aclose()  # once more is no error
    assert controller.closed
    assert ns.closed
    assert controller.state == "closed"
    await refused(aiougds.ClosedError, ns.flush())


async def a_child_is_refused(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
            child = os.fork()
        if not child:
            right = 0
            for work in (ns.read(reg, offset=0), ns.flush(), ns.controller.reset()):
                try:
                    work.send(None)
                except aiougds.ForkedError:
                    right += 1
                except BaseException:  # noqa: BLE001 (counted)
                    break
            os._exit(right)
        with anyio.fail_after(30):
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                await anyio.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 3
        assert await ns.read(reg, offset=0) == BLOCK
        idle(ns)
        tools.device.clean(ns)


async def admin_commands_pass_through(address: str, tools: Tools) -> None:
    async with tools.open_controller(address) as controller:
        dw0, page = await controller.admin(0x06, cdw10=1, nbytes=4096)
        assert dw0 == 0
        assert page == await controller.identify()
        dw0, none = await controller.admin(0x0A, cdw10=0x07)  # Number of Queues
        assert (dw0 & 0xFFFF) + 1 >= 1
        assert none == b""
        error = await refused(aiougds.NVMeError, controller.identify(0xEE))
        assert isinstance(error, aiougds.NVMeError)
        assert error.sc == 0x02
        for opcode in (0x00, 0x01, 0x0C):
            await refused(aiougds.CapabilityError, controller.admin(opcode))


async def log_pages_are_read(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        smart = await ns.controller.smart_log()
        assert smart.temperature_kelvin > 200
        assert len(await ns.controller.log_page(2, 512)) == 512
        assert isinstance(await ns.controller.error_log(4), tuple)


async def events_are_told(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        events = ns.controller.events()
        with tools.device.warn(ns), anyio.fail_after(20):
            event = await anext(events)
        assert event.type == "smart"
        assert event.log_page == 2
        assert ns.controller.state == "live"


async def counters_add_up(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(16 * BLOCK) as reg:
        for i in range(16):
            await ns.write(reg[i * BLOCK :][:BLOCK], offset=i * BLOCK)
        await ns.read_many([(reg[i * BLOCK :][:BLOCK], i * BLOCK) for i in range(16)])
        stats = ns.controller.statistics()
        assert (stats.reads, stats.writes, stats.commands) == (16, 16, 32)
        assert stats.read_bytes == stats.write_bytes == 16 * BLOCK
        assert stats.doorbells
        assert stats.channels == 1
        assert stats.errors == 0
        assert stats.timeouts == stats.aborts == 0
        assert stats.stragglers <= 4  # of 48: late, not lost


async def a_sleeping_loop_is_woken(address: str, tools: Tools) -> None:
    """Each of these reads sleeps until its interrupt, whatever the mode."""
    async with tools.open(address) as ns, ns.allocate(MIB) as reg:
        if not ns.controller.capabilities.vectors:
            return
        for i in range(32):
            part = reg[:] if i % 4 else reg[:BLOCK]
            assert await ns.read(part, offset=0, mode="interrupt") == len(part)
        stats = ns.controller.statistics()
        assert stats.stragglers <= 4  # of 32: late, not lost
        assert stats.wakeups or stats.inline_completions == 0
        assert ns.controller.capabilities.wake_armed


BEHAVIOURS = (
    a_late_read_times_out,
    a_cancelled_read_waits_for_its_end,
    a_given_up_read_ends_in_its_own_time,
    two_loops_share_a_controller,
    threads_do_without_a_loop,
    a_blocking_call_is_refused_in_a_loop,
    a_reset_ends_what_runs,
    closing_waits_or_is_refused,
    a_child_is_refused,
    admin_commands_pass_through,
    log_pages_are_read,
    events_are_told,
    counters_add_up,
    a_sleeping_loop_is_woken,
)
