"""A controller that does not answer: what it says, what it keeps, what ends it."""

from __future__ import annotations

import errno
import re

import anyio
import pytest
from life.conftest import Live
from life.live import BLOCK, Clock, pattern, until

from aiougds import (
    ControllerBusyError,
    ControllerWedgedError,
    Namespace,
    RegistrationBusyError,
)
from aiougds.testing import Fault, counters, inject

pytestmark = pytest.mark.anyio


async def wedged(ns: Namespace, reg: object) -> list[ControllerWedgedError]:
    """Read into two places; both are kept, and the device refuses to abort them."""
    ended: list[ControllerWedgedError] = []

    async def read(start: int) -> None:
        with pytest.raises(ControllerWedgedError) as over:
            await ns.read(reg[start : start + BLOCK], offset=start)  # type: ignore[index]
        ended.append(over.value)

    async with anyio.create_task_group() as group:
        group.start_soon(read, 0)
        group.start_soon(read, 2 * BLOCK)
    return ended


@pytest.mark.few
async def test_says_why_and_since_when(live: Live) -> None:
    async with live(hang_timeout_s=0.1) as ns, ns.allocate(4 * BLOCK) as reg:
        refuse = inject(ns, Fault("abort_refused"))
        held = inject(ns, Fault.hold("read"))
        ended = await wedged(ns, reg)
        clock = Clock()
        assert [error.errno for error in ended] == [errno.EHOSTDOWN] * 2
        controller = ns.controller
        assert controller.state == "wedged"
        assert "did not complete" in controller.state_reason
        assert "nor after an Abort" in controller.state_reason
        assert counters(ns).aborts >= 1
        # All that was outstanding is kept, and named.
        assert sorted((q.buf_offset, q.nbytes) for q in controller.quarantine) == [
            (0, BLOCK),
            (2 * BLOCK, BLOCK),
        ]
        assert all(q.queue_id > 0 and q.age_s >= 0 for q in controller.quarantine)
        # New work is refused, with the reason and the time.
        await anyio.sleep(0.25)
        for call in (
            lambda: ns.read(reg, offset=0),
            lambda: ns.flush(),
            lambda: ns.read_many([(reg[BLOCK : 2 * BLOCK], 0)]),
            lambda: ns.read(bytearray(BLOCK), offset=0),
            lambda: controller.identify(),
        ):
            with pytest.raises(ControllerWedgedError) as refusal:
                await call()
            words = str(refusal.value)
            assert controller.state_reason in words
            assert "reset()" in words
            found = re.search(r"wedged for (\d+\.\d) s", words)
            assert found is not None
            assert clock.elapsed - 0.1 <= float(found[1]) <= clock.elapsed + 3
        # It can be looked at.
        assert controller.namespaces() == [1]
        assert controller.info.serial
        assert controller.capabilities.queue_pairs > 0
        assert controller.statistics().quarantined == 2
        assert "wedged" in repr(controller)
        assert "open" in repr(ns)
        # Nothing is let go.
        with pytest.raises(RegistrationBusyError):
            await reg.aclose(timeout_s=0)
        with pytest.raises(ControllerBusyError):
            await ns.aclose(timeout_s=0)
        assert controller.state == "wedged"
        refuse.clear()
        await controller.reset()
        held.clear()
        assert controller.quarantine == ()
        assert controller.state_reason == ""
        assert await ns.read(reg, offset=0) == 4 * BLOCK


@pytest.mark.few
async def test_a_late_completion_releases_its_own_entry(live: Live) -> None:
    data = pattern(4 * BLOCK)
    async with live(hang_timeout_s=0.1) as ns, ns.allocate(4 * BLOCK) as reg:
        await ns.write(data, offset=0)
        refuse = inject(ns, Fault("abort_refused"))
        first = inject(ns, Fault.hold("read").on(slba=0, nlb=1))
        second = inject(ns, Fault.hold("read").on(slba=2, nlb=1))
        await wedged(ns, reg)
        first.clear()
        await until(lambda: len(ns.controller.quarantine) == 1)
        assert [q.buf_offset for q in ns.controller.quarantine] == [2 * BLOCK]
        assert reg.view[:BLOCK] == data[:BLOCK]  # late, into memory that was kept
        assert ns.controller.state == "wedged"  # one answer does not heal it
        second.clear()
        await until(lambda: not ns.controller.quarantine)
        await reg.aclose(timeout_s=0)
        refuse.clear()
        await ns.controller.reset()
        async with ns.allocate(BLOCK) as other:
            assert await ns.read(other, offset=0) == BLOCK


@pytest.mark.soak
@pytest.mark.few
async def test_a_stall_of_two_seconds_wedges_nothing(live: Live) -> None:
    """As of a drive that collects its garbage; another queue goes on meanwhile."""
    async with live() as ns, ns.allocate(9 * BLOCK) as reg:
        results: list[int] = []

        async def read(i: int) -> None:
            part = reg[i * BLOCK : (i + 1) * BLOCK]
            results.append(await ns.read(part, offset=i * BLOCK))

        with inject(ns, Fault.delay(2.0, "read")):
            clock = Clock()
            async with anyio.create_task_group() as group:
                for i in range(8):
                    group.start_soon(read, i)
                await ns.write(reg[8 * BLOCK :], offset=100 * BLOCK)
                assert clock.within(0, 1.9)
            assert clock.elapsed >= 2
        assert results == [BLOCK] * 8
        stats = ns.controller.statistics()
        assert (stats.aborts, stats.timeouts, stats.cancels, stats.resets) == (0,) * 4
        assert ns.controller.state == "live"


@pytest.mark.soak
@pytest.mark.few
async def test_beyond_the_limit(live: Live) -> None:
    """First a look for a lost interrupt, then an Abort, and only then it is wedged."""
    async with live(hang_timeout_s=0.3) as ns, ns.allocate(2 * BLOCK) as reg:
        with inject(ns, Fault.lose_interrupt("read", count=1)):
            assert await ns.read(reg[:BLOCK], offset=0) == BLOCK
        assert counters(ns).aborts == 0
        # A command that an Abort ends does not wedge the controller ...
        with inject(ns, Fault.hold("read", count=1)):
            with pytest.raises(OSError, match="Abort Requested") as gone:
                await ns.read(reg[:BLOCK], offset=0)
            assert gone.value.errno == errno.ECANCELED
        assert ns.controller.state == "live"
        assert counters(ns).aborts == 1
        # ... and one that it does not end, does.
        with inject(ns, Fault.drop("read", count=1)):
            clock = Clock()
            with pytest.raises(ControllerWedgedError):
                await ns.read(reg[:BLOCK], offset=0)
            assert clock.elapsed >= 0.3
        assert counters(ns).aborts == 2
        await ns.controller.reset()
        assert await ns.read(reg, offset=0) == 2 * BLOCK
