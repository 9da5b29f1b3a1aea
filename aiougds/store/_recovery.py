"""What a device holds: the last whole checkpoint, and the journal after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds.store._errors import StoreFormatError
from aiougds.store._layout import BLOCK, page_most
from aiougds.store._records import (
    block_head,
    checkpoint_head,
    load_page,
    page_bytes,
    replay_block,
)
from aiougds.store._slots import Slots

if TYPE_CHECKING:
    from aiougds._namespace import Namespace
    from aiougds._registration import Registration
    from aiougds.store._layout import Superblock
    from aiougds.store._policy import Eviction
    from aiougds.store._records import CheckpointHead

CHUNK: Final = 4 << 20
BREATHE: Final = 16  # pages, or hundreds of blocks: a turn of the loop in between


class Recovered(NamedTuple):
    """What is known of a device once it was read."""

    slots: Slots
    head: int
    """The sequence of the journal's next block."""
    epoch: int
    """Of this opening: above that of every block in the journal."""
    checkpoint: CheckpointHead
    replayed: int
    """Records of the journal that were replayed."""
    damaged: str | None
    """What is wrong with the last checkpoint, where the one before it was used."""


async def read_superblock(ns: Namespace) -> bytes:
    """Read the block that tells whether there is a store."""
    if ns.size < BLOCK or BLOCK % ns.lba_bytes:
        return bytes(BLOCK)
    async with ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        return bytes(reg.view)


async def recover(
    ns: Namespace,
    superblock: Superblock,
    eviction: Eviction | None,
    high: float,
    low: float,
) -> Recovered:
    """Read checkpoint and journal, and build the index in memory."""
    store = superblock.uuid[:8]
    damaged: StoreFormatError | None = None
    async with ns.allocate(CHUNK + page_most(superblock.key_bytes)) as reg:
        heads: list[CheckpointHead] = []
        for odd in range(2):
            at = superblock.checkpoint + odd * superblock.checkpoint_bytes
            await ns.read(reg[:BLOCK], offset=at)
            head = checkpoint_head(reg.view[:BLOCK], store)
            if head is not None and head.number % 2 == odd:
                heads.append(head)
        if not heads:
            raise StoreFormatError(
                f"both checkpoints of the store on {ns!r} are damaged; format it anew"
            )
        heads.sort(key=lambda head: -head.number)
        last, slots = heads[0], Slots(superblock, eviction, high, low)
        try:
            await _load_pages(ns, superblock, last, slots, reg)
        except StoreFormatError as error:
            if len(heads) == 1:
                raise
            # The one before it, and all of the journal since, say the same.
            damaged = error.with_traceback(None)
            last, slots = heads[1], Slots(superblock, eviction, high, low)
            await _load_pages(ns, superblock, last, slots, reg)
        head_seq, epoch, replayed = await _replay(
            ns, superblock, last, slots, reg, heads[0].replay_from
        )
    slots.settle()
    epoch = max(epoch, heads[0].epoch)
    return Recovered(
        slots,
        head_seq,
        epoch + 1,
        last,
        replayed,
        None if damaged is None else str(damaged),
    )


async def _load_pages(
    ns: Namespace,
    superblock: Superblock,
    head: CheckpointHead,
    slots: Slots,
    reg: Registration,
) -> None:
    store = superblock.uuid[:8]
    at = superblock.checkpoint + head.number % 2 * superblock.checkpoint_bytes + BLOCK
    end = at + head.nbytes
    view = reg.view
    left, start, pages = 0, 0, 0
    while pages < head.pages:
        size = page_bytes(view[start:]) if left >= BLOCK else 0
        if left < BLOCK or size > left:
            # Keep the part of a page that is there, and read on behind it.
            if at >= end:
                break
            view[:left] = bytes(view[start : start + left])
            more = min(CHUNK, end - at)
            await ns.read(reg[left : left + more], offset=at)
            at += more
            start, left = 0, left + more
            continue
        size = (
            load_page(view[start : start + left], store, head.number, slots.columns)
            or 0
        )
        if not size:
            break
        size = -(-size // BLOCK) * BLOCK
        start += size
        left -= size
        pages += 1
    if pages < head.pages:
        raise StoreFormatError(
            f"page {pages} of checkpoint {head.number} of the store on {ns!r} is "
            "damaged"
        )


async def _replay(
    ns: Namespace,
    superblock: Superblock,
    head: CheckpointHead,
    slots: Slots,
    reg: Registration,
    least: int,
) -> tuple[int, int, int]:
    """Replay the journal; returns its next sequence, its last epoch, and records.

    It ends where the sequence breaks, and where the epoch goes back: a block that an
    earlier opening has left behind is never taken for one that came after. Raises
    StoreFormatError when a part of what came after the checkpoint is gone: the ring
    went on beyond it, or ends before ``least``.
    """
    store, ring = superblock.uuid[:8], superblock.journal_blocks
    seq, epoch, replayed = head.replay_from, 0, 0
    newest = head.epoch
    farthest = 0
    running = True
    place = seq % ring
    spans = [(place, ring), (0, place)]
    view = reg.view
    for first, last in spans:
        while first < last:
            count = min(CHUNK // BLOCK, last - first)
            at = superblock.journal + first * BLOCK
            await ns.read(reg[: count * BLOCK], offset=at)
            for i in range(count):
                block = view[i * BLOCK : (i + 1) * BLOCK]
                found = block_head(block, store)
                if found is None:
                    running = False
                    continue
                newest = max(newest, found.epoch)
                farthest = max(farthest, found.seq)
                running = running and found.seq == seq and found.epoch >= epoch
                if running:
                    replay_block(block, found.records, slots.columns)
                    seq, epoch = seq + 1, found.epoch
                    replayed += found.records
            first += count
    if farthest >= head.replay_from + ring or seq < least:
        raise StoreFormatError(
            f"the last checkpoint of the store on {ns!r} is damaged, and checkpoint "
            f"{head.number} before it is no help: of the journal since then (block "
            f"{head.replay_from} and on) a part is overwritten or damaged as well. "
            "Chunks that are there cannot be told from those that are not; format it "
            "anew"
        )
    return seq, newest, replayed
