"""Behaviours: single transfers, and what is refused before anything is sent."""

from __future__ import annotations

import aiougds
from conformance.tools import Tools, idle, noise, refused

KIB = 1 << 10
MIB = 1 << 20


async def opens_and_identifies(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        controller = ns.controller
        found, info = controller.capabilities, controller.info
        assert controller.state == "live"
        assert not controller.state_reason
        assert found.completion == tools.mode
        assert found.transport
        assert info.serial
        assert info.model
        assert found.queue_pairs >= 1
        assert found.max_transfer_bytes >= 4096
        assert ns.nsid in controller.namespaces()
        assert ns.size
        assert ns.size % ns.lba_bytes == 0
        page = await controller.identify()
        assert page[4:24].decode().strip() == info.serial
        assert page[24:64].decode().strip() == info.model
        space = await controller.identify(0, ns.nsid)
        blocks = int.from_bytes(space[:8], "little")
        assert blocks * ns.lba_bytes == ns.size


async def opens_again_at_once(address: str, tools: Tools) -> None:
    data = noise(1, 8192)
    for turn in range(3):
        async with tools.open(address) as ns, ns.allocate(8192) as reg:
            if not turn:
                reg.view[:] = data
                await ns.write(reg, offset=0)
            else:
                assert await ns.read(reg, offset=0) == 8192
                assert reg.view == data


async def moves_every_size(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        lba, most = ns.lba_bytes, ns.controller.capabilities.max_transfer_bytes
        sizes = {lba, 2 * lba, 4096, 4096 + lba, 8192, 64 * KIB, most - lba, most}
        sizes |= {most + lba, 2 * most + 4096}
        room = max(sizes)
        async with ns.allocate(room) as out, ns.allocate(room + 8192) as back:
            out.view[:] = noise(2, room)
            for nbytes in sorted(s - s % lba for s in sizes):
                for at in (0, lba, 3 * MIB - lba, ns.size - nbytes):
                    assert await ns.write(out[:nbytes], offset=at) == nbytes
                    back.view[: nbytes + 64] = b"\xa5" * (nbytes + 64)
                    assert await ns.read(back[:nbytes], offset=at) == nbytes
                    assert back.view[:nbytes] == out.view[:nbytes], (nbytes, at)
                    assert back.view[nbytes : nbytes + 64] == b"\xa5" * 64
        idle(ns)
        tools.device.clean(ns)


async def memory_may_begin_anywhere(address: str, tools: Tools) -> None:
    """PRP entries: first pages that are not whole, and neighbours left alone."""
    async with tools.open(address) as ns:
        lba = ns.lba_bytes
        data = noise(3, 16 * 4096)
        await ns.write(data, offset=0)
        async with ns.allocate(64 * KIB) as reg:
            for start in (0, 4, 512, 4092, 4096, 4096 + 12, 8188):
                for nbytes in (lba, 4096, 8192, 8 * 4096 + lba):
                    nbytes -= nbytes % lba
                    reg.view[:] = b"\x5a" * len(reg.view)
                    done = await ns.read(reg[start : start + nbytes], offset=lba)
                    assert done == nbytes
                    end = start + nbytes
                    assert reg.view[start:end] == data[lba : lba + nbytes]
                    assert reg.view[:start] == b"\x5a" * start
                    assert reg.view[end : end + 4096] == b"\x5a" * 4096
                    await ns.write(reg[start:end], offset=2 * MIB)
                    await ns.read(reg[:nbytes], offset=2 * MIB)
                    assert reg.view[:nbytes] == data[lba : lba + nbytes]
        idle(ns)
        tools.device.clean(ns)


async def flush_and_fua_succeed(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        data = noise(4, 4096)
        assert await ns.write(data, offset=4096, fua=True) == 4096
        assert await ns.write(data, offset=8192) == 4096
        await ns.flush()
        done = ns.controller.statistics()
        assert (done.writes, done.others, done.write_bytes) == (2, 1, 8192)
        back = bytearray(4096)
        await ns.read(back, offset=4096)
        assert back == data


async def zeroes_are_written_without_data(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        if not ns.controller.capabilities.write_zeroes:
            work = ns.write_zeroes(offset=0, nbytes=4096)
            await refused(aiougds.CapabilityError, work)
            return
        data = noise(5, 32 * KIB)
        await ns.write(data, offset=0)
        assert await ns.write_zeroes(offset=4096, nbytes=8192) == 8192
        back = bytearray(32 * KIB)
        await ns.read(back, offset=0)
        assert back == data[:4096] + bytes(8192) + data[12288:]


async def deallocated_blocks_leave_others_alone(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        if not ns.controller.capabilities.deallocate:
            work = ns.deallocate(offset=0, nbytes=4096)
            await refused(aiougds.CapabilityError, work)
            return
        data = noise(6, 32 * KIB)
        await ns.write(data, offset=MIB)
        assert await ns.deallocate(offset=MIB + 8192, nbytes=8192) == 8192
        back = bytearray(32 * KIB)
        await ns.read(back, offset=MIB)
        assert back[:8192] == data[:8192]
        assert back[16384:] == data[16384:]


async def compare_tells_equal_from_different(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        data = noise(7, 8192)
        await ns.write(data, offset=0)
        if not ns.controller.capabilities.compare:
            await refused(aiougds.CapabilityError, ns.compare(data, offset=0))
            return
        assert await ns.compare(data, offset=0) == 8192
        other = bytearray(data)
        other[5000] ^= 1
        error = await refused(aiougds.CompareError, ns.compare(other, offset=0))
        assert isinstance(error, aiougds.NVMeError)
        assert (error.sct, error.sc) == (2, 0x85)


async def verify_runs_or_is_refused(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        work = ns.verify(offset=0, nbytes=64 * KIB)
        if ns.controller.capabilities.verify:
            assert await work == 64 * KIB
        else:
            await refused(aiougds.CapabilityError, work)


async def edges_are_bounced(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        data = noise(8, 40 * KIB)
        await ns.write(data, offset=0)
        for offset, nbytes in ((1, 10), (511, 4098), (5000, 30001), (3, 7 * 4096)):
            back = bytearray(nbytes + 1)
            view = memoryview(back)[1:]  # not aligned to 4 bytes either
            done = await ns.read(view, offset=offset, edges="bounce")
            assert done == nbytes
            assert back[1:] == data[offset : offset + nbytes]
        assert ns.controller.statistics().bounces >= 4
        idle(ns)


async def what_is_wrong_is_refused(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(8192) as reg:
        lba, sent = ns.lba_bytes, ns.controller.statistics().commands
        for kind, work in (
            (aiougds.AlignmentError, ns.read(reg, offset=1)),
            (aiougds.AlignmentError, ns.write(reg[: lba + 4], offset=0)),
            (aiougds.RangeError, ns.read(reg, offset=ns.size)),
            (aiougds.RangeError, ns.read(reg, offset=ns.size - lba)),
            (aiougds.RangeError, ns.read(reg, offset=-lba)),
            (aiougds.RangeError, ns.read(reg, offset=0, nbytes=8192 + lba)),
            (aiougds.ReadOnlyError, ns.read(bytes(lba), offset=0)),
            (aiougds.MemoryTypeError, ns.read(17, offset=0)),  # type: ignore[arg-type]
            (aiougds.MemoryLayoutError, ns.read(bytearray(lba), offset=0, jit=False)),
            (aiougds.OptionError, ns.read(reg, offset=0, timeout_s=-1)),
        ):
            await refused(kind, work)
        assert await ns.read(reg[:0], offset=0) == 0
        assert ns.controller.statistics().commands == sent


async def readonly_is_kept(address: str, tools: Tools) -> None:
    async with tools.open(address, readonly=True) as ns, ns.allocate(4096) as reg:
        assert ns.readonly
        assert ns.controller.capabilities.readonly
        assert await ns.read(reg, offset=0) == 4096
        for work in (
            ns.write(reg, offset=0),
            ns.write_zeroes(offset=0, nbytes=4096),
            ns.deallocate(offset=0, nbytes=4096),
        ):
            await refused(aiougds.ReadOnlyError, work)
        assert ns.controller.statistics().writes == 0


async def regions_are_bounded(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns, ns.allocate(4096) as reg:
        part = ns.region(MIB, 64 * KIB)
        assert part.size == 64 * KIB
        reg.view[:] = noise(9, 4096)
        await part.write(reg, offset=60 * KIB)
        back = bytearray(4096)
        await ns.read(back, offset=MIB + 60 * KIB)
        assert back == reg.view
        await refused(aiougds.RangeError, part.read(reg, offset=64 * KIB))
        await refused(
            aiougds.ReadOnlyError, ns.region(0, MIB, readonly=True).write(reg, offset=0)
        )


async def any_memory_is_pinned_in_time(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        data = noise(10, 20 * KIB)
        assert await ns.write(data, offset=0) == len(data)  # read-only memory
        for nbytes in (4096, 20 * KIB):
            back = bytearray(nbytes)
            assert await ns.read(back, offset=0) == nbytes
            assert back == data[:nbytes]
        stats = ns.controller.statistics()
        assert stats.jit_pins + stats.bounces >= 3
        assert stats.inflight == 0


async def registrations_are_sliced_and_closed(address: str, tools: Tools) -> None:
    async with tools.open(address) as ns:
        data = bytearray(noise(11, 64 * KIB))
        async with ns.register(data) as reg, ns.register(data) as again:
            assert ns.controller.statistics().mappings >= 2  # pages may be shared
            assert len(reg[4096:]) == 60 * KIB
            assert len(reg[4096:][:512][8:]) == 504
            await ns.write(reg, offset=0)
            await ns.read(again[8192:16384], offset=0)
            assert data[8192:16384] == data[:8192]
            assert reg.placement == "host"
            assert not reg.revocable
            assert reg.inflight == 0
        assert reg.closed
        await refused(aiougds.ClosedError, ns.read(reg, offset=0))
        assert ns.controller.statistics().mappings == 0


BEHAVIOURS = (
    opens_and_identifies,
    opens_again_at_once,
    moves_every_size,
    memory_may_begin_anywhere,
    flush_and_fua_succeed,
    zeroes_are_written_without_data,
    deallocated_blocks_leave_others_alone,
    compare_tells_equal_from_different,
    verify_runs_or_is_refused,
    edges_are_bounced,
    what_is_wrong_is_refused,
    readonly_is_kept,
    regions_are_bounded,
    any_memory_is_pinned_in_time,
    registrations_are_sliced_and_closed,
)
