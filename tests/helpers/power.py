"""What may be there after a power cut, written down the plain way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Piece:
    """Blocks that a power cut keeps together, or loses together."""

    write: int
    value: int
    blocks: set[int]


@dataclass(slots=True)
class LostPower:
    """Blocks that each hold one number, and the pieces that are not durable."""

    durable: list[int]
    unit: int
    """Blocks that are never torn: AWUPF + 1."""
    pieces: list[Piece] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    """What a reader sees; after writes at the same time only a reader knows."""
    writes: int = 0
    values: int = 0

    def __post_init__(self) -> None:
        self.newest = list(self.durable)

    def write(
        self, first: int, count: int, *, zeros: bool = False
    ) -> tuple[int, list[int]]:
        """Write blocks; returns the name of the write, and what each block gets."""
        self.writes += 1
        whole = count <= self.unit
        written: list[int] = []
        parts: dict[int, Piece] = {}
        for block in range(first, first + count):
            part = 0 if whole else block // self.unit
            if part not in parts:
                self.values += 1
                parts[part] = Piece(self.writes, 0 if zeros else self.values, set())
            parts[part].blocks.add(block)
            written.append(parts[part].value)
            self.newest[block] = parts[part].value
        self.pieces += parts.values()
        return self.writes, written

    def harden(self, write: int, among: Iterable[int] = ()) -> None:
        """That write is durable. Of those ``among`` which it ran, each may be older."""
        together = set(among) - {write}
        for piece in [piece for piece in self.pieces if piece.write == write]:
            for block in piece.blocks:
                self.durable[block] = piece.value
            for other in list(self.pieces):
                if other is piece:
                    break
                if other.write not in together:
                    other.blocks -= piece.blocks
            for other in list(self.pieces):
                if other.write in together:
                    rest = other.blocks - piece.blocks
                    self.pieces.append(Piece(other.write, other.value, rest))
        self.pieces = [piece for piece in self.pieces if piece.write != write]

    def flush(self) -> None:
        """All is durable, as it is."""
        self.settle(self.newest)

    def permits(self, seen: Sequence[int]) -> bool:
        """Tell whether some of the pieces, in some order, can have left this.

        Pieces that show wherever nothing lies over them are taken off, from the top
        down. One too many does no harm, and what is beneath them all is durable.
        """
        covered = set(range(len(seen)))
        taken = True
        while taken:
            taken = False
            for piece in self.pieces:
                blocks = piece.blocks & covered
                if blocks and all(seen[block] == piece.value for block in blocks):
                    covered -= blocks
                    taken = True
        return all(seen[block] == self.durable[block] for block in covered)

    def settle(self, seen: Sequence[int]) -> None:
        """What is there is durable, as after a cut."""
        self.durable, self.newest = list(seen), list(seen)
        self.pieces.clear()


def blocks_of(values: Iterable[int], block: int) -> bytes:
    """Return blocks that hold these numbers throughout."""
    return b"".join(value.to_bytes(8, "little") * (block // 8) for value in values)


def values_of(data: bytes | bytearray, block: int) -> list[int]:
    """Return the number of each block; no block may be torn."""
    values = []
    for start in range(0, len(data), block):
        first = bytes(data[start : start + 8])
        assert data[start : start + block] == first * (block // 8)
        values.append(int.from_bytes(first, "little"))
    return values
