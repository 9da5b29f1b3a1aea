"""Every fault that the embedded controller can be told to produce."""

from __future__ import annotations

from typing import Final

import anyio
from faults.case import Case
from faults.scenario import Scenario, clear, give_up, wait_it_out

from aiougds import BrokenError, OpenKeywords
from aiougds.testing import Fault, inject, raise_event

WEDGED: Final = ("ok", "ControllerWedgedError")
REMOVED: Final = ("ok", "DeviceRemovedError")
RESET: Final = "`await ctrl.reset()`"
REOPEN: Final = "nothing: close it with `force=True`, open what is there now"
HASTY: Final[OpenKeywords] = {"hang_timeout_s": 0.2}


async def stuck_reset(case: Case) -> None:
    """Reset a controller that does not obey; then it does."""
    await case.until(lambda: case.hits() > 0)
    with inject(case.ns, Fault("enable_stuck")) as stuck:
        try:
            await case.controller.reset()
        except BrokenError:
            assert stuck.hits
        else:
            raise AssertionError("a reset that was not obeyed went through")


async def tell(case: Case) -> None:
    """Raise an asynchronous event; whoever iterates gets it."""
    events = case.controller.events()
    raise_event(case.ns, type=2, info=0, log_page=0x04)
    if case.blocking:
        event = next(events)
    else:
        with anyio.fail_after(10):
            event = await anext(events)
    assert (event.type, event.log_page) == ("notice", 0x04)


async def count_queues(case: Case) -> None:
    """Fewer were granted than asked for, and the capabilities say so."""
    have = case.controller.capabilities
    assert (have.queue_pairs, have.vectors) == (1, 1)
    assert have.queue == "shared"


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="error status, generic",
        does="commands complete with a generic status, and move no data",
        faults=(Fault.status(sct=0, sc=0x06),),
        sees=("NVMeError",),
        kept=("Fault.status",),
        core=True,
    ),
    Scenario(
        name="error status, command specific",
        does="commands complete with a command specific status",
        faults=(Fault.status(sct=1, sc=0x80),),
        sees=("NVMeError",),
    ),
    Scenario(
        name="error status, media",
        does="commands complete with a media error, “do not retry” set",
        faults=(Fault.status(sct=2, sc=0x81, dnr=True),),
        sees=("MediaError",),
    ),
    Scenario(
        name="error status, path",
        does="commands complete with a path error",
        faults=(Fault.status(sct=3, sc=0x00),),
        sees=("NVMeError",),
    ),
    Scenario(
        name="error status, vendor",
        does="commands complete with a vendor specific status",
        faults=(Fault.status(sct=7, sc=0x33),),
        sees=("NVMeError",),
    ),
    Scenario(
        name="delay",
        does="commands are held back for 20 ms, then served",
        faults=(Fault.delay(0.02),),
        sees=("ok",),
        kept=("Fault.delay",),
        core=True,
    ),
    Scenario(
        name="hold",
        does="commands are kept, and served late",
        faults=(Fault.hold(),),
        sees=("ok",),
        strike=clear,
        kept=("Fault.hold",),
        core=True,
    ),
    Scenario(
        name="hold, `timeout_s`",
        does="commands are kept until the time limit of the operations is over",
        faults=(Fault.hold(),),
        sees=("OperationTimeoutError",),
        calm=("ok", "OperationTimeoutError"),
        strike=wait_it_out,
        timeout_s=0.15,
    ),
    Scenario(
        name="hold, cancelled",
        does="commands are kept until the operations were cancelled; Abort is refused",
        faults=(Fault.hold(),),
        elsewhere=(Fault("abort_refused"),),
        sees=("cancelled",),
        calm=("ok", "cancelled"),
        strike=give_up,
        options={"cancel_grace_s": 0.05},
        loops=("asyncio", "uvloop", "trio"),
    ),
    Scenario(
        name="hang",
        does="commands are kept beyond `hang_timeout_s`; Abort ends them",
        faults=(Fault.hold(),),
        sees=("NVMeError",),
        strike=wait_it_out,
        options=HASTY,
    ),
    Scenario(
        name="abort refused",
        does="commands are kept beyond `hang_timeout_s`; Abort answers “not aborted”",
        faults=(Fault.hold(),),
        elsewhere=(Fault("abort_refused"),),
        sees=("ControllerWedgedError",),
        may=("ok",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        reason="nor after an Abort",
        repair=RESET,
        options=HASTY,
    ),
    Scenario(
        name="drop",
        does="commands are forgotten: no completion, not even on Abort",
        faults=(Fault.drop(),),
        sees=("ControllerWedgedError",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        reason="nor after an Abort",
        repair=RESET,
        options=HASTY,
        kept=("Fault.drop",),
        core=True,
    ),
    Scenario(
        name="lose_interrupt",
        does="commands complete, and nobody is told",
        faults=(Fault.lose_interrupt(),),
        sees=("ok",),
        kept=("Fault.lose_interrupt",),
        core=True,
    ),
    Scenario(
        name="spurious_interrupt",
        does="an interrupt comes, and nothing has completed",
        faults=(Fault("spurious_interrupt"),),
        sees=("ok",),
    ),
    Scenario(
        name="early_interrupt",
        does="the interrupt overtakes the completion by 5 ms",
        faults=(Fault("early_interrupt", delay_s=0.005),),
        sees=("ok",),
    ),
    Scenario(
        name="dup_cqe",
        does="completions are posted twice",
        faults=(Fault("dup_cqe"),),
        sees=("ok",),
        unknown_cids=True,
        core=True,
    ),
    Scenario(
        name="bad_cid",
        does="completions for commands that nobody sent come in between",
        faults=(Fault("bad_cid"),),
        sees=("ok",),
        unknown_cids=True,
    ),
    Scenario(
        name="bad_sqid",
        does="completions that name another queue come in between",
        faults=(Fault("bad_sqid"),),
        sees=("ok",),
        unknown_cids=True,
    ),
    Scenario(
        name="cfs",
        does="the controller reports a fatal status, and completes nothing more",
        faults=(Fault("cfs", count=1),),
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
        faults=(Fault("removed", count=1),),
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
        name="enable_stuck",
        does="with operations in flight a reset is asked for, and not obeyed",
        faults=(Fault.hold(),),
        sees=("OperationAbortedError",),
        may=("ControllerWedgedError",),
        calm=("ok", "OperationAbortedError", "ControllerWedgedError"),
        neighbours=("ok", "OperationAbortedError", "ControllerWedgedError"),
        after="wedged",
        repair=f"{RESET} once it obeys",
        strike=stuck_reset,
        acts=("enable_stuck",),
        emu={"to": 1},
    ),
    Scenario(
        name="asynchronous event",
        does="the controller reports something by itself",
        sees=("ok",),
        first=tell,
        kept=("raise_event",),
    ),
    Scenario(
        name="few queues",
        does="one queue pair and one vector are granted, 16 were asked for",
        sees=("ok",),
        first=count_queues,
        emu={"queues": 1, "vectors": 1},
    ),
)
