"""``as_completed``: results as they end, and a clean exit at any moment."""

from __future__ import annotations

import pytest
from helpers.model import PAGE, numbered
from helpers.world import MIB, Opened, World, nothing_sent

from aiougds import (
    AlignmentError,
    ClosedError,
    MediaError,
    MemoryLayoutError,
    OptionError,
    RangeError,
)
from aiougds.testing import Fault, inject


def parts(reg: Opened, count: int) -> list[tuple[Opened, int]]:
    return [(reg[i * PAGE : (i + 1) * PAGE], i * PAGE) for i in range(count)]


@pytest.mark.core
async def test_every_index_once(world: World) -> None:
    count = 150
    async with world.open(emu={"size": MIB}) as ns:
        data = numbered(count, PAGE)
        async with ns.register(bytearray(data)) as reg:
            for op in ("write", "read"):
                seen = {}
                async with ns.as_completed(
                    parts(reg, count), op=op, capacity=16
                ) as done:
                    async for index, result in done:
                        assert index not in seen
                        seen[index] = result
                assert seen == dict.fromkeys(range(count), PAGE)
                if op == "write":
                    reg.view[:] = bytes(len(data))
            assert reg.view == data


@pytest.mark.core
async def test_leaving_early(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(64 * PAGE) as reg:
        async with ns.as_completed(parts(reg, 64), capacity=8) as done:
            async for index, result in done:
                assert result == PAGE
                assert 0 <= index < 64
                break
        assert reg.inflight == 0
        assert ns.controller.statistics().inflight == 0
        assert await ns.read(reg, offset=0) == 64 * PAGE


async def test_leaving_by_an_exception(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(64 * PAGE) as reg:

        async def leave() -> None:
            async with ns.as_completed(parts(reg, 64), capacity=8) as done:
                async for _index, _result in done:
                    raise KeyError("out")

        with (
            inject(ns, Fault.delay(0.01, "read")),
            pytest.raises(KeyError, match="out"),
        ):
            await leave()
        assert reg.inflight == 0


async def test_a_failure_is_a_result(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(16 * PAGE) as reg:
        with inject(ns, Fault.status("read", sct=2, sc=0x81).on(slba=5, nlb=2)):
            async with ns.as_completed(parts(reg, 16), capacity=4) as done:
                results = {index: result async for index, result in done}
        bad = {i for i, result in results.items() if isinstance(result, MediaError)}
        assert bad == {5, 6}
        assert all(results[i] == PAGE for i in range(16) if i not in bad)
        assert results[5].offset == 5 * PAGE


async def test_the_first_to_end_comes_first(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(4 * PAGE) as reg:
        with inject(ns, Fault.hold("read").on(slba=0, nlb=1)) as fault:
            async with ns.as_completed(parts(reg, 4)) as done:
                order = []
                async for index, _result in done:
                    order.append(index)
                    if len(order) == 3:
                        fault.clear()
        assert sorted(order[:3]) == [1, 2, 3]
        assert order[3] == 0


async def test_nothing_to_complete(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        with nothing_sent(ns):
            async with ns.as_completed([]) as done:
                assert [item async for item in done] == []
            async with ns.as_completed([(reg[0:0], 0)]) as done:
                assert [item async for item in done] == [(0, 0)]


async def test_bad_requests_send_nothing(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for bad, kind, words in (
            ((reg, 1), AlignmentError, "block size"),
            ((reg, MIB), RangeError, "past the end"),
            ((bytearray(PAGE), 0), MemoryLayoutError, "not registered"),
        ):
            with nothing_sent(ns), pytest.raises(kind, match=words) as caught:
                ns.as_completed([(reg, 0), bad])
            assert caught.value.__notes__ == ["item 1"]
        with nothing_sent(ns), pytest.raises(OptionError, match=r"op='erase'.*write"):
            ns.as_completed([(reg, 0)], op="erase")
        with nothing_sent(ns), pytest.raises(OptionError, match="capacity=0"):
            ns.as_completed([(reg, 0)], capacity=0)


async def test_it_is_entered_once(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        done = ns.as_completed([(reg, 0)])
        async with done as entered:
            assert [item async for item in entered] == [(0, PAGE)]
        with pytest.raises(ClosedError, match="entered before"):
            async with done:
                raise AssertionError("it was entered twice")
