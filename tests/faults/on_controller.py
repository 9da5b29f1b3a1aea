"""Faults that strike the controller as a whole, or what it says about itself."""

from __future__ import annotations

from typing import Final

import anyio
from faults.case import Case
from faults.scenario import (
    REMOVED,
    REOPEN,
    RESET,
    WEDGED,
    Scenario,
    Strike,
)
from faults.workload import BLOCK, BLOCKS
from helpers.world import emu_address

from aiougds import BrokenError, UGDSError
from aiougds.testing import (
    Fault,
    attach,
    detach,
    inject,
    power_cut,
    raise_event,
    resize,
)

LIES: Final = (
    "garble=controller:short64",
    "garble=controller:zeros",
    "garble=namespace:short8",
    "garble=namespace:ones",
    "garble=list:3",
    "garble=all:short512",
    "garble=all:7",
)
# To everybody: what the controller is asked to do comes to an end, and is not known.
STOPPED: Final = ("ok", "OperationAbortedError", "ControllerWedgedError")


def disobeyed(fault: Fault) -> Strike:
    """Return a strike: a reset that the controller does not carry out."""

    async def strike(case: Case) -> None:
        await case.until(lambda: case.hits() > 0)
        with inject(case.ns, fault) as stuck:
            try:
                await case.controller.reset()
            except BrokenError:
                assert stuck.hits
            else:
                raise AssertionError("a reset that was not obeyed went through")

    return strike


async def cut(case: Case) -> None:
    """Cut the power while commands are at the device."""
    await case.until(lambda: case.hits() > 0)
    power_cut(case.ns, seed=hash(str(case.place)) & 0xFFFF)


async def take_away(case: Case) -> None:
    """Detach the namespace while commands are at the device."""
    await case.until(lambda: case.hits() > 0)
    detach(case.ns)
    case.clear()


async def bring_back(case: Case) -> None:
    """Attach it again, and wait until the host knows."""
    attach(case.ns)
    await case.until(lambda: case.ns.size == BLOCKS * BLOCK)


async def grow(case: Case) -> None:
    """Make the namespace larger, and wait until the host knows."""
    resize(case.ns, 2 * BLOCKS * BLOCK)
    await case.until(lambda: case.ns.size == 2 * BLOCKS * BLOCK)


async def tell(case: Case) -> None:
    """Raise an asynchronous event; whoever iterates gets it."""
    events = case.controller.events()
    raise_event(case.ns, type=1, info=1, log_page=0x02)
    if case.blocking:
        event = next(events)
    else:
        with anyio.fail_after(10):
            event = await anext(events)
    assert (event.type, event.log_page) == ("smart", 0x02)


async def count_queues(case: Case) -> None:
    """Fewer were granted than asked for, and the capabilities say so."""
    have = case.controller.capabilities
    assert (have.queue_pairs, have.vectors) == (1, 1)
    assert have.queue == "shared"


