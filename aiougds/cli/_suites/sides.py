"""Who is compared: our completion modes, and peers, opened for a shape."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import aiougds
from aiougds._guard import is_embedded, makes_it
from aiougds._options import MODES
from aiougds.cli._suites.gpu_peers import GPU_PEERS
from aiougds.cli._suites.movers import Mover, Shape, our_mover
from aiougds.cli._suites.peers import HOST_PEERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from contextlib import AbstractAsyncContextManager

    from aiougds import Mode, Namespace
    from aiougds.cli._common import Loop

OURS: Final = "aiougds"
SPIN_US: Final = 1000.0
HOW: Final[dict[str, str]] = {
    "adaptive": "await; spins or sleeps, as it has learnt",
    "inline": "await; the submitting thread spins 10 us, and then sleeps",
    "poll": "await; a native thread polls",
    "interrupt": "await; woken by the interrupt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What everybody moves, and where peers find it.

    ``path`` is the file or block device that peers open, "" if there is none; then
    ``no_path`` says why.
    """

    address: str
    nsid: int | None = None
    path: str = ""
    no_path: str = ""
    direct: bool = False
    """With O_DIRECT, not through the page cache."""
    writes: bool = False
    peers_write: bool = False
    loop: Loop = "asyncio"
    device: str | None = None
    """Whose memory; None: the host's."""
    temporary: bool = False
    made: bool = False
    """The namespace is of this command's own making."""
    span: int = 0

    @property
    def shown(self) -> str:
        """The address, as a report shows it: nobody needs a temporary name."""
        return "emu:<temporary file>" if self.temporary else self.address


class Side(Protocol):
    """One of those compared."""

    @property
    def name(self) -> str: ...
    @property
    def how(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def ours(self) -> bool: ...
    def why_not(self, place: Place) -> str:
        """Return why it cannot run there; "" if it can."""
        ...

    def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AbstractAsyncContextManager[Mover]:
        """Open it for a shape; ``ns`` is of ours only."""
        ...


class OurSide:
    """We, in one completion mode."""

    __slots__ = ("_mode",)

    def __init__(self, mode: Mode) -> None:
        self._mode: Mode = mode

    @property
    def ours(self) -> bool:
        """It is one of us."""
        return True

    @property
    def name(self) -> str:
        """Such as ``aiougds adaptive``."""
        return f"{OURS} {self._mode}"

    @property
    def how(self) -> str:
        """What is awaited."""
        return HOW[self._mode]

    @property
    def version(self) -> str:
        """Of the package."""
        from importlib.metadata import version

        return version("aiougds")

    def why_not(self, place: Place) -> str:
        """Run anywhere."""
        return ""

    @asynccontextmanager
    async def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AsyncIterator[Mover]:
        """Open a handle of that mode, and registered memory."""
        assert ns is not None
        handle = ns.using(mode=self._mode)
        try:
            async with our_mover(
                handle, shape, writes=place.writes, device=place.device
            ) as mover:
                yield mover
        finally:
            await handle.aclose()


class SpinningSide:
    """The paper's polling: the submitting thread spins until the end.

    The budget for that is the controller's, so this side has one of its own.
    """

    name = f"{OURS} spinning"
    how = "await; the submitting thread spins until the end (spin_us=1000)"

    @property
    def ours(self) -> bool:
        """It is one of us."""
        return True

    @property
    def version(self) -> str:
        """Of the package."""
        return OurSide("inline").version

    def why_not(self, place: Place) -> str:
        """Return why it cannot run there; "" if it can."""
        if not is_embedded(place.address):
            return (
                "needs a second controller, and a device is opened once: run it alone "
                "with AIOUGDS_SPIN_US=1000 and --modes inline"
            )
        if place.writes and place.path:
            return "needs a second controller, and a file is written by one"
        return ""

    @asynccontextmanager
    async def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AsyncIterator[Mover]:
        """Open the controller, and registered memory."""
        del ns
        async with (
            aiougds.open(
                place.address, nsid=place.nsid, mode="inline", spin_us=SPIN_US,
                readonly=not (place.writes or makes_it(place.address)),
            ) as own,
            our_mover(own, shape, writes=place.writes, device=place.device) as mover,
        ):  # fmt: skip
            yield mover


def our_sides(modes: Collection[Mode]) -> list[Side]:
    """One for each mode, in the order of :data:`MODES`."""
    return [OurSide(mode) for mode in MODES if mode in modes]


PEERS: Final[tuple[Side, ...]] = (*HOST_PEERS, *GPU_PEERS)


def side_named(name: str) -> Side:
    """Return the side of that name: ours of a mode, or a peer."""
    return next(side for side in (*our_sides(MODES), *PEERS) if side.name == name)
