"""Several namespaces, sparse identifiers, formats that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import CapabilityError, ClosedError, RangeError, ReadOnlyError


async def test_several_namespaces(world: World) -> None:
    spaces = "1:1MiB,3:2MiB:512,7:64KiB:8192,4294967293:1MiB"
    async with world.open_controller(emu={"namespaces": spaces}) as controller:
        assert controller.namespaces() == [1, 3, 7, 0xFFFFFFFD]
        opened = []
        for nsid, size, lba in (
            (1, MIB, 4096),
            (3, 2 * MIB, 512),
            (7, 65536, 8192),
            (0xFFFFFFFD, MIB, 4096),
        ):
            ns = controller.namespace(nsid)
            assert (ns.nsid, ns.size, ns.lba_bytes) == (nsid, size, lba)
            await ns.write(pattern(8192, nsid), offset=8192)
            opened.append(ns)
        for ns in opened:
            seen = bytearray(8192)
            await ns.read(seen, offset=8192)
            assert seen == pattern(8192, ns.nsid)
            await ns.read(seen, offset=0)
            assert seen == bytes(8192)
            await ns.aclose()


async def test_memory_serves_all_namespaces_of_a_controller(world: World) -> None:
    emu = {"namespaces": "1:1MiB,2:1MiB:512"}
    async with world.open_controller(emu=emu) as controller:
        one, two = controller.namespace(1), controller.namespace(2)
        async with one.register(bytearray(pattern(PAGE, 1))) as reg:
            await one.write(reg, offset=0)
            await two.write(reg[:512], offset=512)
            assert controller.statistics().mappings == 1
            reg.view[:] = bytes(PAGE)
            await two.read(reg[512:1536], offset=0)
            assert reg.view[1024:1536] == pattern(PAGE, 1)[:512]
        for ns in (one, two):
            await ns.aclose()


async def test_namespaces_in_files_survive(world: World, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    emu = {"namespaces": "1:1MiB,5:64KiB:512"}
    for turn in range(2):
        async with world.open_controller(path, emu=emu) as controller:
            for nsid in controller.namespaces():
                async with controller.namespace(nsid) as ns:
                    if turn == 0:
                        await ns.write(pattern(PAGE, nsid), offset=PAGE)
                    seen = bytearray(PAGE)
                    await ns.read(seen, offset=PAGE)
                    assert seen == pattern(PAGE, nsid)
    assert path.stat().st_size == MIB
    assert (tmp_path / "disk.ns5").stat().st_size == 65536


async def test_an_absent_namespace_lists_the_present(world: World) -> None:
    emu = {"namespaces": "2:1MiB,9:1MiB"}
    async with world.open_controller(emu=emu) as controller:
        for nsid in (1, 3, 0, -1, 0xFFFFFFFF, True, "2"):
            with nothing_sent(controller), pytest.raises(RangeError, match="are: 2, 9"):
                controller.namespace(nsid)
        async with controller.namespace() as ns:
            assert ns.nsid == 2
    with pytest.raises(RangeError, match="no namespace 4; there are: 2, 9"):
        async with world.open(emu=emu, nsid=4):
            raise AssertionError("it was opened")
    async with world.open(emu=emu, nsid=9) as ns:
        assert ns.nsid == 9


@pytest.mark.parametrize("form", ["512+8", "4096+64", "4096+8"])
async def test_formats_with_metadata_are_refused(world: World, form: str) -> None:
    """The device would write past the end of the memory."""
    emu = {"namespaces": f"1:1MiB:{form},2:1MiB"}
    async with world.open_controller(emu=emu) as controller:
        words = f"{form.partition('+')[2]} .*metadata|metadata"
        with pytest.raises(CapabilityError, match=words):
            controller.namespace(1)
        async with controller.namespace() as ns:
            assert ns.nsid == 2
            assert await ns.read(bytearray(PAGE), offset=0) == PAGE
    with pytest.raises(CapabilityError, match="metadata"):
        async with world.open(emu=emu, nsid=1):
            raise AssertionError("it was opened")


async def test_a_namespace_of_a_controller_may_be_read_only(world: World) -> None:
    async with world.open_controller() as controller:
        reader = controller.namespace(readonly=True)
        writer = controller.namespace()
        with nothing_sent(controller), pytest.raises(ReadOnlyError, match="read-only"):
            await reader.write(bytes(PAGE), offset=0)
        await writer.write(pattern(PAGE, 2), offset=0)
        seen = bytearray(PAGE)
        await reader.read(seen, offset=0)
        assert seen == pattern(PAGE, 2)
        await reader.aclose()
        with pytest.raises(ClosedError, match="closed"):
            await reader.read(seen, offset=0)
        await writer.aclose()


async def test_a_closed_controller_closes_its_namespaces(world: World) -> None:
    async with world.open_controller() as controller:
        ns = controller.namespace()
        await ns.write(bytes(PAGE), offset=0)
        reg = ns.allocate(PAGE)
        await reg.aclose()
    assert ns.closed
    for call in (
        lambda: ns.read(bytearray(PAGE), offset=0),
        lambda: ns.write(bytes(PAGE), offset=0),
        lambda: ns.flush(),
        lambda: ns.read_many([]),
    ):
        with pytest.raises(ClosedError, match="is closed; open it again"):
            await call()
    for make in (
        lambda: ns.register(bytearray(8)),
        lambda: ns.allocate(8),
        lambda: ns.region(0, PAGE),
        lambda: ns.batch(),
        lambda: controller.namespace(),
        lambda: controller.statistics(),
    ):
        with pytest.raises(ClosedError, match="is closed; open it again"):
            make()
