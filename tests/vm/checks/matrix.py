"""Every kind of controller that QEMU has: it says what it is, and moves every size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import aiougds
from vm.guest.check import Check, check
from vm.guest.ground import Ground
from vm.guest.leaks import nothing_left
from vm.guest.peer_ground import node

PAGE, KIB, MIB = 4096, 1 << 10, 1 << 20
LIST = PAGE // 8  # entries of a PRP list: a command has one
KEPT = 2 * MIB  # of the disk nothing is written to: it is looked at each time
EDGE = 64
EMPTY = b"\xa5"
# Where memory begins in its page: PRP1 has an offset, and there is one page more.
OFFSETS = (0, 4, 3584)
BATCH = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """A controller of the machine, how it is opened, and what it has to say then."""

    name: str
    mdts: int = 7
    spaces: tuple[int, ...] = (512,)  # bytes of a block; 0: a format that is refused
    mib: int = 24
    pairs: int = 16
    vectors: int = 17
    max_transfer: int = MIB
    shadow: bool = True
    queues: int = 16
    offsets: tuple[int, ...] = OFFSETS[-1:]

    @property
    def title(self) -> str:
        return f"{self.name}_{'shadow' if self.shadow else 'plain'}"

    @property
    def mdts_bytes(self) -> int:
        return PAGE << self.mdts if self.mdts else 0

    @property
    def limit(self) -> int:
        """Bytes of a command: what the device, the caller and a PRP list allow."""
        limits = (self.max_transfer, self.mdts_bytes, LIST * PAGE)
        return min(limit for limit in limits if limit)


KINDS = (
    Kind("nv0", vectors=65, offsets=OFFSETS),
    Kind("nv0", shadow=False, pairs=64, vectors=65, queues=64),
    Kind("large", spaces=(4096,), offsets=OFFSETS),
    Kind("mdts0", mdts=0, max_transfer=8 * MIB, shadow=False, offsets=OFFSETS),
    Kind("mdts1", mdts=1, offsets=OFFSETS),
    Kind("mdts5", mdts=5, shadow=False, offsets=OFFSETS),
    Kind("mdts9", mdts=9, max_transfer=8 * MIB, offsets=OFFSETS),
    Kind("one", pairs=1, vectors=2),
    Kind("two", pairs=2, vectors=3, shadow=False),
    Kind("few", pairs=8, vectors=2, queues=8),
    Kind("few", pairs=8, vectors=2, queues=8, shadow=False),
    Kind("meta", spaces=(0, 512, 4096)),
    Kind("several", spaces=(512, 4096, 512)),
    Kind("cmb", shadow=False),
)


def tells_the_truth(kind: Kind, controller: aiougds.Controller, ground: Ground) -> None:
    found = controller.capabilities
    assert found.transport == "kmod"
    assert found.direct
    assert found.mdts_bytes == kind.mdts_bytes, found
    assert found.max_transfer_bytes == kind.limit, found
    assert found.queue_pairs == kind.pairs, found
    assert found.vectors == kind.vectors, found
    assert found.shadow_doorbells is kind.shadow, found
    assert found.iommu == ("translated" if ground.iommu else "none"), found
    assert controller.info.serial == kind.name
    assert controller.info.page_bytes == PAGE
    assert controller.info.pci_address == ground.address(kind.name)
    assert controller.namespaces() == list(range(1, len(kind.spaces) + 1))


def sizes(block: int, limit: int) -> list[int]:
    """Sizes round one page, two (no list), a whole list, and what a command takes."""
    round_these = [PAGE, 2 * PAGE, limit, 2 * limit]
    if limit <= MIB:
        round_these.append(LIST * PAGE)
    near = {at + by for at in round_these for by in (-block, 0, block)}
    return sorted(size for size in near | {block} if size > 0)


def moved(ns: aiougds.Namespace, kind: Kind) -> Iterator[tuple[int, int, int]]:
    """Return sizes, offsets in memory, and where each goes on the disk."""
    block = ns.lba_bytes
    rng = random.Random(block * kind.limit)
    most = (ns.size - KEPT) // block
    for nbytes in sizes(block, kind.limit):
        for offset in kind.offsets:
            at = rng.randrange(most - nbytes // block + 1) * block
            yield nbytes, offset, KEPT + at


async def moves_every_size(
    ns: aiougds.Namespace, reg: aiougds.Registration, kind: Kind
) -> None:
    """Write, read back beside an edge that stays, with no command more than needed."""
    half = reg.nbytes // 2
    noise = random.Random(ns.nsid).randbytes(MIB) * (half // MIB)
    view = reg.view
    for nbytes, offset, at in moved(ns, kind):
        source = slice(offset, offset + nbytes)
        target = slice(half + PAGE + offset, half + PAGE + offset + nbytes)
        around = slice(target.start - EDGE, target.stop + EDGE)
        view[source] = noise[offset + at % PAGE :][:nbytes]
        view[around] = EMPTY * (nbytes + 2 * EDGE)
        before = ns.controller.statistics().commands
        assert await ns.write(reg[source], offset=at) == nbytes
        assert await ns.read(reg[target], offset=at) == nbytes
        sent = ns.controller.statistics().commands - before
        # Pieces end at the controller's pages or not: one more at the most.
        least = -(-nbytes // kind.limit)
        assert 2 * least <= sent <= 2 * (least + 1), (nbytes, offset, sent)
        edge = EMPTY * EDGE
        wanted = b"".join((edge, view[source], edge))
        assert view[around] == wanted, (nbytes, offset, at)


async def moves_batches(
    ns: aiougds.Namespace, reg: aiougds.Registration, limit: int
) -> None:
    """Many items of many sizes, some of several commands, in every manner."""
    lba = ns.lba_bytes
    lengths = [lba, 2 * PAGE, min(limit, 64 * KIB), min(limit + lba, 68 * KIB)]
    room = 72 * KIB
    half = reg.nbytes // 2
    noise = random.Random(-ns.nsid).randbytes(room * BATCH)
    reg.view[: len(noise)] = noise
    places = [(i * room, lengths[i % 4]) for i in range(BATCH)]
    out = [(reg[at : at + nbytes], KEPT + at) for at, nbytes in places]
    back = [(reg[half + at : half + at + nbytes], KEPT + at) for at, nbytes in places]
    wanted = [nbytes for _, nbytes in places]

    def verify() -> None:
        for at, nbytes in places:
            assert reg.view[half + at : half + at + nbytes] == noise[at : at + nbytes]
        reg.view[half:] = bytes(reg.nbytes - half)

    assert await ns.write_many(out) == wanted
    assert await ns.read_many(back) == wanted
    verify()
    async with ns.batch(BATCH) as batch:
        for own, at in back:
            batch.read(own, offset=at)
        batch.submit()
        items = await batch.harvest(BATCH)
        assert [item for item in items if item.error is not None] == []
    verify()
    done = await asyncio.gather(*(ns.read(own, offset=at) for own, at in back))
    assert done == wanted
    verify()


def is_refused(controller: aiougds.Controller, nsid: int) -> None:
    """A format with metadata; what else the controller has goes on."""
    said = ""
    try:
        controller.namespace(nsid)
    except aiougds.CapabilityError as error:
        said = str(error)
    assert "metadata" in said, said


async def works(kind: Kind, ground: Ground) -> None:
    path = node(ground, kind.name)
    async with aiougds.open_controller(
        path,
        max_transfer=kind.max_transfer,
        shadow_doorbells=kind.shadow,
        queues=kind.queues,
        chunk=1 << 30,  # commands as large as the controller takes them
    ) as controller:
        tells_the_truth(kind, controller, ground)
        for nsid, block in enumerate(kind.spaces, 1):
            if not block:
                is_refused(controller, nsid)
                continue
            ns = controller.namespace(nsid)
            assert (ns.lba_bytes, ns.size) == (block, kind.mib * MIB)
            most = max(sizes(block, kind.limit))
            half = -(-(most + 4 * PAGE) // MIB) * MIB
            async with ns.allocate(2 * max(half, 4 * MIB)) as reg:
                wanted = ground.original(f"{kind.name}-{nsid}", MIB, 64 * KIB)
                assert await ns.read(reg[: 64 * KIB], offset=MIB) == 64 * KIB
                assert reg.view[: 64 * KIB] == wanted
                await moves_every_size(ns, reg, kind)
                await moves_batches(ns, reg, kind.limit)
                await ns.flush()
        stats = controller.statistics()
        assert stats.errors == stats.timeouts == stats.unknown_cids == 0, stats
        assert stats.stragglers <= stats.commands // 8, stats


def one(kind: Kind) -> Check:
    @check(name=f"works_{kind.title}", limit_s=60)
    def it(ground: Ground) -> None:
        with nothing_left():
            asyncio.run(works(kind, ground))

    return it


CHECKS = tuple(one(kind) for kind in KINDS)
