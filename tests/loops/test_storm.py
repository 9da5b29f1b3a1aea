"""Ctrl-C at any moment of a blocking call: it raises, and nothing hangs."""

from __future__ import annotations

import random
import signal

import pytest
from life.live import BLOCK, address

from aiougds import blocking
from aiougds._completion import blocking_depth


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings(
    # between making a coroutine and running it, too
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_storm_of_interrupts() -> None:
    seed = random.Random(20261129)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupts = 0
    try:
        with (
            blocking.open(address("latency=100us")) as ns,
            ns.register(bytearray(BLOCK)) as reg,
        ):
            for _ in range(200):
                try:
                    signal.setitimer(signal.ITIMER_REAL, seed.uniform(1e-3, 3e-3))
                    while True:
                        assert ns.read(reg, offset=0) == BLOCK
                except KeyboardInterrupt:
                    interrupts += 1
                    # Wherever it came: the device has let go of the memory.
                    assert reg.inflight == 0
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert ns.read(reg, offset=0) == BLOCK
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts == 200
    # None of them left the thread as if it were still inside a blocking call.
    assert blocking_depth() == 0
