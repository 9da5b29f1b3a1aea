"""Nothing destroys data by accident: what has to hold before a namespace is written.

A namespace that the program itself made is free to write. Any other is looked at
first, and refused when something is found on it; a real device is refused always.
The serial number of the controller, given by the user, overrides both.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Final

from aiougds._address import split_address
from aiougds._signatures import HEAD_BYTES, TAIL_BYTES, Found, Kind, find

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiougds import Namespace

EMBEDDED: Final = "emu:"
_DISK: Final[tuple[Kind, ...]] = ("filesystem", "partition table", "volume", "store")
DISK_KINDS: Final = frozenset(_DISK)
ALL_KINDS: Final = frozenset[Kind]((*_DISK, "file"))
SHOWN: Final = 4


def is_embedded(address: str) -> bool:
    """Whether the address is of an embedded controller."""
    return address.startswith(EMBEDDED)


def embedded_path(address: str) -> str:
    """Return the path of an embedded controller's file; "" where there is none."""
    return split_address(address, (EMBEDDED,)).path if is_embedded(address) else ""


def makes_it(address: str) -> bool:
    """Whether opening the address now would make a new, empty namespace."""
    if not is_embedded(address):
        return False
    path = embedded_path(address)
    if not path:
        return True  # memory, new with each open
    more = glob.glob(glob.escape(path) + ".ns*")  # the other namespaces' files
    return not (os.path.lexists(path) or more)


async def look(ns: Namespace) -> list[Found]:
    """Return what the namespace seems to hold; reads both ends of it."""
    lba = ns.lba_bytes
    head_bytes = min(ns.size, HEAD_BYTES // lba * lba)
    tail_bytes = min(ns.size, TAIL_BYTES // lba * lba)
    async with ns.allocate(max(head_bytes, tail_bytes)) as reg:
        await ns.read(reg[:head_bytes], offset=0)
        head = bytes(reg.view[:head_bytes])
        await ns.read(reg[:tail_bytes], offset=ns.size - tail_bytes)
        tail = bytes(reg.view[:tail_bytes])
    return find(head, tail, ns.size)


async def refusal(
    ns: Namespace,
    address: str,
    *,
    made: bool,
    serial: str | None,
    kinds: Collection[Kind] = DISK_KINDS,
) -> str | None:
    """Return why the namespace is not to be written; None: that is surely meant.

    ``made``: the program made it. ``serial`` is what the user gave; a wrong one is
    refused even where none is needed.
    """
    own = ns.controller.info.serial
    if serial is not None:
        if serial.strip() != own:
            return (
                f"serial={serial!r} is not the serial number of {address}, which is "
                f"{own!r}; nothing was written"
            )
        return None
    if made:
        return None
    found = [item for item in await look(ns) if item.kind in kinds]
    embedded = is_embedded(address)
    if found:
        path = embedded_path(address)
        clear = f"wipefs --all {path}" if embedded else _CLEAR_DEVICE
        return (
            f"namespace {ns.nsid} of {address} holds {words(found)}; nothing was "
            f"written. If that is no longer wanted, clear it ({clear}), or give "
            f"its serial number: serial={own!r}, in a command --serial {own}"
        )
    if not embedded:
        return (
            f"{address} is a real device ({ns.controller.info.model}); nothing was "
            "written. If its data may be overwritten, give its serial number: "
            f"serial={own!r}, in a command --serial {own}"
        )
    return None


_CLEAR_DEVICE: Final = (
    "give the drive back to the kernel's nvme driver and run wipefs --all on it"
)


def words(found: list[Found]) -> str:
    """Tell what was found."""
    told = [
        f"{item.name} ({item.kind}, at byte {item.offset})" for item in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        told.append(f"{len(found) - SHOWN} more")
    return ", ".join(told)
