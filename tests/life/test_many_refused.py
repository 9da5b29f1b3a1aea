"""What cannot be sent any more has its result too, and hides nobody else's."""

from __future__ import annotations

import errno

import pytest
from life.conftest import Live
from life.live import BLOCK, PATIENT_S, given_up, pattern, until

from aiougds import (
    BatchError,
    ControllerWedgedError,
    OperationTimeoutError,
    RangeBusyError,
    UGDSError,
)
from aiougds._bulk import LARGE
from aiougds._failure import Request, ended
from aiougds._ffi import Record, lib
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.anyio, pytest.mark.few]


async def test_as_completed_beyond_its_capacity_out_of_time(live: Live) -> None:
    async with live() as ns, ns.allocate(12 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(12)]
        with inject(ns, Fault.hold("read")):
            results: dict[int, int | UGDSError] = {}
            async with ns.as_completed(pairs, capacity=5, timeout_s=0.02) as done:
                async for index, result in done:
                    assert index not in results
                    results[index] = result
            assert sorted(results) == list(range(12))
            assert {type(result) for result in results.values()} == {
                OperationTimeoutError
            }
            assert "timeout_s=0.02" in str(results[11])
            assert "never sent" in str(results[11])
        await until(lambda: not ns.controller.quarantine)


async def test_as_completed_over_a_range_that_is_busy(live: Live) -> None:
    async with live() as ns, ns.allocate(8 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(8)]
        with inject(ns, Fault.hold("read").on(slba=100, nlb=1)):
            part = reg[2 * BLOCK : 3 * BLOCK]
            await given_up(ns, lambda t: ns.read(part, offset=100 * BLOCK, timeout_s=t))
            async with ns.as_completed(pairs) as done:
                results = {index: result async for index, result in done}
            assert isinstance(results.pop(2), RangeBusyError)
            assert results == dict.fromkeys((0, 1, 3, 4, 5, 6, 7), BLOCK)
        await until(lambda: not ns.controller.quarantine)


async def test_as_completed_on_a_controller_that_fails(live: Live) -> None:
    async with live(hang_timeout_s=1) as ns, ns.allocate(12 * BLOCK) as reg:
        pairs = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(12)]
        results: dict[int, int | UGDSError] = {}
        with inject(ns, Fault("cfs", "read", count=1).on(skip=3)):
            async with ns.as_completed(pairs, capacity=4) as done:
                async for index, result in done:
                    assert index not in results
                    results[index] = result
        assert sorted(results) == list(range(12))
        failed = [r for r in results.values() if isinstance(r, ControllerWedgedError)]
        assert 9 <= len(failed) <= 12
        await ns.controller.reset()
        assert await ns.read_many(pairs) == [BLOCK] * 12


@pytest.mark.parametrize("how", ["wedged", "late"])
async def test_a_later_window_is_refused(live: Live, how: str) -> None:
    """The first window's results are told all the same."""
    count = LARGE + 10
    data = pattern(BLOCK)
    late = how == "late"
    held = Fault.hold("read") if late else Fault.drop("read")
    for limit_s in PATIENT_S:
        async with (
            live("lba=512", hang_timeout_s=30 if late else limit_s) as ns,
            ns.allocate(count * 512) as reg,
        ):
            await ns.write(data, offset=0)
            pairs = [(reg[i * 512 : (i + 1) * 512], 0) for i in range(count)]
            assert ns.lba_bytes == 512
            with inject(ns, held.on(skip=LARGE - 20)) as fault:
                with pytest.raises(BatchError) as failed:
                    await ns.read_many(pairs, timeout_s=limit_s if late else None)
                hits = fault.hits
            if not late:
                await ns.controller.reset()
            await until(lambda: not ns.controller.quarantine)
        if hits:  # it came so far in its time
            break
    assert hits
    results = failed.value.results
    assert LARGE // 2 < sum(r == 512 for r in results[:LARGE]) <= LARGE - 20
    wanted = OperationTimeoutError if late else ControllerWedgedError
    assert all(isinstance(result, wanted) for result in results[LARGE:])
    assert len(results) == count


async def test_a_failure_that_is_repaired_already_is_told_as_one(live: Live) -> None:
    """Somebody may reset it before the waiter runs."""
    async with live() as ns:
        down = Record(1, -errno.EHOSTDOWN, lib.UGDS_UNKNOWN << 24, 0)
        request = Request(lib.UGDS_OP_READ, 0, BLOCK, BLOCK, 0, BLOCK, ns.size)
        error = ended(ns._device, down, request)
        assert type(error) is ControllerWedgedError
        assert "reset since" in str(error)
