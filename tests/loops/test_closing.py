"""A controller is closed by one thread while others use it, look at it and close it."""

from __future__ import annotations

from loops.child import check_all_quiet

SCRIPT = """
import warnings
from aiougds import testing
warnings.simplefilter("ignore", ResourceWarning)
KIND = "{kind}"
current = None
stop = False
answers, errors = set(), []

def looks(ns, reg):
    ctrl = ns.controller
    return [
        ctrl.statistics, lambda: ctrl.state, lambda: ctrl.capabilities,
        lambda: ctrl.quarantine, lambda: ctrl.info, ctrl.namespaces,
        lambda: ctrl.state_reason, lambda: reg.inflight, lambda: repr(ns),
        lambda: testing.counters(ns), lambda: inject(ns, Fault.hold(201)).clear(),
    ]

def uses(ns, reg):
    def region():
        part = ns.region(0, BLOCK)
        part.read(bytearray(BLOCK), offset=0)
        part.close()
    return [
        region, lambda: ns.region(0, BLOCK), ns.controller.smart_log,
        lambda: ns.register(bytearray(64)).close(),
        lambda: ns.read(bytearray(BLOCK), offset=0),
        lambda: ns.read(reg, offset=0), ns.flush,
    ]

def around(calls):
    while not stop:
        seen = current
        if seen is None:
            continue
        for call in calls(*seen):
            try:
                call()
            except aiougds.ClosedError:
                answers.add("closed")
            except aiougds.ControllerBusyError:
                answers.add("busy")
            except BaseException as error:
                errors.append(error)
                raise
            else:
                answers.add("open")

def close(ns):
    try:
        ns.close()
    except aiougds.ControllerBusyError:  # the other one closes it
        pass

def main(calls):
    global current, stop
    threads = [threading.Thread(target=around, args=(calls,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 1.5
    while time.monotonic() < end or not {{"open", "closed"}} <= answers:
        ns = blocking.open("emu:?size=1MiB&threads=1&queues=3", queues=3)
        reg = ns.register(bytearray(BLOCK))
        current = ns, reg
        time.sleep(0.002)
        closers = [threading.Thread(target=close, args=(ns,)) for _ in range(2)]
        for thread in closers:
            thread.start()
        for thread in closers:
            thread.join()
        assert ns.closed
    stop = True
    for thread in threads:
        thread.join()
    assert errors == [], errors
    print("well")

main(looks if KIND == "looks" else uses)
"""


def test_closed_while_others_are_at_it() -> None:
    bodies = [SCRIPT.format(kind=kind) for kind in ("looks", "uses")]
    assert check_all_quiet(bodies) == ["well\n"] * 2