async def open_liars(case: Case) -> None:
    """Controllers that say nonsense are refused, in words."""
    for lie in LIES:
        address = f"{emu_address(size=BLOCKS * BLOCK)}&{lie}"
        try:
            async with case.world.opening(address, admin_timeout_s=10):
                pass
        except UGDSError as error:
            if str(error):
                continue
        raise AssertionError(f"{lie}: not refused")


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="cfs",
        does="the controller reports a fatal status, and completes nothing more",
        faults=(Fault.cfs(count=1),),
        sees=("ControllerWedgedError",),
        may=("ok",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        reason="fatal",
        repair=RESET,
        core=True,
    ),
    Scenario(
        name="removed",
        does="the device is pulled out: its registers read all ones",
        faults=(Fault.removed(count=1),),
        sees=("DeviceRemovedError",),
        may=("ok",),
        calm=REMOVED,
        neighbours=REMOVED,
        after="removed",
        reason="gone",
        repair=REOPEN,
        core=True,
    ),
    Scenario(
        name="all_ones",
        does="registers read all ones for 5 s, and all else works on",
        faults=(Fault.all_ones(5, count=1),),
        sees=("ok",),
        may=("DeviceRemovedError",),
        calm=REMOVED,
        neighbours=REMOVED,
        after="removed",
        reason="gone",
        repair=REOPEN,
    ),
    Scenario(
        name="power cut",
        does="power is lost and comes back; what was not flushed may be gone",
        faults=(Fault.hold(),),
        sees=("ControllerWedgedError",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        repair=RESET,
        strike=cut,
        emu={"volatile": 1},
        loses=True,
        calls=("power_cut",),
    ),
    Scenario(
        name="power cut in a command",
        does="power is lost in the middle of a command, and comes back",
        faults=(Fault.power_cut(skip=3),),
        sees=("ControllerWedgedError",),
        may=("ok",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        repair=RESET,
        emu={"volatile": 1},
        loses=True,
    ),
    Scenario(
        name="power off in a command",
        does="power is lost in the middle of a command, for good",
        faults=(Fault.power_cut(skip=3, stays_off=True),),
        sees=("DeviceRemovedError",),
        may=("ok",),
        calm=REMOVED,
        neighbours=REMOVED,
        after="removed",
        repair=REOPEN,
        emu={"volatile": 1},
        loses=True,
    ),
    Scenario(
        name="enable_stuck",
        does="a reset with operations in flight: CSTS.RDY does not follow CC.EN",
        faults=(Fault.hold(),),
        sees=("OperationAbortedError",),
        may=("ControllerWedgedError",),
        calm=STOPPED,
        neighbours=STOPPED,
        after="wedged",
        repair=f"{RESET} once it obeys",
        strike=disobeyed(Fault.enable_stuck()),
        acts=("enable_stuck",),
        emu={"to": 1},
    ),
    Scenario(
        name="reset_refused",
        does="a reset with operations in flight: the controller just works on",
        faults=(Fault.hold(),),
        sees=("OperationAbortedError",),
        may=("ControllerWedgedError",),
        calm=STOPPED,
        neighbours=STOPPED,
        after="wedged",
        repair=f"{RESET} once it obeys",
        strike=disobeyed(Fault.reset_refused()),
        acts=("reset_refused",),
        emu={"to": 1},
    ),
    Scenario(
        name="never_ready",
        does="a reset with operations in flight: it never gets ready again",
        faults=(Fault.hold(),),
        sees=("OperationAbortedError",),
        may=("ControllerWedgedError",),
        calm=STOPPED,
        neighbours=STOPPED,
        after="wedged",
        repair=f"{RESET} once it obeys",
        strike=disobeyed(Fault.never_ready()),
        acts=("never_ready",),
        emu={"to": 1},
    ),
    Scenario(
        name="namespace detached",
        does="the namespace goes away, and the controller tells it by an event",
        faults=(Fault.hold(),),
        sees=("NVMeError",),
        may=("NamespaceGoneError", "ok"),
        calm=("ok", "NVMeError", "NamespaceGoneError"),
        neighbours=("ok", "NVMeError", "NamespaceGoneError"),
        repair="the namespace, attached again",
        strike=take_away,
        mend=bring_back,
        calls=("detach", "attach"),
    ),
    Scenario(
        name="namespace resized",
        does="the namespace gets another size, and the controller tells it by an event",
        sees=("ok",),
        first=grow,
        calls=("resize",),
    ),
    Scenario(
        name="asynchronous event",
        does="the controller reports something by itself",
        sees=("ok",),
        first=tell,
        calls=("raise_event",),
    ),
    Scenario(
        name="few queues",
        does="one queue pair and one vector are granted, 16 were asked for",
        sees=("ok",),
        first=count_queues,
        emu={"queues": 1, "vectors": 1},
    ),
    Scenario(
        name="lies",
        does="others are opened whose Identify data is short, random or empty",
        sees=("ok",),
        first=open_liars,
    ),
)
