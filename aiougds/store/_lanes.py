"""Parts of a call that overlap: one is at the device while another is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from aiougds._errors import UGDSError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

Part = TypeVar("Part")
Item = TypeVar("Item")
PART_BYTES: Final = 8 << 20  # some 10 ms of a disk, some 1 ms of a checksum


def parts_of(
    items: Sequence[Item], nbytes: Iterable[int], *, most: int, most_bytes: int | None
) -> list[Sequence[Item]]:
    """Divide items into parts of so many, and of so many bytes or one item."""
    parts: list[Sequence[Item]] = []
    first = total = 0
    for index, one in enumerate(nbytes):
        over = most_bytes is not None and total + one > most_bytes
        if index > first and (over or index - first == most):
            parts.append(items[first:index])
            first, total = index, 0
        total += one
    parts.append(items[first:])
    return parts


async def in_lanes(
    parts: Sequence[Part], work: Callable[[Part], Awaitable[None]]
) -> None:
    """Do it for each part, for two of them at a time.

    After a failure no further part begins; it is raised when those under way ended.
    """
    if len(parts) == 1:
        await work(parts[0])
        return
    todo = iter(parts)
    failures: list[UGDSError] = []

    async def lane() -> None:
        for part in todo:
            try:
                await work(part)
            except UGDSError as error:
                failures.append(error.with_traceback(None))
            if failures:
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane)
        tasks.start_soon(lane)
    if failures:
        raise failures[0]
