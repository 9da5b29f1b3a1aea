"""A fork at every step of a call, as a signal's handler may do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from loops.child import check_quiet, run_script
from loops.test_fork import QUIET

# The n-th line of the package forks; the child goes on from there, in the middle of a
# call that it can only be refused. Every n, until the call is over before the fork.
STEPS = """
import faulthandler, traceback
ns = blocking.open(f"emu:{sys.argv[1]}?size=1MiB", mode=sys.argv[2], spin_us=0)
data = os.urandom(4 * BLOCK)
ns.write(data, offset=0)
reg = ns.allocate(4 * BLOCK)
batch = ns.batch(4)
parent = os.getpid()
stride = int(sys.argv[3])

def several():
    ns.read_many([(reg[i * BLOCK:(i + 1) * BLOCK], i * BLOCK) for i in range(3)])

def harvested():
    batch.read(reg, offset=0)
    batch.submit()
    return batch.harvest(1)

WORK = {
    "registered": lambda: ns.read(reg, offset=0),
    "pinned": lambda: ns.read(bytearray(BLOCK), offset=0),
    "write": lambda: ns.write(reg, offset=0, fua=True),
    "several": several,
    "batch": harvested,
    "register": lambda: ns.register(bytearray(BLOCK)).close(),
    "deadline": lambda: ns.read(reg, offset=0, timeout_s=5),
    "bounced": lambda: ns.read(bytearray(10), offset=5, edges="bounce"),
}
left = 0
child = 0

def step(frame, event, _arg):
    global left, child
    if "aiougds" not in frame.f_code.co_filename:
        return None
    if event == "line":
        left -= 1
        if not left:
            sys.settrace(None)
            child = os.fork()
            if not child:
                faulthandler.dump_traceback_later(30, exit=True)
    return step

forks = 0
for name, work in WORK.items():
    at = 0
    while True:
        at += stride
        left, child = at, -1
        sys.settrace(step)
        try:
            work()
        except aiougds.UGDSError as exc:
            sys.settrace(None)
            if os.getpid() == parent:
                raise
            if isinstance(exc, aiougds.ForkedError):
                os._exit(0)
            traceback.print_exc()
            os._exit(3)
        except BaseException:
            traceback.print_exc()
            os._exit(4)
        finally:
            sys.settrace(None)
        if os.getpid() != parent:
            os._exit(9)  # the call ended well in a child
        if child == -1:
            break  # the fork would come after its end
        forks += 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # A call that had its answer already may return it.
        assert status in (0, 9), f"{name}: fork at line {at}: {status}"
assert ns.read(reg, offset=0) == 4 * BLOCK and bytes(reg.view) == data
reg.close()
batch.close()
ns.close()
assert forks > 50, forks
print(forks, "done")
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mode", "stride"),
    [
        ("interrupt", 5),
        ("poll", 7),
        pytest.param("interrupt", 1, marks=pytest.mark.soak),
    ],
)
def test_fork_at_every_line(tmp_path: Path, mode: str, stride: int) -> None:
    ended = check_quiet(
        run_script(
            STEPS,
            str(tmp_path / "data"),
            mode,
            str(stride),
            options=QUIET,
            timeout_s=170,
        )
    )
    assert ended.endswith("done\n")
