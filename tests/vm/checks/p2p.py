"""Blocks from an SSD into a peer's memory and back, byte for byte from the far side."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Generator
from contextlib import contextmanager

import aiougds
from aiougds import lowlevel
from vm.checks.cuda import NEW, OLD, driver
from vm.guest import peers
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import MIB, PAGE, node
from vm.guest.peers import Peer, udmabuf
from vm.guest.transfers import SOURCE, error_in, read_all, write_all

GIB = 1 << 30
DISK = 64 * MIB
WINDOW = 64 * MIB
_images: dict[str, bytes] = {}


def original(ground: Ground, name: str = "nv0-1") -> bytes:
    """Return the part of a disk that is only read; made once, for it takes seconds."""
    if name not in _images:
        _images[name] = ground.original(name, 0, SOURCE)
    return _images[name]


@contextmanager
def memory(
    nbytes: int, how: int = 0, piece: int = 0
) -> Generator[tuple[int, mmap.mmap]]:
    """Give a dma-buf of the first BAR and its far side; importers must have gone."""
    with Peer(0) as peer:
        with peer.exported(0, nbytes, how, piece) as fd, mmap.mmap(fd, nbytes) as far:
            yield fd, far
        info = peer.info()
        assert info.idle, info
        assert not info.exports, info


@check(limit_s=300)
async def every_size_is_read_at_every_offset(ground: Ground) -> None:
    with memory(WINDOW) as (fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd, require_peer=True) as reg,
        ):
            assert reg.placement == "device"
            await read_all(ns, reg, far, original(ground), 64 << 10)


@check(limit_s=300)
async def every_size_is_written_from_every_offset(ground: Ground) -> None:
    with memory(WINDOW) as (fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            await write_all(ns, reg, far, DISK, 16 << 10)


@check(limit_s=120)
async def memory_in_pieces_is_read_and_written_in_order(ground: Ground) -> None:
    """The bus addresses of the next piece are always lower."""
    with memory(WINDOW, peers.REVERSED, 4 * PAGE) as (fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            await read_all(ns, reg, far, original(ground), 4096, MIB)
            await write_all(ns, reg, far, DISK, 2048, MIB)


@check()
async def a_part_of_a_buffer_is_registered(ground: Ground) -> None:
    begin, nbytes = 5 * PAGE + 516, 3 * PAGE
    with memory(MIB) as (fd, far):
        far[:] = bytes(MIB)
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd, begin, nbytes) as reg,
        ):
            assert reg.nbytes == nbytes
            await ns.read(reg[4 : 4 + 2 * PAGE], offset=PAGE)
        data = original(ground)[PAGE : 3 * PAGE]
        behind = MIB - begin - 4 - len(data)
        assert far[:] == bytes(begin + 4) + data + bytes(behind)


@check()
async def what_arrived_is_seen_from_outside(ground: Ground) -> None:
    """No cache or page of the guest has it: it is in the memory behind the BAR."""
    with memory(MIB) as (fd, _):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            await ns.read(reg, offset=2 * MIB)
        with ground.far_side("peer0").open("rb", buffering=0) as file:
            assert file.read(MIB) == original(ground)[2 * MIB : 3 * MIB]


@check(limit_s=60)
async def a_bar_of_8_gib_is_read_into_at_its_end(ground: Ground) -> None:
    image = original(ground)
    spots = [0, 4 * GIB - MIB, 4 * GIB + PAGE, 6 * GIB + 512, 8 * GIB - MIB]
    with Peer(1) as peer, peer.exported(0, 8 * GIB) as fd:
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            pairs = [(reg[at : at + MIB], n * MIB) for n, at in enumerate(spots)]
            assert await ns.read_many(pairs) == [MIB] * len(spots)
        for n, at in enumerate(spots):
            with peer.memory(
                at // PAGE * PAGE, MIB + (PAGE if at % PAGE else 0)
            ) as far:
                skip = at % PAGE
                assert far[skip : skip + MIB] == image[n * MIB : (n + 1) * MIB], at


@check(limit_s=60)
async def system_memory_of_udmabuf_is_read_into(ground: Ground) -> None:
    if not os.path.exists("/dev/udmabuf"):
        return  # not in Debian's 6.1
    with udmabuf(WINDOW) as (fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            assert reg.placement == "system"
            await read_all(ns, reg, far, original(ground), 4096, MIB)


@check()
async def memory_that_lies_in_the_system_is_told(ground: Ground) -> None:
    with memory(MIB, peers.SYSTEM) as (fd, far):
        async with aiougds.open(node(ground, "nv0")) as ns:
            refusal = await error_in(ns.register_dmabuf(fd, require_peer=True))
            assert isinstance(refusal, aiougds.MemoryLayoutError)
            assert "system memory" in str(refusal)
            del refusal
            async with ns.register_dmabuf(fd) as reg:
                assert reg.placement == "system"
                await ns.read(reg, offset=0)
        assert far[:] == original(ground)[:MIB]


@check()
async def two_controllers_fill_one_buffer(ground: Ground) -> None:
    half = 2 * MIB
    with memory(2 * half) as (fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as one,
            aiougds.open(node(ground, "nv1")) as two,
            one.register_dmabuf(fd) as reg,
        ):
            await reg.map(two.controller)
            for _ in range(4):
                reads = (
                    one.read(reg[:half], offset=MIB),
                    two.read(reg[half:], offset=MIB),
                )
                assert list(await asyncio.gather(*reads)) == [half, half]
            await two.write(reg[:half], offset=32 * MIB)
            await two.read(reg[half:], offset=32 * MIB)
            assert far[half:] == far[:half] == original(ground)[MIB : MIB + half]
            await two.read(reg[half:], offset=MIB)
        assert far[half:] == original(ground, "nv1-1")[MIB : MIB + half]


@check(limit_s=120)
async def cuda_memory_is_read_and_written(ground: Ground) -> None:
    for name in (NEW, OLD):
        with driver(ground, name), memory(WINDOW) as (_, far), Peer(0) as peer:
            async with (
                aiougds.open(node(ground, "nv0")) as ns,
                lowlevel.register_cuda(ns, peer.va, WINDOW) as reg,
            ):
                assert reg.placement == "device"
                assert reg.revocable == (name == OLD)
                await read_all(ns, reg, far, original(ground), 512, MIB)
                await write_all(ns, reg, far, DISK, 512, MIB)


@check()
async def cuda_memory_at_odd_addresses_is_read_into(ground: Ground) -> None:
    begin, nbytes = 3 * 65536 + 516, 2 * MIB + 260
    with driver(ground, NEW), memory(4 * MIB) as (_, far), Peer(0) as peer:
        far[:] = bytes(4 * MIB)
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            lowlevel.register_cuda(ns, peer.va + begin, nbytes) as reg,
        ):
            await ns.read(reg[: 2 * MIB], offset=0)
        behind = 4 * MIB - begin - 2 * MIB
        assert far[:] == bytes(begin) + original(ground)[: 2 * MIB] + bytes(behind)
