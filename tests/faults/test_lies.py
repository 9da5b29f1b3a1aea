"""A controller that says what cannot be: at bring-up, in its pages, in its queues."""

from __future__ import annotations

import contextlib
import errno
import time
from functools import partial

import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, Opened, World, emu_address

from aiougds import (
    AddressError,
    BrokenError,
    CapabilityError,
    ControllerWedgedError,
    DeviceRemovedError,
    NVMeError,
    OpenError,
    RangeError,
    UGDSError,
    blocking,
)
from aiougds.testing import Fault, counters, inject

# What the embedded controller's CAP is, and what it can be made.
CAP = 0x0040_0030_1401_03FF | 1 << 36


def cap(**fields: int) -> str:
    """Return CAP with some of its fields changed (NVMe base, clause 3.1.3.1)."""
    value = CAP
    for name, number in fields.items():
        shift, bits = {
            "mqes": (0, 16),
            "to": (24, 8),
            "dstrd": (32, 4),
            "css": (37, 8),
            "mpsmin": (48, 4),
            "mpsmax": (52, 4),
        }[name]
        value = value & ~((1 << bits) - 1 << shift) | number << shift
    return hex(value)


@pytest.mark.parametrize(
    ("lie", "kind", "words"),
    [
        ({"cap": cap(mqes=0)}, CapabilityError, "one entry"),
        ({"cap": cap(dstrd=15)}, OpenError, "DSTRD 15"),
        ({"cap": cap(mpsmin=5, mpsmax=5)}, CapabilityError, "2\\^17"),
        ({"cap": cap(mpsmin=3, mpsmax=1)}, CapabilityError, "contradicts itself"),
        ({"cap": cap(css=0)}, CapabilityError, "no NVM command set"),
        ({"cap": "0xffffffffffffffff"}, OpenError, "all ones"),
        ({"cap": hex(0xFFFFFFFF_00000000 | CAP)}, OpenError, "all ones"),
        ({"cap": hex(CAP | 0xFFFFFFFF)}, OpenError, "all ones"),
        ({"csts": "0xffffffff"}, OpenError, "all ones"),
        ({"csts": "0x2"}, OpenError, "fatal status"),
        ({"vs": "0xffffffff"}, OpenError, "all ones"),
        ({"garble": "controller:zeros"}, CapabilityError, "SQES 0x00"),
        ({"garble": "controller:ones"}, CapabilityError, "SQES 0xff"),
        ({"garble": "controller:short100"}, CapabilityError, "SQES 0x00"),
        ({"garble": "list:zeros"}, RangeError, "no active namespace"),
        ({"garble": "namespace:zeros"}, RangeError, "no active namespace"),
        ({"garble": "namespace:ones"}, CapabilityError, "format"),
        ({"garble": "namespace:short100"}, CapabilityError, "format"),
        ({"garble": "namespace:12"}, CapabilityError, "format"),
        ({"garble": "list:7"}, RangeError, "no active namespace"),
    ],
    ids=str,
)
def test_a_lie_at_bring_up_is_refused(
    lie: dict[str, str], kind: type[UGDSError], words: str
) -> None:
    """In words, soon, and with everything given back."""
    start = time.monotonic()
    with pytest.raises(kind, match=words):
        blocking.open(emu_address(size=MIB, **lie))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "lie",
    [
        {"cap": cap(mqes=65535)},
        {"cap": cap(to=0)},
        {"vs": "0"},
        {"csts": "0xc0"},
        {"garble": "descriptors:ones"},
        {"garble": "logs:3"},
        {"garble": "controller:short514"},  # all that comes after CQES is lost
        {"garble": "namespace:short132"},
        {"garble": "list:short4"},
    ],
    ids=str,
)
@pytest.mark.few
async def test_what_does_not_matter_is_lived_with(
    world: World, lie: dict[str, str]
) -> None:
    data = pattern(4 * PAGE)
    emu = {"size": MIB, **lie}
    if "cap" in lie:
        emu["mqes"] = 65535
    async with world.open(emu=emu) as ns, ns.allocate(4 * PAGE) as reg:
        await ns.write(data, offset=0)
        assert await ns.read(reg, offset=0) == len(data)
        assert reg.view == data
        for page in (ns.controller.smart_log, ns.controller.error_log):
            await page()
        await ns.controller.reset()
        assert await ns.read(reg, offset=0) == len(data)


