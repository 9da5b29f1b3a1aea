"""What a run of the suites was asked for, and the grids that it goes over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aiougds._options import MODES
from aiougds.cli._suites.measure import Pace

if TYPE_CHECKING:
    from aiougds import Mode
    from aiougds.cli._common import Loop

KIB: Final = 1 << 10
MIB: Final = 1 << 20
Rw = Literal["read", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Sizes in bytes, and how many."""

    sync_sizes: tuple[int, ...] = (4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
    tasks: tuple[int, ...] = (1, 2, 8, 16)
    batch_sizes: tuple[int, ...] = (4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB)
    batches: tuple[int, ...] = (1, 8, 32, 128)
    stream_sizes: tuple[int, ...] = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
    poll_sizes: tuple[int, ...] = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
    total: int = 16 * MIB
    pieces: int = 16
    piece: int = MIB

    @property
    def largest(self) -> int:
        """The bytes that a namespace has to have."""
        sizes = (*self.sync_sizes, *self.batch_sizes, *self.poll_sizes)
        return max(*sizes, *self.stream_sizes, self.pieces * self.piece)


FULL: Final = Grid()
QUICK: Final = Grid(
    sync_sizes=(4 * KIB, 64 * KIB),
    tasks=(1, 8),
    batch_sizes=(4 * KIB, 128 * KIB),
    batches=(1, 128),
    stream_sizes=(4 * KIB, MIB),
    poll_sizes=(4 * KIB, MIB),
    total=4 * MIB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for."""

    address: str | None
    """None: an embedded controller over a new temporary file."""
    nsid: int | None
    serial: str | None
    loop: Loop
    suites: tuple[str, ...]
    peers: tuple[str, ...]
    modes: tuple[Mode, ...] | None
    """None: all, and where that would take long, adaptive alone."""
    grid: Grid
    rw: tuple[Rw, ...]
    span: int | None
    device: str | None
    peer_path: str | None
    pace: Pace
    seed: int
    json: Path | None
    csv: Path | None
    plot: Path | None
    compare: Path | None

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return "write" in self.rw

    def chosen(self, *fewer: Mode) -> tuple[Mode, ...]:
        """Return the modes to run; ``fewer`` where all would take long."""
        return self.modes or fewer or MODES
