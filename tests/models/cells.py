"""Blocks and what they may hold: the reference model of bytes.

A block is filled with one number throughout, so that its contents are one integer, and
what is torn or in the wrong place is seen at once. A cell knows all the numbers that
its block may hold; after a write of unknown outcome these are several.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

WORD: Final = 8
_serials = itertools.count(1)


class Cell:
    """One block of a namespace or of memory."""

    __slots__ = ("may",)

    def __init__(self, *numbers: int) -> None:
        self.may = set(numbers or (0,))

    def __repr__(self) -> str:
        return f"<Cell {sorted(self.may)}>"


def fresh() -> int:
    """Return a number that no block holds yet."""
    return next(_serials)


def filled(number: int, nbytes: int) -> bytes:
    """Return a block that holds a number."""
    return number.to_bytes(WORD, "little") * (nbytes // WORD)


def number_in(block: bytes) -> int:
    """Return the number of a block; all of it must agree."""
    word = block[:WORD]
    assert block == word * (len(block) // WORD), f"a torn block: {sorted(set(block))}"
    return int.from_bytes(word, "little")


class Move(NamedTuple):
    """One block that a command copies; not ``certain``: it may not have happened."""

    source: Cell
    target: Cell
    certain: bool = True


def move(moves: Iterable[Move]) -> list[tuple[Cell, Cell]]:
    """Carry out moves in an order that nobody knows.

    Returns pairs (target, source) that hold the same number now, whichever it is.
    """
    moves = list(moves)
    before = {id(cell): set(cell.may) for m in moves for cell in m[:2]}
    during = {key: set(may) for key, may in before.items()}
    grown = True
    while grown:  # at most as often as the longest chain of moves
        grown = False
        for m in moves:
            target, source = during[id(m.target)], during[id(m.source)]
            if not source <= target:
                target |= source
                grown = True
    hit = Counter(id(m.target) for m in moves)
    sure = {id(m.target) for m in moves if m.certain}
    for m in moves:
        key = id(m.target)
        if key in sure:
            # One of them wrote it last: what it held before is gone, unless one of
            # the sources held it too.
            m.target.may = set().union(
                *(during[id(n.source)] for n in moves if n.target is m.target)
            )
        else:
            m.target.may = during[key]
    return [
        (m.target, m.source)
        for m in moves
        if m.certain and hit[id(m.target)] == 1 and id(m.source) not in hit
    ]


def compare(pairs: Iterable[tuple[Cell, Cell]]) -> bool | None:
    """Return whether blocks are the same; None: it is not known."""
    same: bool | None = True
    for one, other in pairs:
        if not one.may & other.may:
            return False
        if len(one.may | other.may) > 1:
            same = None
    return same