@pytest.mark.parametrize("page", ["controller", "namespace", "list", "all"])
@pytest.mark.few
async def test_random_pages_crash_nothing(world: World, page: str) -> None:
    """Bring-up ends with a namespace or with an error, whatever the pages hold."""
    for seed in range(25):
        emu = {"size": MIB, "garble": f"{page}:{seed}"}
        with contextlib.suppress(UGDSError):
            async with world.open(emu=emu) as ns:
                assert ns.size > 0


@pytest.mark.parametrize(
    "bad",
    [
        "garble=pages:ones",
        "garble=logs:often",
        "garble=logs:short",
        "hostile=1:0",
        "hostile=x",
        "cap=-1",
        "vs=0x100000000",
        "crdt=1:2:3:4",
        "crdt=70000",
    ],
)
def test_the_options_are_checked(bad: str) -> None:
    name = bad.partition("=")[0]
    with pytest.raises(AddressError, match=name):
        blocking.open(f"emu:?{bad}")


# ---- completions ----


async def lied_to(ns: Opened, fault: Fault, *, rounds: int = 40) -> int:
    """Read under the fault, one after another and many at once; return its hits."""
    data = pattern(16 * PAGE)
    async with ns.allocate(16 * PAGE) as reg:
        await ns.write(data, offset=0)
        pairs = [(reg[i * PAGE : (i + 1) * PAGE], i * PAGE) for i in range(16)]
        with inject(ns, fault) as struck:
            for _ in range(rounds):
                reg.view[: 2 * PAGE] = bytes(2 * PAGE)
                assert await ns.read(reg[:PAGE], offset=0) == PAGE
                assert await ns.read(reg[PAGE : 2 * PAGE], offset=PAGE) == PAGE
                assert reg.view[: 2 * PAGE] == data[: 2 * PAGE]
            reg.view[:] = bytes(len(data))
            assert await ns.read_many(pairs) == [PAGE] * 16
            assert reg.view == data
        return struck.hits


@pytest.mark.parametrize("depth", [2, 5, 64])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.bad_sqhd("read"),
        Fault.free_cid("read"),
        Fault.bad_cid("read"),
        Fault.bad_sqid("read"),
        Fault.dup_cqe("read"),
    ],
    ids=lambda fault: str(fault.action),
)
@pytest.mark.few
async def test_a_lie_in_every_completion(
    world: World, fault: Fault, depth: int
) -> None:
    """It stops nothing and completes nothing but what it is for."""
    async with world.opening(
        world.address(size=MIB), mode=world.mode, depth=depth, batch_depth=depth
    ) as ns:
        hits = await lied_to(ns, fault)
        assert hits == 2 * 40 + 16
        stats = ns.controller.statistics()
        # A short queue has no room for many that nobody waits for, and the second of a
        # pair may not have been seen yet.
        exact = depth == 64 and fault.action != "dup_cqe"
        least = 0 if fault.action == "bad_sqhd" else hits if exact else 1
        assert least <= stats.unknown_cids <= (hits if least else 0)
        assert stats.errors == stats.quarantined == stats.inflight == 0
        assert counters(ns).iommu_faults == 0


@pytest.mark.few
async def test_admin_commands_survive_insane_heads(world: World) -> None:
    """Event requests are always out: the queue's head is never known for certain."""
    async with world.open(emu={"size": MIB}) as ns:
        with inject(ns, Fault.bad_sqhd().on(queue=0)) as fault:
            for _ in range(100):
                assert len(await ns.controller.identify()) == 4096
            assert fault.hits >= 100


