"""Looking whether a store is what it says: index, slot headers, checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds._completion import current_home
from aiougds.store._checksum import compute, seed
from aiougds.store._layout import BLOCK
from aiougds.store._mount import Mount
from aiougds.store._open import superblocks_of
from aiougds.store._records import read_header, tail_fits
from aiougds.store._recovery import recover

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds._namespace import Namespace
    from aiougds._options import OpenKeywords
    from aiougds._registration import Registration
    from aiougds.store._slots import Pool, Slots

AT_ONCE: Final = 256  # headers of one submission


class CheckReport(NamedTuple):
    """What a check has found."""

    chunks: int
    """Chunks in the index."""
    nbytes: int
    """Bytes of them."""
    verified: int
    """Chunks whose bytes were read and compared with their checksum."""
    replayed: int
    """Records of the journal behind the last checkpoint."""
    problems: tuple[str, ...]
    """One sentence for each; none: all is well."""


async def check(
    devices: Iterable[str | Namespace],
    *,
    data: bool = False,
    open_options: OpenKeywords | None = None,
) -> CheckReport:
    """Compare the index of a store with its slots; writes nothing.

    Reads checkpoint and journal, and the header of each slot that holds a chunk; with
    ``data`` also the chunks that have a checksum. Raises StoreFormatError for what
    keeps it from being opened.
    """
    mount = Mount(current_home())
    problems: list[str] = []
    chunks = nbytes = verified = replayed = 0
    try:
        await mount.add(devices, {"readonly": True, **(open_options or {})})
        superblocks = await superblocks_of(mount, None, None)
        for (address, ns), superblock in zip(
            mount.namespaces, superblocks, strict=True
        ):
            found = await recover(ns, superblock, None, 1.0, 1.0)
            chunks += len(found.slots.index)
            nbytes += found.slots.used_bytes
            replayed += found.replayed
            if found.damaged is not None:
                problems.append(f"{found.damaged}; the one before it was used")
            problems += [f"{address}: {one}" for one in await _headers(ns, found.slots)]
            if data:
                count, wrong = await _data(ns, found.slots)
                verified += count
                problems += [f"{address}: {one}" for one in wrong]
    finally:
        await mount.close()
    return CheckReport(chunks, nbytes, verified, replayed, tuple(problems))


async def _headers(ns: Namespace, slots: Slots) -> list[str]:
    problems: list[str] = []
    columns = slots.columns
    live = sorted(slots.index.values())
    async with ns.allocate(AT_ONCE * BLOCK) as reg:
        for first in range(0, len(live), AT_ONCE):
            part = live[first : first + AT_ONCE]
            await ns.read_many(
                [
                    (reg[i * BLOCK : (i + 1) * BLOCK], slots.pool_of(slot).at(slot))
                    for i, slot in enumerate(part)
                ]
            )
            for i, slot in enumerate(part):
                header = read_header(reg.view[i * BLOCK : (i + 1) * BLOCK])
                key = columns.keys[slot]
                if header is None:
                    problems.append(f"slot {slot} of {key!r}: its header is damaged")
                elif (
                    header.key,
                    header.generation,
                    header.length,
                    header.checksum,
                    header.kind,
                ) != (
                    key,
                    columns.gens[slot],
                    columns.lengths[slot],
                    columns.sums[slot],
                    columns.kinds[slot],
                ):
                    problems.append(
                        f"slot {slot} of {key!r}: its header is of another chunk, "
                        f"{header.key!r} of {header.length} bytes"
                    )
    return problems


async def _data(ns: Namespace, slots: Slots) -> tuple[int, list[str]]:
    problems: list[str] = []
    columns, count = slots.columns, 0
    most = max(pool.slot_bytes for pool in slots.pools)
    async with ns.allocate(-(-most // BLOCK) * BLOCK + 2 * BLOCK) as reg:
        for slot in sorted(slots.index.values()):
            kind = columns.kinds[slot]
            if kind:
                count += 1
                length, key = columns.lengths[slot], columns.keys[slot]
                await _read(ns, slots.pool_of(slot), slot, length, key, reg)
                first = seed(key, columns.gens[slot])
                found = compute(kind)(reg.view[BLOCK : BLOCK + length], first)
                if found != columns.sums[slot]:
                    problems.append(f"slot {slot} of {key!r}: its checksum is wrong")
    return count, problems


async def _read(
    ns: Namespace, pool: Pool, slot: int, length: int, key: bytes, reg: Registration
) -> None:
    """Read a chunk's header and behind it all of its bytes."""
    lba, at = ns.lba_bytes, pool.at(slot)
    tail = length % lba
    blocks = length - tail
    in_header = tail and tail_fits(key, tail)
    if tail and not in_header:
        blocks += lba
    await ns.read(reg[: BLOCK + blocks], offset=at)
    if in_header:
        view = reg.view
        view[BLOCK + blocks : BLOCK + length] = view[BLOCK - tail : BLOCK]
