"""Where tests run: loops, completion modes, stepping; and how many of the pairings."""

from __future__ import annotations

import zlib
from typing import Final, Literal, NamedTuple, get_args

from aiougds import Mode

Loop = Literal["asyncio", "uvloop", "trio", "blocking"]
Extent = Literal["all", "pairs", "few"]

LOOPS: Final[tuple[Loop, ...]] = get_args(Loop)
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class Place(NamedTuple):
    """One cell of the matrix."""

    loop: Loop
    mode: Mode
    step: bool

    def __str__(self) -> str:
        return f"{self.loop}-{self.mode}-{'step' if self.step else 'nostep'}"


def places(extent: Extent, name: str) -> list[Place]:
    """Return the cells for a test.

    ``all`` is everything, ``pairs`` every pair of values once or more, ``few`` every
    value once or more; which ones differs from name to name.
    """
    turn = zlib.crc32(name.encode()) % len(LOOPS)
    cells = [
        Place(loop, mode, bool((row + column + turn) % 2))
        for row, loop in enumerate(LOOPS)
        for column, mode in enumerate(MODES)
    ]
    match extent:
        case "all":
            return [c._replace(step=step) for c in cells for step in (True, False)]
        case "pairs":
            return cells
        case "few":
            # A diagonal holds one value of stepping only: every other cell gets the
            # other one.
            width = len(MODES)
            found = [cells[i * width + (i + turn) % width] for i in range(width)]
            return [c._replace(step=bool(i % 2)) for i, c in enumerate(found)]
