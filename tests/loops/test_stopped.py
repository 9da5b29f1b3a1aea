"""A process that is stopped and continued: time in which nobody looked is no hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from loops.child import HEADER

SCRIPT = """
mode, how, hang = sys.argv[1], sys.argv[2], float(sys.argv[3])
OPTIONS = dict(mode=mode, hang_timeout_s=hang, admin_timeout_s=hang)

def ready_to_be_stopped():
    print("ready", flush=True)
    sys.stdin.readline()

def hold_over_the_stop(held):
    while not held.hits:
        time.sleep(0.001)
    ready_to_be_stopped()
    # At the device still, for a part of the limit once more.
    time.sleep(hang / 4)
    held.clear()

def judge(ns, result):
    assert result == BLOCK, result
    stats = ns.controller.statistics()
    assert (stats.aborts, stats.timeouts, stats.quarantined) == (0, 0, 0), stats
    assert ns.controller.state == "live", ns.controller.state_reason
    seen = aiougds.testing.counters(ns)
    assert (seen.iommu_faults, seen.protocol_errors, seen.aborts) == (0, 0, 0), seen
    print("well")

def outstanding(ns):
    if how == "outstanding":
        held = inject(ns, Fault.hold("read", count=1))
        threading.Thread(target=hold_over_the_stop, args=(held,)).start()
    else:
        ready_to_be_stopped()

async def main():
    async with aiougds.open("emu:?size=1MiB", **OPTIONS) as ns:
        async with ns.allocate(BLOCK) as reg:
            await ns.read(reg, offset=0)
            sys.stdin.readline()
            outstanding(ns)
            judge(ns, await ns.read(reg, offset=0))
            await ns.controller.smart_log()

def blocking_main():
    with blocking.open("emu:?size=1MiB", **OPTIONS) as ns:
        with ns.allocate(BLOCK) as reg:
            ns.read(reg, offset=0)
            sys.stdin.readline()
            outstanding(ns)
            judge(ns, ns.read(reg, offset=0))
            ns.controller.smart_log()
"""
ENDS = {
    "asyncio": "asyncio.run(main())",
    "uvloop": "import uvloop; uvloop.run(main())",
    "trio": "import trio; trio.run(main)",
    "blocking": "blocking_main()",
}
MODES = ("adaptive", "interrupt", "poll", "inline")
Child = subprocess.Popen[str]


def start(end: str, *arguments: str) -> Child:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEADER + SCRIPT + end, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tell(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("go on\n")
    child.stdin.flush()


def stop_for(seconds: float, children: list[Child]) -> None:
    """Stop each once its command is out, continue them, and tell them so."""
    for child in children:
        tell(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
    time.sleep(seconds)
    for child in children:
        os.kill(child.pid, signal.SIGCONT)
        tell(child)


def check_well(children: list[Child]) -> None:
    for child in children:
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out, err) == (0, "well\n", ""), child.args[3:]  # type: ignore[index]


def run_stopped(seconds: float, hang_s: float, *, ends: tuple[str, ...]) -> None:
    children = []
    try:
        for number, mode in enumerate(MODES):
            for how in ("outstanding", "idle"):
                end = ENDS[ends[number % len(ends)]]
                children.append(start(end, mode, how, str(hang_s)))
        stop_for(seconds, children)
        check_well(children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.communicate()


@pytest.mark.parametrize(
    ("seconds", "hang_s", "turn"), [(4.0, 2.0, 0), (0.9, 0.6, 1)], ids=["4s", "0.9s"]
)
def test_stopped_for_longer_than_the_hang_limit(
    seconds: float, hang_s: float, turn: int
) -> None:
    ends = tuple(ENDS)
    run_stopped(seconds, hang_s, ends=ends[turn:] + ends[:turn])


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_stopped_for_35_seconds() -> None:
    run_stopped(35.0, 30.0, ends=tuple(ENDS))
