"""Who is compared: our completion modes, and peers, opened for a shape."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import aiougds
from aiougds._guard import is_embedded, makes_it
from aiougds._options import MODES, OpenKeywords
from aiougds.cli._suites.gpu_peers import GPU_PEERS
from aiougds.cli._suites.movers import Mover, Shape, our_mover
from aiougds.cli._suites.peers import HOST_PEERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection
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
    def mode(self) -> Mode:
        """Its completion mode."""
        return self._mode

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
    ) -> AsyncGenerator[Mover]:
        """Open it, and registered memory.

        A controller of its own where there can be several, so that threads that one
        mode needs do not run beside another; else a handle.
        """
        async with AsyncExitStack() as stack:
            if several(place):
                own = await stack.enter_async_context(own_namespace(place, self._mode))
            else:
                assert ns is not None
                own = ns.using(mode=self._mode)
                stack.push_async_callback(own.aclose)
            yield await stack.enter_async_context(
                our_mover(own, shape, writes=place.writes, device=place.device)
            )


def several(place: Place) -> bool:
    """Whether the address can be opened more than once."""
    return is_embedded(place.address) and not (place.writes and place.path)


def own_namespace(
    place: Place, mode: Mode, spin_us: float | None = None
) -> aiougds.Opening[Namespace]:
    """Open a controller for one side."""
    keywords: OpenKeywords = {
        "mode": mode,
        "readonly": not (place.writes or makes_it(place.address)),
    }
    if spin_us is not None:
        keywords["spin_us"] = spin_us
    return aiougds.open(place.address, nsid=place.nsid, **keywords)


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
        if several(place):
            return ""
        return (
            "needs a second controller, and this is opened once: run it alone with "
            "AIOUGDS_SPIN_US=1000 and --modes inline"
        )

    @asynccontextmanager
    async def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AsyncGenerator[Mover]:
        """Open the controller, and registered memory."""
        del ns
        async with (
            own_namespace(place, "inline", SPIN_US) as own,
            our_mover(own, shape, writes=place.writes, device=place.device) as mover,
        ):
            yield mover


def our_sides(modes: Collection[Mode]) -> list[Side]:
    """One for each mode, in the order of :data:`MODES`."""
    return [OurSide(mode) for mode in MODES if mode in modes]


PEERS: Final[tuple[Side, ...]] = (*HOST_PEERS, *GPU_PEERS)


def side_named(name: str) -> Side:
    """Return the side of that name: ours of a mode, or a peer."""
    return next(side for side in (*our_sides(MODES), *PEERS) if side.name == name)
