"""Making a store, and opening one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
)

from aiougds._completion import current_home
from aiougds._errors import OptionError, ReadOnlyError
from aiougds._guard import ALL_KINDS, refusal
from aiougds._namespace import Namespace
from aiougds._open import Opening
from aiougds._options import one_of
from aiougds.store._checksum import compute, kind_of
from aiougds.store._errors import OccupiedError, StoreFormatError
from aiougds.store._layout import BLOCK, MAGIC, Layout, plan, unpack
from aiougds.store._mount import Mount
from aiougds.store._policy import make_policy
from aiougds.store._records import CheckpointHead
from aiougds.store._recovery import read_superblock, recover
from aiougds.store._shard import Shard
from aiougds.store._store import ChunkStore

if TYPE_CHECKING:
    from aiougds._options import IoClass, OpenKeywords
    from aiougds.store._checksum import Checksum
    from aiougds.store._layout import Place, Superblock
    from aiougds.store._policy import Eviction
    from aiougds.store._recovery import Recovered


Devices: TypeAlias = Iterable[str | Namespace]
"""Where a store lies: addresses, or namespaces that are open; striped by key."""

Flush = Literal["put", "lazy"]
_log: Final = logging.getLogger("aiougds.store")
EMPTY_BYTES: Final = 1 << 20  # that are looked at: the journal begins there


class StoreInfo(NamedTuple):
    """What the superblocks of a store say."""

    uuid: str
    """Made when it was formatted."""
    version: int
    """Of the format."""
    key_bytes: int
    """The longest key."""
    devices: tuple[DeviceInfo, ...]
    """In the order of their numbers."""


class DeviceInfo(NamedTuple):
    """One device of a store."""

    address: str
    """Where it was found."""
    bytes: int
    """Bytes that the store uses of it."""
    lba_bytes: int
    """Bytes of a block of the namespace."""
    journal_bytes: int
    """Bytes of the journal."""
    checkpoint_bytes: int
    """Of each of the two regions."""
    classes: tuple[Place, ...]
    """Slots of each size: the longest chunk, what they take, where, how many."""


class StoreKeywords(TypedDict, total=False):
    """Keywords of :func:`open`, which says more of each."""

    create: Layout | None
    """Make a store where there is none."""
    serial: str | None
    """Of a real device that is to be made one."""
    eviction: Eviction | None
    """Who goes when it is full; None: nobody."""
    high: float
    """Share of used slots at which that begins."""
    low: float
    """Share at which it ends."""
    checksum: Checksum | None
    """Of chunks, compared when they are read."""
    flush: Flush
    """When a put is durable."""
    put_class: IoClass | None
    """Class of writes."""
    get_class: IoClass | None
    """Class of reads."""
    open_options: OpenKeywords | None
    """For each device that is opened."""


class _How(NamedTuple):
    create: Layout | None
    serial: str | None
    eviction: Eviction | None
    high: float
    low: float
    checksum: Checksum | None
    flush: Flush
    put_class: IoClass | None
    get_class: IoClass | None


async def format(  # noqa: A001
    devices: Devices,
    layout: Layout,
    *,
    serial: str | None = None,
    open_options: OpenKeywords | None = None,
) -> StoreInfo:
    """Make an empty store on these devices; what is stored there is lost.

    ``layout`` says how each is divided, ``serial`` that it is meant.

    Refused with OccupiedError, and nothing written, where anything known is found: a
    filesystem, partition table, volume, another store, a known kind of file. Refused
    on every real device. The serial number of the controller overrides both.

    Awaits a few writes and Flush on each device. A loss of power leaves no store, or
    this one.
    """
    mount = Mount(current_home())
    try:
        await mount.add(devices, open_options or {})
        for address, ns in mount.namespaces:
            await _guard(ns, address, serial)
        return _told(mount, await _format(mount, layout))
    finally:
        await mount.close()


async def _guard(ns: Namespace, address: str, serial: str | None) -> None:
    if ns.readonly:
        raise ReadOnlyError(f"{address} is read-only, and a store is written")
    why = await refusal(ns, address, made=False, serial=serial, kinds=ALL_KINDS)
    if why is not None:
        raise OccupiedError(why)


async def _refuse_bytes(ns: Namespace, address: str) -> None:
    """Refuse what nobody asked to lose: a store without its superblock, or anything."""
    nbytes = min(EMPTY_BYTES, ns.size // ns.lba_bytes * ns.lba_bytes)
    if not nbytes:
        return  # too small for a store: refused with the reason
    async with ns.allocate(nbytes) as reg:
        await ns.read(reg, offset=0)
        if bytes(reg.view).count(0) == nbytes:
            return
    raise OccupiedError(
        f"{address} is not empty: its first {nbytes >> 10} KiB are not all zero, and "
        "create= makes a store only where there is nothing; if what is there may be "
        "lost, use aiougds.store.format() or `aiougds store format`"
    )


async def _format(mount: Mount, layout: Layout) -> list[Superblock]:
    uuid, members = os.urandom(16), len(mount.namespaces)
    planned = [
        plan(layout, ns.size, ns.lba_bytes, uuid, member, members)
        for member, (_, ns) in enumerate(mount.namespaces)
    ]
    head = CheckpointHead(0, 0, 0, 0, 0).pack(uuid[:8])
    for (_, ns), superblock in zip(mount.namespaces, planned, strict=True):
        async with ns.allocate(BLOCK) as reg:
            # In this order: half of it is no store.
            await ns.write(reg, offset=0, fua=True)
            reg.view[: len(head)] = head
            await ns.write(reg, offset=superblock.checkpoint, fua=True)
    for (_, ns), superblock in zip(mount.namespaces, planned, strict=True):
        async with ns.allocate(BLOCK) as reg:
            reg.view[:] = superblock.pack()
            await ns.write(reg, offset=0, fua=True)
            await ns.flush()
    return planned


def open(  # noqa: A001
    devices: Devices,
    *,
    create: Layout | None = None,
    serial: str | None = None,
    eviction: Eviction | None = "lru",
    high: float = 0.95,
    low: float = 0.85,
    checksum: Checksum | None = None,
    flush: Flush = "put",
    put_class: IoClass | None = None,
    get_class: IoClass | None = "normal",
    open_options: OpenKeywords | None = None,
) -> Opening[ChunkStore]:
    """Open a store: ``await`` it, or use ``async with``.

    ``devices`` are addresses, which it opens with ``open_options`` and closes, and
    open namespaces, which stay open; all devices of the store, in any order. With
    ``create``, devices that hold nothing at all are formatted first (a real device
    needs its ``serial`` for that); OccupiedError where their first MiB is not zeros.

    ``eviction`` is ``lru``, ``arc``, or None: a put without room is a StoreFullError.
    When a put takes the last of ``high`` (a share of the slots of one size on one
    device), chunks go until ``low`` is reached. ``checksum`` is of chunks that are put
    from now on (``crc32c`` or ``xxh3``, from ``pip install 'aiougds[store]'``); those
    that have one are verified by every get. With ``flush="put"`` a put returns when it
    is durable, with ``"lazy"`` when it can be read: it is durable after ``flush()``,
    ``aclose()``, or 64 puts later. ``put_class`` and ``get_class`` are of the
    scheduler; without the first, puts are of the background class while chunks are
    being read, so that reads go before writes, else of the normal one.

    Reads checkpoint and journal, and builds the index in memory. Raises
    StoreFormatError for what is no store, of another version, or not all of one,
    BusyError where a store of this process has the device, and what
    :func:`aiougds.open` raises: AddressInUseError where another process has it.
    """
    how = _How(
        create, serial, eviction, high, low, checksum, flush, put_class, get_class
    )
    return Opening(lambda: _open(devices, how, open_options or {}))


def _check(how: _How) -> int:
    """Check what can be checked without a device; return the kind of checksum."""
    one_of("flush", how.flush, ("put", "lazy"))
    make_policy(how.eviction, 1)
    shares = all(isinstance(share, (int, float)) for share in (how.low, how.high))
    if not shares or not 0 < how.low <= how.high <= 1:
        raise OptionError(
            f"low={how.low!r}, high={how.high!r}: watermarks are shares of the slots, "
            "0 < low <= high <= 1"
        )
    if how.create is not None and not isinstance(how.create, Layout):
        raise OptionError(f"create={how.create!r}: give a Layout, or None")
    kind = kind_of(how.checksum)
    if kind:
        compute(kind)
    return kind


async def _open(devices: Devices, how: _How, options: OpenKeywords) -> ChunkStore:
    began = time.monotonic()
    kind = _check(how)
    mount = Mount(current_home())
    try:
        await mount.add(devices, options)
        superblocks = await superblocks_of(mount, how.create, how.serial)
        recovered: list[Recovered] = []
        for (_, ns), superblock in zip(mount.namespaces, superblocks, strict=True):
            if ns.readonly:
                raise ReadOnlyError(f"{ns!r} is read-only, and a store is written")
            found = await recover(ns, superblock, how.eviction, how.high, how.low)
            if found.damaged is not None:
                _log.warning(
                    "%s; the one before it was used, and nothing is lost", found.damaged
                )
            recovered.append(found)
        store = ChunkStore(
            mount, durable=how.flush == "put", took_s=time.monotonic() - began
        )
        shards: list[Shard] = []
        for (_, ns), superblock, found in zip(
            mount.namespaces, superblocks, recovered, strict=True
        ):
            disk = await mount.disk(ns, superblock, how.put_class, how.get_class)
            buffers = await mount.buffers(ns, superblock)
            shards.append(Shard(disk, found, kind, store.tell, *buffers))
        shards.sort(key=lambda shard: shard.disk.superblock.member)
        store.begin(shards)
    except BaseException:
        await mount.close()
        raise
    return store


async def superblocks_of(
    mount: Mount, create: Layout | None, serial: str | None
) -> list[Superblock]:
    """Return those of all devices of a store, which may be made first."""
    blocks = [await read_superblock(ns) for _, ns in mount.namespaces]
    if create is not None and not any(block[:8] == MAGIC for block in blocks):
        for address, ns in mount.namespaces:
            # A serial number is no leave to overwrite here, only to write at all.
            await _guard(ns, address, None if address.startswith("emu:") else serial)
            await _refuse_bytes(ns, address)
        return await _format(mount, create)
    found = [
        unpack(block, address)
        for block, (address, _) in zip(blocks, mount.namespaces, strict=True)
    ]
    first = found[0]
    if any(one.uuid != first.uuid for one in found):
        raise StoreFormatError(
            "the devices are of different stores: "
            + ", ".join(
                f"{address} of {one.uuid.hex()}"
                for one, (address, _) in zip(found, mount.namespaces, strict=True)
            )
        )
    if sorted(one.member for one in found) != list(range(first.members)):
        raise StoreFormatError(
            f"the store has {first.members} devices, and {len(found)} of them were "
            "given; give all of them, each once"
        )
    for one, (address, ns) in zip(found, mount.namespaces, strict=True):
        if ns.size < one.size or ns.lba_bytes != one.lba_bytes:
            raise StoreFormatError(
                f"{address} has {ns.size} bytes in blocks of {ns.lba_bytes}, and its "
                f"store was made for {one.size} in blocks of {one.lba_bytes}"
            )
    return found


async def info(
    devices: Devices, *, open_options: OpenKeywords | None = None
) -> StoreInfo:
    """Tell what the superblocks of a store say; writes nothing."""
    mount = Mount(current_home())
    try:
        await mount.add(devices, {"readonly": True, **(open_options or {})})
        return _told(mount, await superblocks_of(mount, None, None))
    finally:
        await mount.close()


def _told(mount: Mount, superblocks: list[Superblock]) -> StoreInfo:
    from aiougds.store._layout import VERSION

    devices = [
        DeviceInfo(
            address,
            one.size,
            one.lba_bytes,
            one.journal_blocks * BLOCK,
            one.checkpoint_bytes,
            one.places,
        )
        for one, (address, _) in zip(superblocks, mount.namespaces, strict=True)
    ]
    first = superblocks[0]
    return StoreInfo(first.uuid.hex(), VERSION, first.key_bytes, tuple(devices))
