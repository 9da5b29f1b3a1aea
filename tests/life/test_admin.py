"""Admin commands, log pages and asynchronous events."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, until

import aiougds
from aiougds import (
    BusyError,
    CapabilityError,
    Event,
    MediaError,
    Namespace,
    NVMeError,
    OptionError,
    RangeError,
)
from aiougds.testing import Fault, counters, inject, raise_event

pytestmark = pytest.mark.anyio


async def test_identify_passthrough(live: Live) -> None:
    async with live() as ns:
        controller = ns.controller
        _, data = await controller.admin(0x06, cdw10=1, nbytes=4096)
        assert len(data) == 4096
        assert data == await controller.identify()
        assert data[4:24].decode().strip() == controller.info.serial
        assert data[24:64].decode().strip() == controller.info.model
        space = await controller.identify(cns=0, nsid=1)
        (blocks,) = struct.unpack_from("<Q", space)
        assert blocks * ns.lba_bytes == ns.size
        listed = await controller.identify(cns=2)
        assert struct.unpack_from("<2I", listed) == (1, 0)


async def test_dword_0_of_a_feature(live: Live) -> None:
    async with live(queues=4) as ns:
        dw0, data = await ns.controller.admin(0x0A, cdw10=0x07)  # number of queues
        assert data == b""
        granted = ((dw0 & 0xFFFF) + 1, (dw0 >> 16) + 1)
        assert min(granted) >= ns.controller.capabilities.queue_pairs


# One device thread: first what housekeeping sends at the start, then what is sent here.
IN_ORDER = "threads=1"


async def admin_commands(ns: Namespace) -> int:
    """How many the device has taken, with all that was sent before this."""
    await ns.controller.log_page(2)
    return counters(ns).admin_commands


@pytest.mark.parametrize("opcode", [0x00, 0x01, 0x04, 0x05, 0x0C, 0x7C])
async def test_queue_commands_are_refused(live: Live, opcode: int) -> None:
    async with live(IN_ORDER) as ns:
        before = await admin_commands(ns)
        with pytest.raises(CapabilityError, match=f"{opcode:#04x}") as refusal:
            await ns.controller.admin(opcode)
        assert refusal.value.errno == errno.EOPNOTSUPP
        assert await admin_commands(ns) == before + 1
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK


@pytest.mark.few
async def test_bad_arguments_send_nothing(live: Live) -> None:
    async with live(IN_ORDER) as ns:
        controller = ns.controller
        before = await admin_commands(ns)
        for call, kind in (
            (lambda: controller.admin(0x06, cdw10=-1), RangeError),
            (lambda: controller.admin(0x06, cdw10=1 << 32), RangeError),
            (lambda: controller.admin(0x06, nsid=1.5), OptionError),  # type: ignore[arg-type]
            (lambda: controller.admin(0x06, nbytes=65537), RangeError),
            (lambda: controller.admin(0x06, nbytes=-1), RangeError),
            (lambda: controller.admin(0x100), RangeError),
            (lambda: controller.admin(0x06, data=bytes(65537)), RangeError),
            (lambda: controller.log_page(2, 513), RangeError),
            (lambda: controller.log_page(2, 0), RangeError),
            (lambda: controller.error_log(0), RangeError),
        ):
            with pytest.raises(kind):
                await call()  # type: ignore[no-untyped-call]
        assert await admin_commands(ns) == before + 1


async def test_what_the_controller_refuses(live: Live) -> None:
    async with live() as ns:
        for call, sct, sc in (
            (lambda: ns.controller.admin(0xC5), 0, 0x01),
            (lambda: ns.controller.log_page(0xEE), 1, 0x09),
            (lambda: ns.controller.identify(cns=0, nsid=77), 0, 0x0B),
        ):
            with pytest.raises(NVMeError) as refused:
                await call()
            assert (refused.value.sct, refused.value.sc) == (sct, sc)
            assert any("opcode" in note for note in refused.value.__notes__)
        assert ns.controller.state == "live"


async def test_admin_faults(live: Live) -> None:
    async with live() as ns:
        fault = Fault.status(0x06, sct=0, sc=0x06, count=1).on(queue=0)
        with inject(ns, fault), pytest.raises(NVMeError) as failed:
            await ns.controller.identify()
        assert failed.value.errno == errno.EIO
        with inject(ns, Fault.delay(0.05, 0x02, count=1).on(queue=0)):
            log = await ns.controller.smart_log()
        assert log.available_spare_percent == 100


async def test_many_admin_commands_at_once(live: Live) -> None:
    async with live() as ns:
        pages: list[bytes] = []

        async def ask() -> None:
            pages.append(await ns.controller.identify())

        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(ask)
        assert len(pages) == 40
        assert len(set(pages)) == 1


async def test_smart_log(live: Live) -> None:
    # As much as one command moves, whatever its class.
    async with live() as ns, ns.allocate(32 * BLOCK) as reg:
        first = await ns.controller.smart_log()
        assert (first.host_reads, first.host_writes) == (0, 0)
        assert first.critical_warning == 0
        assert 273 < first.temperature_kelvin < 373
        for _ in range(3):
            await ns.write(reg, offset=0)
        for _ in range(5):
            await ns.read(reg, offset=0)

        async def counted() -> bool:  # a device thread counts after it has answered
            log = await ns.controller.smart_log()
            return (log.host_reads, log.host_writes) == (5, 3)

        with anyio.fail_after(5):
            while not await counted():
                await anyio.sleep(0)  # what completes at once does not turn the loop
        log = await ns.controller.smart_log()
        # In thousands of 512 byte units, rounded up.
        assert log.data_units_read == -(-5 * 32 * BLOCK // 512_000)
        assert log.data_units_written == -(-3 * 32 * BLOCK // 512_000)
        assert log.error_log_entries == 0


async def test_error_log_is_newest_first(live: Live) -> None:
    async with live("namespaces=3:1MiB") as ns, ns.allocate(BLOCK) as reg:
        assert await ns.controller.error_log() == ()
        for i in range(1, 4):
            bad = Fault.status("read", sct=2, sc=0x80 + i, count=1)
            with inject(ns, bad), pytest.raises(MediaError):
                await ns.read(reg, offset=i * 10 * BLOCK)
        entries = await ns.controller.error_log()
        assert [entry.error_count for entry in entries] == [3, 2, 1]
        assert [entry.lba for entry in entries] == [30, 20, 10]
        assert [entry.status for entry in entries] == [0x283, 0x282, 0x281]
        assert {entry.nsid for entry in entries} == {3}
        assert all(entry.queue_id > 0 for entry in entries)
        assert entries[2].status_text == "Unrecovered Read Error"
        assert len(await ns.controller.error_log(2)) == 2
        assert (await ns.controller.smart_log()).error_log_entries == 3


async def test_namespaces_are_listed(address: Callable[..., str]) -> None:
    where = address("namespaces=2:1MiB,7:2MiB:512,4000000000:4MiB")
    async with aiougds.open_controller(where) as controller:
        assert controller.namespaces() == [2, 7, 4000000000]
        assert controller.namespace().nsid == 2
        with pytest.raises(RangeError, match="2, 7, 4000000000"):
            controller.namespace(1)
        memory = bytearray(512)
        assert await controller.namespace(7).read(memory, offset=512) == 512


EVENTS = [
    ((0, 0, 1), "error", "write to an invalid doorbell register"),
    ((1, 1, 2), "smart", "temperature threshold crossed"),
    ((2, 0, 4), "notice", "namespace attributes changed"),
    ((7, 9, 0xC0), "vendor", "vendor event 0x09"),
]


async def test_events_are_decoded(live: Live) -> None:
    async with live() as ns:
        events = ns.controller.events()
        for (kind, info, page), name, words in EVENTS:
            raise_event(ns, type=kind, info=info, log_page=page)
            with anyio.fail_after(5):
                event = await events.__anext__()
            assert event == Event(
                name, info, page, words, kind | info << 8 | page << 16
            )


async def test_an_event_wakes_who_waits(live: Live) -> None:
    async with live() as ns:
        seen: list[Event] = []

        async def wait() -> None:
            async for event in ns.controller.events():
                seen.append(event)
                return

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(BusyError):
                await ns.controller.events().__anext__()
            raise_event(ns, type=1, info=1, log_page=2)
        assert [event.type for event in seen] == ["smart"]


async def test_events_in_a_burst(live: Live) -> None:
    """More than there are requests outstanding; of one type, as it is read."""
    async with live("aerl=1") as ns:
        for info in range(8):
            raise_event(ns, type=1, info=info, log_page=2)
        seen: list[int] = []
        with anyio.fail_after(10):
            async for event in ns.controller.events():
                seen.append(event.info)
                if len(seen) == 8:
                    break
        assert seen == list(range(8))


async def test_waiting_for_events_can_be_cancelled(live: Live) -> None:
    async with live() as ns:
        events = ns.controller.events()
        for _ in range(5):
            with anyio.move_on_after(0.005) as scope:
                await events.__anext__()
            assert scope.cancelled_caught
        raise_event(ns, type=2, info=1, log_page=3)
        with anyio.fail_after(5):
            assert (await events.__anext__()).type == "notice"


async def test_events_end_at_close(
    address: Callable[..., str], mode: aiougds.Mode
) -> None:
    ns = await aiougds.open(address(), mode=mode)
    ended: list[bool] = []

    async def wait() -> None:
        async for _ in ns.controller.events():
            raise AssertionError("there was none")
        ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await ns.aclose()
    assert ended == [True]


async def test_events_survive_a_reset(live: Live) -> None:
    async with live() as ns:
        await ns.controller.reset()
        raise_event(ns, type=1, info=2, log_page=2)
        with anyio.fail_after(5):
            event = await ns.controller.events().__anext__()
        assert event.text == "spare is below its threshold"


async def test_a_namespace_event_is_looked_after(live: Live) -> None:
    async with live(IN_ORDER) as ns:
        before = await admin_commands(ns)
        raise_event(ns)  # namespace attributes changed, by default
        # The changed list is read, the namespaces are looked at again.
        await until(lambda: counters(ns).admin_commands >= before + 2)
        with anyio.fail_after(5):
            assert (await ns.controller.events().__anext__()).log_page == 4
        assert await ns.read(bytearray(BLOCK), offset=0) == BLOCK
