"""What has to hold before a command writes to a namespace; see aiougds/_guard.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds._guard import (
    ALL_KINDS,
    DISK_KINDS,
    embedded_path,
    is_embedded,
    look,
    makes_it,
    refusal,
)
from aiougds.cli._failures import RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiougds import Namespace
    from aiougds._signatures import Kind

__all__ = [
    "ALL_KINDS",
    "DISK_KINDS",
    "embedded_path",
    "guard",
    "is_embedded",
    "look",
    "makes_it",
]


async def guard(
    ns: Namespace,
    address: str,
    *,
    made: bool,
    serial: str | None,
    kinds: Collection[Kind] = DISK_KINDS,
) -> None:
    """Raise RefusedError unless writing to the namespace is surely meant."""
    why = await refusal(ns, address, made=made, serial=serial, kinds=kinds)
    if why is not None:
        raise RefusedError(why)
