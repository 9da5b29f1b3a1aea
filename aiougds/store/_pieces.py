"""Long transfers in pieces of a command each, one chunk behind the other.

Operations of several commands take turns at the device, so that none waits for a long
one. Within one call nobody gains by that, and what lies behind the device, a disk with
readahead or a cache that is written out, does best with one chunk behind the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiougds._pinned import PinnedMemory, RegistrationSlice

    Requests = list[tuple[PinnedMemory | RegistrationSlice, int]]


def in_pieces(requests: Requests, most: int) -> Requests:
    """Divide transfers that are longer than a command."""
    if all(memory.nbytes <= most for memory, _ in requests):
        return requests
    return [
        (memory[start : start + most], at + start)
        for memory, at in requests
        for start in range(0, memory.nbytes, most)
    ]


def equal_pieces(nbytes: int, most: int, lba: int) -> int:
    """Return how many pieces of the same whole blocks it makes; 1: none that are."""
    least = -(-nbytes // most)
    for count in range(least, 2 * least):
        if not nbytes % (count * lba):
            return count
    return 1
