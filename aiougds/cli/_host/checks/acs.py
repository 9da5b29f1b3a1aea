"""Access Control Services: bridges that send peer traffic up to the root complex."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiougds.cli._host.functions import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiougds.cli._host.system import System

EXTENDED: Final = 0x100  # where extended capabilities begin in config space
ACS: Final = 0x000D
REDIRECT: Final = 0x04 | 0x08  # P2P request redirect, P2P completion redirect
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def redirecting(system: System, address: str) -> list[str]:
    """Return bridges above a function that redirect; only root sees their registers."""
    above = system.follow(f"{DEVICES}/{address}").split("/")[:-1]
    return [
        bridge
        for bridge in above
        if _ADDRESS.fullmatch(bridge)
        and _control(system.data(f"{DEVICES}/{bridge}/config") or b"") & REDIRECT
    ]


def _control(space: bytes) -> int:
    for kind, offset in _capabilities(space):
        if kind == ACS:
            return int.from_bytes(space[offset + 6 : offset + 8], "little")
    return 0


def _capabilities(space: bytes) -> Iterator[tuple[int, int]]:
    offset, seen = EXTENDED, set[int]()
    while EXTENDED <= offset <= len(space) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(space[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = header >> 20 & 0xFFC
