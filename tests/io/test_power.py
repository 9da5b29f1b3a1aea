"""Power cuts: what ends, what the controller is afterwards, and what it has lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.world import KIB, MIB, Opened, World

from aiougds import (
    AddressError,
    BrokenError,
    CapabilityError,
    ControllerWedgedError,
    DeviceRemovedError,
    NVMeError,
    OptionError,
)
from aiougds.testing import Fault, counters, inject, power_cut

BLOCK = 4 * KIB
OLD, NEW, NEWEST = (bytes([letter]) * BLOCK for letter in b"one")
VOLATILE: dict[str, object] = {"volatile": 1}


async def content(ns: Opened, blocks: int, first: int = 0) -> list[bytes]:
    data = bytearray(blocks * BLOCK)
    await ns.read(data, offset=first * BLOCK)
    return [bytes(data[n * BLOCK : (n + 1) * BLOCK]) for n in range(blocks)]


async def test_power_is_lost_and_comes_back(world: World) -> None:
    async with world.open(emu=VOLATILE) as ns, ns.allocate(BLOCK) as reg:
        reg.view[:] = OLD
        await ns.write(reg, offset=0)
        await ns.flush()
        for number in range(1, 4):
            power_cut(ns)
            assert ns.controller.state == "wedged"
            with pytest.raises(ControllerWedgedError, match="reset") as refused:
                await ns.read(reg, offset=0)
            assert refused.value.errno == errno.EHOSTDOWN
            await ns.controller.reset()
            assert ns.controller.state == "live"
            reg.view[:] = NEW
            assert await ns.read(reg, offset=0) == BLOCK
            assert reg.view[:] == OLD
            health = await ns.controller.smart_log()
            assert health.unsafe_shutdowns == number
            assert health.power_cycles == number + 1


async def test_power_stays_off(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with world.open(path, emu=VOLATILE) as ns:
        await ns.write(OLD, offset=0, fua=True)
        power_cut(ns, stays_off=True)
        assert ns.controller.state == "removed"
        with pytest.raises(DeviceRemovedError):
            await ns.write(NEW, offset=0)
        with pytest.raises(DeviceRemovedError):
            await ns.controller.reset()
        with pytest.raises(DeviceRemovedError, match="off already"):
            power_cut(ns)
    async with world.open(path, emu=VOLATILE) as ns:
        assert await content(ns, 1) == [OLD]


@pytest.mark.few
@pytest.mark.parametrize("stays_off", [False, True])
async def test_operations_in_flight_end_once(
    world: World, tmp_path: Path, stays_off: bool
) -> None:
    """The third write meets the cut; before it some completed, after it none does."""
    path, ended = tmp_path / "disk", [0] * 16
    error: type[BrokenError] = (
        DeviceRemovedError if stays_off else ControllerWedgedError
    )
    fault = Fault.power_cut("write", skip=2, stays_off=stays_off)
    async with world.opening(
        world.address(path, volatile=1, threads=3), mode=world.mode
    ) as ns:
        with inject(ns, fault) as cut:

            async def write(number: int) -> None:
                try:
                    await ns.write(NEW, offset=number * BLOCK, fua=number % 2 == 0)
                except error:
                    ended[number] += 2
                else:
                    ended[number] += 1

            await world.gather(*(lambda n=n: write(n) for n in range(16)))
            assert cut.hits == 1
        assert set(ended) <= {1, 2}
        assert ended.count(1) < 15
        if not stays_off:
            await ns.controller.reset()
            for number, block in enumerate(await content(ns, 16)):
                if ended[number] == 1 and number % 2 == 0:
                    assert block == NEW
        seen = counters(ns)
        assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
        if stays_off:
            await ns.controller.aclose(force=True)
        else:
            left = ns.controller.statistics()
            assert (left.inflight, left.quarantined, left.unknown_cids) == (0, 0, 0)
    async with world.open(path, emu=VOLATILE) as ns:
        for number, block in enumerate(await content(ns, 16)):
            assert block in (NEW, bytes(BLOCK))
            if ended[number] == 1 and number % 2 == 0:
                assert block == NEW


@pytest.mark.few
@pytest.mark.parametrize("lba", [512, 4096])
async def test_writes_are_dropped_torn_and_reordered(world: World, lba: int) -> None:
    """Over the seeds each of these happens; within an atomic unit nothing does."""
    unit = BLOCK // lba
    dropped = torn = reordered = whole = 0
    emu = VOLATILE | {"lba": lba, "awupf": unit - 1}
    async with world.open(emu=emu) as ns:
        for seed in range(32):
            await ns.write(2 * OLD, offset=0, fua=True)
            await ns.write(2 * NEW, offset=0)
            await ns.write(2 * NEWEST, offset=0)
            assert await content(ns, 2) == [NEWEST, NEWEST]
            power_cut(ns, seed=seed)
            await ns.controller.reset()
            seen = await content(ns, 2)
            assert set(seen) <= {OLD, NEW, NEWEST}
            whole += seen == [NEWEST, NEWEST]
            dropped += seen == [OLD, OLD]
            torn += seen[0] != seen[1]
            reordered += NEW in seen
    assert min(whole, dropped, torn, reordered) > 0


@pytest.mark.few
async def test_what_is_durable_is_there(world: World) -> None:
    """By Flush, by FUA, by a shutdown, and all of it without a write cache."""
    for vwc in (1, 0):
        async with world.open(emu=VOLATILE | {"vwc": vwc}) as ns:
            for seed in range(12):
                await ns.write(OLD + OLD + OLD, offset=0)
                await ns.flush()
                await ns.write(NEW, offset=0, fua=True)
                if not vwc:
                    await ns.write(NEW, offset=2 * BLOCK)
                power_cut(ns, seed=seed)
                await ns.controller.reset()
                assert await content(ns, 3) == [NEW, OLD, OLD if vwc else NEW]


async def test_a_normal_end_loses_nothing(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with world.open(path, emu=VOLATILE) as ns:
        await ns.write(NEW, offset=0)
        await ns.controller.reset()
        await ns.write(OLD, offset=BLOCK)
    async with world.open(path) as ns:
        assert await content(ns, 2) == [NEW, OLD]


@pytest.mark.few
async def test_seeds_choose(world: World) -> None:
    """The same history and seed leave the same, in the address or in the call."""

    async def histories(address_seed: int, seed: int | None) -> list[list[bytes]]:
        found = []
        emu = VOLATILE | {"seed": address_seed, "threads": 1}
        async with world.open(emu=emu) as ns:
            for _ in range(6):
                await ns.write(8 * OLD, offset=0, fua=True)
                await ns.write(8 * NEW, offset=0)
                power_cut(ns, seed=seed)
                await ns.controller.reset()
                found.append(await content(ns, 8))
        return found

    assert await histories(1, None) == await histories(1, None)
    assert await histories(1, None) != await histories(2, None)
    assert await histories(1, 7) == await histories(2, 7)


async def test_more_than_is_remembered(world: World) -> None:
    """What would be too much makes durable what came before it, as a full cache."""
    lost = 0
    async with world.open(emu={"volatile": 32 * KIB}) as ns:
        for seed in range(8):
            await ns.write(12 * OLD, offset=0)
            await ns.flush()
            await ns.write(4 * NEW, offset=0)
            await ns.write(4 * NEW, offset=4 * BLOCK)
            await ns.write(4 * NEW, offset=8 * BLOCK)
            power_cut(ns, seed=seed)
            await ns.controller.reset()
            seen = await content(ns, 12)
            assert seen[:4] == 4 * [NEW]
            lost += seen.count(OLD)
    assert lost


async def test_zeros_can_be_lost(world: World) -> None:
    found, zeros = set(), bytes(BLOCK)
    async with world.open(emu=VOLATILE | {"size": 64 * MIB}) as ns:
        for seed in range(16):
            await ns.write(4 * OLD, offset=0, fua=True)
            await ns.write_zeroes(offset=0, nbytes=BLOCK)
            await ns.deallocate(offset=BLOCK, nbytes=BLOCK)
            await ns.write_zeroes(offset=2 * BLOCK, nbytes=BLOCK, fua=True)
            power_cut(ns, seed=seed)
            await ns.controller.reset()
            seen = await content(ns, 4)
            assert seen[2:] == [zeros, OLD]
            found.add((seen[0], seen[1]))
        assert found == {(a, b) for a in (OLD, zeros) for b in (OLD, zeros)}
        # More than can be remembered: all of it at once, and durable.
        await ns.deallocate(offset=0, nbytes=64 * MIB)
        power_cut(ns, seed=1)
        await ns.controller.reset()
        assert await content(ns, 4) == 4 * [zeros]


async def test_failed_commands_change_nothing(world: World) -> None:
    async with world.open(emu=VOLATILE) as ns:
        await ns.write(OLD, offset=0, fua=True)
        with (
            inject(ns, Fault.status("write", sct=2, sc=0x80)),
            pytest.raises(NVMeError),
        ):
            await ns.write(NEW, offset=0, fua=True)
        power_cut(ns)
        await ns.controller.reset()
        assert await content(ns, 1) == [OLD]


@pytest.mark.few
async def test_refusals(world: World) -> None:
    async with world.open() as ns:
        with pytest.raises(CapabilityError, match="volatile=1"):
            power_cut(ns)
        with pytest.raises(CapabilityError, match="volatile=1"):
            inject(ns, Fault.power_cut())
    async with world.open(emu=VOLATILE) as ns:
        for seed in (-1, 1 << 64, 1.5, True):
            with pytest.raises(OptionError, match="an integer in 0"):
                power_cut(ns, seed=seed)  # type: ignore[arg-type]
        assert ns.controller.state == "live"
    for wrong in ("2", "4095", "2TiB", "on", "1&data=none"):
        with pytest.raises(AddressError, match="volatile"):
            async with world.opening(f"emu:?volatile={wrong}"):
                pass
