"""A peer's memory that is taken away while blocks are read into it."""

from __future__ import annotations

import asyncio
import errno
import mmap
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import aiougds
from aiougds import lowlevel
from vm.checks.cuda import OLD, driver
from vm.guest import peers
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import MIB, node
from vm.guest.peers import Peer
from vm.guest.transfers import error_in

CHUNK = 64 << 10
BUSY = 100  # operations that have ended before the memory is taken away
Lost = aiougds.MemoryRevokedError
CANARY = b"\x5a" * MIB


@contextmanager
def exported(how: int = 0) -> Generator[tuple[Peer, int, mmap.mmap]]:
    """Give a peer, a dma-buf of it, and its far side; all importers must have gone."""
    with Peer(0) as peer:
        with peer.exported(0, MIB, how) as fd, mmap.mmap(fd, MIB) as far:
            yield peer, fd, far
        info = peer.info()
        assert info.idle, info
        assert not info.exports, info


class Load:
    """Reads into a memory as fast as it can be done, in three ways, until they fail."""

    def __init__(self, ns: aiougds.Namespace, reg: aiougds.Registration) -> None:
        self.ns, self.reg = ns, reg
        self.done = 0
        self.busy = asyncio.Event()
        self.errors: list[aiougds.UGDSError] = []

    def count(self, n: int) -> None:
        self.done += n
        if self.done >= BUSY:
            self.busy.set()

    async def single(self, index: int) -> None:
        own = self.reg[index * CHUNK : (index + 1) * CHUNK]
        while True:
            await self.ns.read(own, offset=index * CHUNK)
            self.count(1)

    async def many(self) -> None:
        pairs = [(self.reg[at : at + 4096], at) for at in range(MIB // 2, MIB, 4096)]
        while True:
            await self.ns.read_many(pairs)
            self.count(1)

    async def batch(self) -> None:
        async with self.ns.batch(32) as batch:
            while True:
                for at in range(0, MIB // 2, MIB // 64):
                    batch.read(self.reg[at : at + 512], offset=at)
                batch.submit()
                for item in await batch.harvest(32):
                    if item.error is not None:
                        raise item.error
                self.count(1)

    async def until_it_fails(self, work: asyncio.Task[None]) -> None:
        try:
            await work
        except aiougds.BatchError as group:
            self.errors += (
                e for e in group.exceptions if isinstance(e, aiougds.UGDSError)
            )
        except aiougds.UGDSError as error:
            self.errors.append(error)


@asynccontextmanager
async def load_on(
    ns: aiougds.Namespace, reg: aiougds.Registration
) -> AsyncGenerator[Load]:
    """Have the memory read into; leaving waits until all of it has failed."""
    load = Load(ns, reg)
    works = [*(load.single(n) for n in range(8)), load.many(), load.batch()]
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        tasks = [
            group.create_task(load.until_it_fails(asyncio.create_task(work)))
            for work in works
        ]
        await load.busy.wait()
        yield load
        await asyncio.wait(tasks)
    assert len(load.errors) >= len(works)
    strange = [error for error in load.errors if not isinstance(error, Lost)]
    assert not strange, strange


async def nothing_arrives(far: mmap.mmap) -> None:
    """Whoever has the memory now finds what they put there."""
    await asyncio.sleep(0.2)  # QEMU ends what it had begun, whatever the bus says
    far[:] = CANARY
    await asyncio.sleep(0.5)
    assert far[:] == CANARY


async def works_again(ns: aiougds.Namespace, reg: aiougds.Registration) -> None:
    """After a reset the controller works, and the memory that went stays away."""
    assert isinstance(await error_in(ns.read(reg[:512], offset=0)), Lost)
    await ns.controller.reset()
    assert isinstance(await error_in(ns.read(reg[:512], offset=0)), Lost)
    async with ns.allocate(4096) as host:
        assert await ns.read(host, offset=4096) == 4096
    await reg.aclose()


async def taken(
    ground: Ground, take: Callable[[Peer, int], object], again: bool
) -> None:
    """Take the memory away under load; ``again``: it can be mapped anew."""
    with exported() as (peer, fd, far):
        async with aiougds.open(node(ground, "nv0")) as ns:
            reg = await ns.register_dmabuf(fd)
            async with load_on(ns, reg):
                await asyncio.to_thread(take, peer, fd)
            await nothing_arrives(far)
            await works_again(ns, reg)
            if again:
                async with ns.register_dmabuf(fd) as new:
                    await ns.read(new, offset=MIB)
                    assert far[:] == ground.original("nv0-1", MIB, MIB)


@check(limit_s=60)
async def memory_is_moved_while_it_is_read_into(ground: Ground) -> None:
    for _ in range(3):
        await taken(ground, lambda peer, fd: peer.revoke(fd), again=True)


@check(limit_s=60)
async def an_exporter_goes_while_its_memory_is_read_into(ground: Ground) -> None:
    await taken(ground, lambda peer, _: peer.gone(), again=False)


@check(limit_s=60)
async def a_peer_is_unbound_while_it_is_read_into(ground: Ground) -> None:
    with exported() as (_, fd, _):
        async with aiougds.open(node(ground, "nv0")) as ns:
            reg = await ns.register_dmabuf(fd)
            async with load_on(ns, reg):
                await asyncio.to_thread(ground.release, "peer0")
            await works_again(ns, reg)
    ground.bind("peer0", "peerbar")


@check(limit_s=60)
async def cuda_memory_is_freed_while_it_is_read_into(ground: Ground) -> None:
    with driver(ground, OLD) as nv, exported() as (peer, _, far):
        async with aiougds.open(node(ground, "nv0")) as ns:
            reg = await lowlevel.register_cuda(ns, peer.va, MIB)
            async with load_on(ns, reg):
                assert await asyncio.to_thread(nv.free, peer.va, MIB) == 1
            await nothing_arrives(far)
            await works_again(ns, reg)


@check(limit_s=60)
async def two_controllers_lose_one_memory(ground: Ground) -> None:
    with exported() as (peer, fd, far):
        async with (
            aiougds.open(node(ground, "nv0")) as one,
            aiougds.open(node(ground, "nv1")) as two,
        ):
            reg = await one.register_dmabuf(fd)
            await reg.map(two.controller)
            async with load_on(one, reg), load_on(two, reg):
                await asyncio.to_thread(peer.revoke, fd)
            await nothing_arrives(far)
            await asyncio.gather(one.controller.reset(), two.controller.reset())
            for ns in (one, two):
                assert isinstance(await error_in(ns.read(reg[:512], offset=0)), Lost)
            await reg.aclose()
            async with one.register_dmabuf(fd) as new:
                await new.map(two.controller)
                await two.read(new, offset=0)
                assert far[:] == ground.original("nv1-1", 0, MIB)


@check(limit_s=60)
async def a_program_ends_without_a_reset(ground: Ground) -> None:
    with exported() as (peer, fd, _):
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
            load_on(ns, reg),
        ):
            await asyncio.to_thread(peer.revoke, fd)
        async with (
            aiougds.open(node(ground, "nv0")) as ns,
            ns.register_dmabuf(fd) as reg,
        ):
            assert await ns.read(reg, offset=0) == MIB


@check(limit_s=60)
async def commands_that_the_device_holds_end_with_the_memory(ground: Ground) -> None:
    """They are not waited for: the device was cut off."""
    with exported() as (peer, fd, far):
        async with aiougds.open(node(ground, "nv1")) as ns:
            reg = await ns.register_dmabuf(fd)
            await ns.read(reg, offset=0)
            ground.qmp.throttle("nv1-1", 1)
            try:
                reads = [
                    asyncio.create_task(error_in(ns.read(reg[at : at + 512], offset=0)))
                    for at in range(0, 32 * 512, 512)
                ]
                await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                began = time.monotonic()
                await asyncio.to_thread(peer.revoke, fd)
                ended = await asyncio.gather(*reads)
                assert time.monotonic() - began < 5
                assert sum(isinstance(error, Lost) for error in ended) >= 16, ended
            finally:
                ground.qmp.throttle("nv1-1", 0)
            await nothing_arrives(far)
            await works_again(ns, reg)


@check(limit_s=60)
async def a_fence_that_never_signals_is_not_awaited_for_ever(ground: Ground) -> None:
    with exported(peers.FENCE) as (peer, fd, _):
        async with aiougds.open(node(ground, "nv0")) as ns, ns.allocate(4096) as host:
            began = time.monotonic()
            waiting = asyncio.create_task(error_in(ns.register_dmabuf(fd)))
            # The loop and the controller go on meanwhile.
            turns = 0
            while not waiting.done():
                await ns.read(host, offset=0)
                turns += 1
            error = await waiting
            assert isinstance(error, aiougds.OperationTimeoutError), error
            assert 4 < time.monotonic() - began < 15
            assert turns > 50, turns
            peer.signal(fd)
            async with ns.register_dmabuf(fd) as reg:
                await ns.read(reg, offset=0)
            del waiting, error


@check(limit_s=60)
async def exporters_that_are_wrong_are_refused_in_words(ground: Ground) -> None:
    wrong = (
        (peers.MISALIGNED, aiougds.MemoryLayoutError, errno.EINVAL),
        (peers.SHORT, aiougds.MemoryLayoutError, errno.EFAULT),
        (peers.PIN_FAILS, aiougds.MemoryLayoutError, errno.EBUSY),
        (peers.MAP_FAILS, aiougds.MemoryLayoutError, errno.EFAULT),
    )
    async with aiougds.open(node(ground, "nv0")) as ns:
        for how, kind, code in wrong:
            with exported(how) as (_, fd, _):
                error = await error_in(ns.register_dmabuf(fd))
                assert isinstance(error, kind), (how, error)
                assert error.errno == code, (how, error)
                assert "dma-buf" in str(error)
                del error
