"""The devices of a store while it is open: what was opened, what is closed again."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

import aiougds._open
from aiougds._errors import (
    BrokenError,
    BusyError,
    CapabilityError,
    ControllerBusyError,
    OptionError,
)
from aiougds._namespace import Namespace
from aiougds.store._checkpoint import AT_ONCE
from aiougds.store._disk import BLOCKS, Disk
from aiougds.store._errors import StoreError
from aiougds.store._journal import MOST_BLOCKS
from aiougds.store._layout import BLOCK, page_most

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiougds._home import Home
    from aiougds._options import IoClass, OpenKeywords
    from aiougds._registration import Registration
    from aiougds._transfer import Clock
    from aiougds.store._layout import Superblock
    from aiougds.store._shard import Shard

# One store at a time uses a namespace: its lock is of the process, not of the store.
Claim = tuple[int, int, int, int]  # controller, namespace, first byte, behind the last
_in_use: Final[set[Claim]] = set()


def _overlap(one: Claim, other: Claim) -> bool:
    return one[:2] == other[:2] and one[2] < other[3] and other[2] < one[3]


class Mount:
    """Namespaces, handles and memory of one store."""

    __slots__ = ("_claims", "_handles", "_memory", "_owned", "home", "namespaces")

    def __init__(self, home: Home) -> None:
        if sys.byteorder != "little":
            raise CapabilityError(
                "the store's format is little-endian, and so is what reads it"
            )
        self.home = home
        self.namespaces: list[tuple[str, Namespace]] = []
        self._owned: list[Namespace] = []
        self._handles: list[Namespace] = []
        self._memory: list[Registration] = []
        self._claims: list[Claim] = []

    async def add(
        self, devices: Iterable[str | Namespace], options: OpenKeywords
    ) -> None:
        """Open what is an address; take what is a namespace."""
        if isinstance(devices, (str, Namespace)):
            devices = [devices]
        for device in devices:
            if isinstance(device, Namespace):
                ns, address = device, device._device.address
                ns._checked()
            elif isinstance(device, str):
                address = device
                ns = await aiougds._open.open(device, **options)
                self._owned.append(ns)
            else:
                raise OptionError(
                    f"{device!r}: a device of a store is an address or a Namespace"
                )
            claim = (id(ns._device), ns.nsid, ns._base, ns._base + ns.size)
            if any(_overlap(claim, other) for other in _in_use):
                raise BusyError(
                    f"a store of this process uses namespace {ns.nsid} of {address} "
                    "already, or a part of it; close that first"
                )
            _in_use.add(claim)
            self._claims.append(claim)
            self.namespaces.append((address, ns))
        if not self.namespaces:
            raise OptionError("a store is on one device at least, and none was given")

    def using(self, ns: Namespace, io_class: IoClass | None = None) -> Namespace:
        """Return a handle of our own."""
        handle = ns.using(io_class=io_class)
        self._handles.append(handle)
        return handle

    async def disk(
        self,
        ns: Namespace,
        superblock: Superblock,
        put_class: IoClass | None,
        get_class: IoClass | None,
    ) -> Disk:
        """Prepare a device for puts and gets."""
        arena = await self.allocate(ns, BLOCKS * BLOCK)
        return Disk(
            self.using(ns),
            self.using(ns, put_class or "normal"),
            self.using(ns, put_class or "background"),
            self.using(ns, get_class),
            superblock,
            arena,
            self.home,
        )

    async def buffers(
        self, ns: Namespace, superblock: Superblock
    ) -> tuple[Registration, Registration]:
        """Return memory to write the journal from, and pages of checkpoints."""
        return (
            await self.allocate(ns, MOST_BLOCKS * BLOCK),
            await self.allocate(ns, AT_ONCE * page_most(superblock.key_bytes)),
        )

    async def allocate(self, ns: Namespace, nbytes: int) -> Registration:
        """Return registered memory that lives as long as this."""
        memory = await ns.allocate(nbytes)
        self._memory.append(memory)
        return memory

    async def end(self, shards: list[Shard], clock: Clock) -> None:
        """Make everything durable, and close."""
        try:
            for shard in shards:
                # What a device takes no more is left as after a loss of power.
                with suppress(BrokenError, StoreError):
                    await shard.journal.end(clock)
        finally:
            for shard in shards:
                shard.close()
                self._memory += shard.disk.extra
            await self.close()

    async def close(self) -> None:
        """Give everything back; what the device may still touch, when it is done.

        Cancelled, too: nobody else would.
        """
        with anyio.CancelScope(shield=True):
            await self._close()

    async def _close(self) -> None:
        busy: ControllerBusyError | None = None
        for memory in self._memory:
            await memory.abandon_off_loop()
        for handle in self._handles:
            with suppress(ControllerBusyError):  # the controller closes it later
                await handle.aclose(timeout_s=0)
        for claim in self._claims:
            _in_use.discard(claim)
        for ns in self._owned:
            try:
                await ns.aclose()
            except ControllerBusyError as error:
                ns._device.linger()
                busy = error
        self._memory.clear()
        self._handles.clear()
        self._claims.clear()
        self._owned.clear()
        if busy is not None:
            raise busy
