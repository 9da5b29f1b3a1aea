"""What checks of peer memory have in common."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager

from vm.guest.drv import Drv
from vm.guest.ground import Ground
from vm.guest.peers import Peer

PAGE, MIB = 4096, 1 << 20


def node(ground: Ground, name: str) -> str:
    """Have the helper take a controller; return its device node."""
    if ground.driver(name) != "ugds_drv":
        ground.bind(name, "ugds_drv")
    (made,) = (ground.folder(name) / "ugds_drv").iterdir()
    return f"/dev/{made.name}"


@contextmanager
def both(ground: Ground) -> Generator[tuple[Drv, Peer]]:
    """Give an open controller and a BAR; afterwards nothing may be left of either."""
    path = node(ground, "nv0")
    with Peer(0) as peer:
        before = peer.info()
        assert before.idle, before
        with Drv(path) as opened:
            yield opened, peer
        after = peer.info()
        assert after.idle, after
        assert after.exports == before.exports, after


def error_of(call: Callable[..., object], *args: object, **named: object) -> int:
    """Return the number of the error that a call raises, or 0."""
    try:
        call(*args, **named)
    except OSError as error:
        return error.errno or -1
    return 0


def refused(
    code: int, call: Callable[..., object], *args: object, **named: object
) -> None:
    got = error_of(call, *args, **named)
    assert got == code, (errno.errorcode.get(got, got), errno.errorcode[code], args)


def bar_address(ground: Ground, name: str) -> int:
    line = (ground.folder(name) / "resource").read_text().splitlines()[2]
    return int(line.split()[0], 16)