@pytest.mark.few
async def test_a_stuck_phase_wedges_and_a_reset_repairs(world: World) -> None:
    data = pattern(PAGE)
    keywords = {"mode": world.mode, "hang_timeout_s": 0.15, "queues": 2}
    address = world.address(size=MIB)
    async with (
        world.opening(address, **keywords) as ns,
        ns.allocate(2 * PAGE) as reg,
    ):
        await ns.write(data, offset=0)
        with (
            inject(ns, Fault.stuck_phase("read", count=1)) as fault,
            pytest.raises(ControllerWedgedError, match="nor after an Abort"),
        ):
            await ns.read(reg[:PAGE], offset=0)
        assert fault.hits == 1
        assert ns.controller.state == "wedged"
        assert len(ns.controller.quarantine) == 1
        with pytest.raises(ControllerWedgedError):
            await ns.read(reg[PAGE:], offset=0)
        await ns.controller.reset()
        assert ns.controller.quarantine == ()
        assert await ns.read(reg[PAGE:], offset=0) == PAGE
        assert reg.view[PAGE:] == data
        assert ns.controller.statistics().unknown_cids == 0


# ---- resets, removals ----


@pytest.mark.parametrize(
    "fault",
    [Fault.reset_refused(), Fault.never_ready()],
    ids=lambda fault: str(fault.action),
)
@pytest.mark.soak
@pytest.mark.few
async def test_a_reset_that_is_refused_can_be_tried_again(
    world: World, fault: Fault
) -> None:
    """It says what happened, ends the quarantine, and the next one works."""
    data = pattern(PAGE)
    address = world.address(size=MIB, to=1)
    async with world.opening(address, mode=world.mode) as ns, ns.allocate(PAGE) as reg:
        await ns.write(data, offset=0)
        with inject(ns, fault) as refused:
            with pytest.raises(BrokenError, match=r"CC.EN|ready"):
                await ns.controller.reset()
            assert refused.hits
            assert ns.controller.state == "wedged"
            with pytest.raises(ControllerWedgedError):
                await ns.read(reg, offset=0)
        await ns.controller.reset()
        assert ns.controller.state == "live"
        assert await ns.read(reg, offset=0) == PAGE
        assert reg.view == data
        assert counters(ns).iommu_faults == 0


@pytest.mark.soak
@pytest.mark.few
async def test_a_controller_that_came_back_is_still_gone(world: World) -> None:
    """Registers of all ones for a while: it is not believed again, nor half."""
    data = pattern(PAGE)
    address = world.address(size=MIB)
    async with world.opening(address, mode=world.mode) as ns, ns.allocate(PAGE) as reg:
        await ns.write(data, offset=0)
        with inject(ns, Fault.all_ones(1.5, "flush", count=1)) as fault:
            await ns.flush()
            assert fault.hits == 1
            deadline = time.monotonic() + 10
            while ns.controller.state == "live":
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert ns.controller.state == "removed"
        assert "all ones" in ns.controller.state_reason
        time.sleep(1.5)
        calls = (
            partial(ns.read, reg, offset=0),
            partial(ns.read_many, [(reg, 0)]),
            ns.flush,
            ns.controller.identify,
            ns.controller.reset,
        )
        for call in calls:
            with pytest.raises(DeviceRemovedError) as gone:
                await call()
            assert gone.value.errno == errno.ENODEV
        assert ns.controller.state == "removed"
        assert counters(ns).iommu_faults == 0
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        assert await ns.read(reg, offset=0) == PAGE


@pytest.mark.few
async def test_registers_of_all_ones_during_a_reset(world: World) -> None:
    address = world.address(size=MIB)
    async with world.opening(address, mode=world.mode) as ns, ns.allocate(PAGE) as reg:
        with inject(ns, Fault.all_ones(0.5, "flush", count=1)):
            await ns.flush()
            with pytest.raises(DeviceRemovedError, match="all ones"):
                await ns.controller.reset()
        assert ns.controller.state == "removed"
        with pytest.raises(DeviceRemovedError):
            await ns.read(reg, offset=0)


@pytest.mark.few
async def test_garbled_logs_are_only_numbers(world: World) -> None:
    for seed in range(10):
        async with world.open(emu={"size": MIB, "garble": f"logs:{seed}"}) as ns:
            smart = await ns.controller.smart_log()
            assert smart.temperature_kelvin >= 0
            assert isinstance(await ns.controller.error_log(), tuple)
            with pytest.raises(NVMeError):
                await ns.controller.log_page(0xC7, 512)
