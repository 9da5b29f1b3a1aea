"""Signals are the program's: its own threads take them, and no I/O is lost to them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from life.live import BLOCK, address
from loops.child import check_all_quiet

import aiougds
from aiougds import blocking

# What only a crash raises: left to the program's handlers, faulthandler's for one.
CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT,
    signal.SIGTRAP, signal.SIGSYS, signal.SIGKILL, signal.SIGSTOP,
}  # fmt: skip


def masks() -> dict[str, int]:
    """Return the blocked signals of our native threads, by name and number."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        name = fields["Name"].strip()
        if name.startswith("ugds-"):
            found[f"{name} {task.name}"] = int(fields["SigBlk"], 16)
    return found


@pytest.mark.parametrize("mode", ["adaptive", "poll"])
def test_no_thread_of_ours_takes_a_signal(mode: aiougds.Mode) -> None:
    with blocking.open(address("threads=2"), mode=mode) as ns:
        assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
        seen = masks()
        names = {name.split()[0] for name in seen}
        assert {"ugds-hk", "ugds-emu-0", "ugds-emu-1"} <= names
        assert ("ugds-exec" in names) == (mode == "poll")
        wanted = sum(1 << (number - 1) for number in set(signal.Signals) - CRASHES)
        for name, blocked in seen.items():
            assert blocked & wanted == wanted, (name, hex(wanted & ~blocked))


SLEEPER = """
# The main thread takes no SIGUSR1 for now: the kernel looks for another that does.
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
with blocking.open("emu:?size=1MiB", mode="{mode}") as ns:
    ns.read(bytearray(BLOCK), offset=0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    ns.read(bytearray(BLOCK), offset=0)
    assert signal.SIGUSR1 in signal.sigpending()
    print("pending")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
"""

STORM = """
ticks = 0
def tick(number, frame):
    global ticks
    ticks += 1
ROUNDS = 150
ADDRESS = "emu:?size=4MiB&latency=50us"

def storm(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

def check(ns):
    storm(0)  # a loop that closes is told of signals through a pipe that breaks
    stats = ns.controller.statistics()
    assert (stats.inflight, stats.dropped, stats.quarantined) == (0, 0, 0), stats
    assert stats.reads == 3 * stats.writes and stats.writes >= ROUNDS, stats
    seen = aiougds.testing.counters(ns)
    assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
    print("nothing lost")

def rounds():
    # Enough of them, and of signals, which come seldom to who has no processor.
    number = 0
    while number < ROUNDS or ticks <= 20:
        yield number
        number += 1

async def main():
    async with aiougds.open(ADDRESS, mode=mode) as ns:
        async with ns.allocate(4 * BLOCK) as reg:
            storm(0.001)
            for number in rounds():
                data = os.urandom(BLOCK)
                assert await ns.write(data, offset=number % 64 * BLOCK) == BLOCK
                pairs = [(reg[:BLOCK], number % 64 * BLOCK), (reg[BLOCK:2*BLOCK], 0)]
                assert await ns.read_many(pairs) == [BLOCK] * 2
                assert reg.view[:BLOCK] == data
                assert await ns.read(reg[2*BLOCK:3*BLOCK], offset=0) == BLOCK
        check(ns)

def blocking_main():
    with blocking.open(ADDRESS, mode=mode) as ns:
        with ns.allocate(4 * BLOCK) as reg:
            storm(0.001)
            for number in rounds():
                data = os.urandom(BLOCK)
                assert ns.write(data, offset=number % 64 * BLOCK) == BLOCK
                pairs = [(reg[:BLOCK], number % 64 * BLOCK), (reg[BLOCK:2*BLOCK], 0)]
                assert ns.read_many(pairs) == [BLOCK] * 2
                assert reg.view[:BLOCK] == data
                assert ns.read(reg[2*BLOCK:3*BLOCK], offset=0) == BLOCK
        check(ns)

signal.signal(signal.SIGALRM, tick)
for mode in ("adaptive", "interrupt", "poll", "inline"):
    ticks = 0
    {end}
"""
ENDS = {
    "asyncio": "asyncio.run(main())",
    "uvloop": "__import__('uvloop').run(main())",
    "trio": "__import__('trio').run(main)",
    "blocking": "blocking_main()",
}


def test_a_blocked_signal_goes_to_nobody_else() -> None:
    bodies = [SLEEPER.format(mode=mode) for mode in ("adaptive", "poll")]
    assert check_all_quiet(bodies) == ["pending\nhandled\n"] * 2


def test_a_thousand_signals_a_second() -> None:
    bodies = [STORM.format(end=end) for end in ENDS.values()]
    assert check_all_quiet(bodies) == ["nothing lost\n" * 4] * 4


def test_eintr_never_surfaces(tmp_path: Path) -> None:
    """Opening, closing, resetting and admin commands under the same storm."""
    body = """
    ticks = 0
    def tick(number, frame):
        global ticks
        ticks += 1
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    path = sys.argv[1]
    rounds = 0
    while rounds < 15 or ticks <= 20:
        rounds += 1
        with blocking.open(f"emu:{path}?size=1MiB") as ns:
            ns.write(bytes(BLOCK), offset=0, fua=True)
            ns.controller.reset()
            ns.controller.smart_log()
            ns.flush()
            with ns.batch(4) as batch, ns.allocate(BLOCK) as reg:
                batch.read(reg[:], offset=0)
                batch.submit()
                assert [item.result for item in batch.harvest(1)] == [BLOCK]
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("done")
    """
    assert check_all_quiet([body], str(tmp_path / "data")) == ["done\n"]
