"""Faults that strike commands: their completions, their interrupts, their data."""

from __future__ import annotations

from typing import Final

from faults.scenario import HASTY, RESET, WEDGED, Scenario, clear, give_up, wait_it_out

from aiougds.testing import Fault

# Long enough for the host to see what comes before a command has been served.
SLOW: Final[dict[str, object]] = {"latency": "1ms"}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="error status, generic",
        does="commands complete with a generic status, and move no data",
        faults=(Fault.status(sct=0, sc=0x06),),
        sees=("NVMeError",),
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
        sees=("PathError",),
    ),
    Scenario(
        name="error status, vendor",
        does="commands complete with a vendor specific status",
        faults=(Fault.status(sct=7, sc=0x33),),
        sees=("NVMeError",),
    ),
    Scenario(
        name="error status, `retries`",
        does="three commands complete with a status that may be retried",
        faults=(Fault.status(sct=0, sc=0x22, count=3),),
        sees=("ok",),
        options={"retries": 3},
    ),
    Scenario(
        name="delay",
        does="commands are held back for 20 ms, then served",
        faults=(Fault.delay(0.02),),
        sees=("ok",),
        core=True,
    ),
    Scenario(
        name="hold",
        does="commands are kept, and served late",
        faults=(Fault.hold(),),
        sees=("ok",),
        strike=clear,
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
        elsewhere=(Fault.abort_refused(),),
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
        elsewhere=(Fault.abort_refused(),),
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
        core=True,
    ),
    Scenario(
        name="lose_interrupt",
        does="commands complete, and nobody is told",
        faults=(Fault.lose_interrupt(),),
        sees=("ok",),
        core=True,
    ),
    Scenario(
        name="spurious_interrupt",
        does="an interrupt comes, and nothing has completed",
        faults=(Fault.spurious_interrupt(),),
        sees=("ok",),
    ),
    Scenario(
        name="early_interrupt",
        does="the interrupt overtakes the completion by 5 ms",
        faults=(Fault.early_interrupt(0.005),),
        sees=("ok",),
    ),
    Scenario(
        name="dup_cqe",
        does="completions are posted twice",
        faults=(Fault.dup_cqe(),),
        sees=("ok",),
        unknown_cids=True,
        core=True,
    ),
    Scenario(
        name="bad_cid",
        does="completions for commands that nobody sent come in between",
        faults=(Fault.bad_cid(),),
        sees=("ok",),
        unknown_cids=True,
        emu=SLOW,
    ),
    Scenario(
        name="bad_sqid",
        does="completions that name another queue come in between",
        faults=(Fault.bad_sqid(),),
        sees=("ok",),
        unknown_cids=True,
        emu=SLOW,
    ),
    Scenario(
        name="free_cid",
        does="completions for identifiers that are not in use come in between",
        faults=(Fault.free_cid(),),
        sees=("ok",),
        unknown_cids=True,
        emu=SLOW,
    ),
    Scenario(
        name="bad_sqhd",
        does="completions tell a submission queue head that cannot be",
        faults=(Fault.bad_sqhd(),),
        sees=("ok",),
    ),
    Scenario(
        name="stuck_phase",
        does="a completion has the phase tag of the round before: nobody can see it, "
        "nor what the queue completes after it",
        faults=(Fault.stuck_phase(count=1),),
        sees=("ControllerWedgedError",),
        may=("ok",),
        calm=WEDGED,
        neighbours=WEDGED,
        after="wedged",
        reason="nor after an Abort",
        repair=RESET,
        options=HASTY,
    ),
)
