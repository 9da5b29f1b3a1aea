"""Bad requests: a typed error with value, limit and remedy, and nothing is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest
from helpers.model import PAGE
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    OptionError,
    RangeError,
    UGDSError,
    WrongLoopError,
    blocking,
)


@pytest.mark.core
async def test_bad_offsets_and_lengths(world: World) -> None:
    """The same for registered memory (checked in C) and for any other."""
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(2 * PAGE) as reg:
        for buf in (reg, reg[:], bytearray(2 * PAGE)):
            for name in ("read", "write", "compare"):
                for offset, keywords, kind, words in (
                    (1, {}, AlignmentError, f"{name}: offset 1 .* block size 4096"),
                    (512, {}, AlignmentError, f"{name}: offset 512 .* block size 4096"),
                    (MIB, {}, RangeError, f"{name}: .* past the end .* at {MIB}"),
                    (MIB - PAGE, {}, RangeError, f"end at {MIB + PAGE}, past the end"),
                    (1 << 40, {}, RangeError, "past the end"),
                    ((1 << 63) - PAGE, {}, RangeError, "past the end"),
                    ((1 << 64) - PAGE, {}, RangeError, "past the end"),
                    ((1 << 64) - 2 * PAGE, {}, RangeError, "past the end"),
                    (1 << 64, {}, RangeError, "past the end"),
                    (1 << 100, {}, RangeError, "past the end"),
                    (-PAGE, {}, RangeError, "offset=-4096: it cannot be negative"),
                    (-1, {}, RangeError, "cannot be negative"),
                    ("0", {}, ArgumentTypeError, "offset='0': an integer"),
                    (0.0, {}, ArgumentTypeError, "offset=0.0: an integer"),
                    (None, {}, ArgumentTypeError, "offset=None: an integer"),
                    (0, {"nbytes": 100}, AlignmentError, f"{name}: length 100 "),
                    (0, {"nbytes": -PAGE}, RangeError, "nbytes=-4096: it cannot be"),
                    (0, {"nbytes": 3 * PAGE}, RangeError, "more than the 8192 bytes"),
                    (0, {"nbytes": 1.0}, ArgumentTypeError, "nbytes=1.0: an integer"),
                    (0, {"nbytes": 1 << 80}, RangeError, "nbytes=1208925"),
                    (0, {"mode": "fast"}, OptionError, "mode='fast'.*adaptive, inline"),
                ):
                    with nothing_sent(ns), pytest.raises(kind, match=words) as caught:
                        await getattr(ns, name)(buf, offset=offset, **keywords)
                    assert isinstance(caught.value, UGDSError)
                    assert isinstance(caught.value, ArgumentError)
        assert reg.inflight == 0
        assert await ns.read(reg, offset=0) == 2 * PAGE


async def test_numbers_beyond_64_bits(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(2 * PAGE) as reg:
        where = np.zeros(1, dtype=np.int64)
        for huge in (1 << 63, 1 << 64, 1 << 100):
            for call in (
                lambda n=huge: ns.write_zeroes(offset=n, nbytes=PAGE),
                lambda n=huge: ns.write_zeroes(offset=0, nbytes=n),
                lambda n=huge: ns.deallocate(offset=0, nbytes=n),
                lambda n=huge: ns.verify(offset=n, nbytes=PAGE),
                lambda n=huge: ns.read_many([(reg[:PAGE], 0), (reg[:PAGE], n)]),
                lambda n=huge: ns.write_many([(reg[:PAGE], n)]),
                lambda n=huge: ns.read_many(reg, offsets=where, nbytes=n),
            ):
                with nothing_sent(ns), pytest.raises(RangeError, match="past the end"):
                    await call()
        assert reg.inflight == 0


async def test_unknown_edges(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for buf in (reg, bytearray(PAGE)):
            with nothing_sent(ns), pytest.raises(OptionError, match="bounce, refuse"):
                await ns.read(buf, offset=0, edges="round")


async def test_time_limits_are_checked_before_anything_is_sent(world: World) -> None:
    """A command that nobody waits for would write to memory that nobody holds."""
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for timeout_s in (0, -1.0, float("nan"), "1"):
            for call in (
                lambda t=timeout_s: ns.read(reg, offset=0, timeout_s=t),
                lambda t=timeout_s: ns.write(reg, offset=0, timeout_s=t),
                lambda t=timeout_s: ns.compare(reg, offset=0, timeout_s=t),
                lambda t=timeout_s: ns.read(bytearray(PAGE), offset=0, timeout_s=t),
                lambda t=timeout_s: ns.read_many([(reg, 0)], timeout_s=t),
                lambda t=timeout_s: ns.flush(timeout_s=t),
            ):
                with nothing_sent(ns), pytest.raises(OptionError, match="timeout_s="):
                    await call()
        assert reg.inflight == 0
        assert await ns.read(reg, offset=0, timeout_s=30) == PAGE


async def test_integers_of_other_kinds(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for offset in (np.int64(PAGE), np.uint32(PAGE), True * PAGE):
            assert await ns.read(reg, offset=offset) == PAGE
            assert await ns.read(reg, offset=0, nbytes=offset) == PAGE


async def test_errors_are_built_in_errors_too(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        for kind, offset in ((ValueError, 1), (ValueError, MIB), (TypeError, "0")):
            with pytest.raises(kind) as caught:
                await ns.read(reg, offset=offset)
            assert isinstance(caught.value, OSError)
            assert caught.value.errno


def elsewhere(work: Callable[[], object]) -> UGDSError | None:
    """Run something in another thread and return what it raised."""
    raised: list[UGDSError] = []

    def main() -> None:
        try:
            work()
        except UGDSError as exc:
            raised.append(exc)

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    return raised[0] if raised else None


async def test_a_batch_stays_on_its_loop_or_thread(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(PAGE) as reg,
        ns.batch(4) as batch,
    ):
        batch.read(reg, offset=0)
        batch.submit()
        if world.loop == "blocking":
            error = elsewhere(batch.inner.harvest)
        else:
            error = elsewhere(lambda: asyncio.run(batch.harvest(1)))
        assert isinstance(error, WrongLoopError)
        assert isinstance(error, RuntimeError)
        assert len(await batch.harvest(1)) == 1


async def test_nothing_is_awaited_without_a_loop(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        if world.loop == "blocking":
            return

        def work() -> None:
            ns.read(reg, offset=0).send(None)

        with nothing_sent(ns):
            error = elsewhere(work)
        assert isinstance(error, WrongLoopError)
        assert "blocking" in str(error)


async def test_blocking_calls_are_refused_inside_a_loop(world: World) -> None:
    if world.loop == "blocking":
        with blocking.open(world.address()) as ns:

            async def inside() -> None:
                ns.read(bytearray(PAGE), offset=0)

            with nothing_sent(ns), pytest.raises(WrongLoopError, match="running event"):
                asyncio.run(inside())
        return
    with pytest.raises(WrongLoopError, match="running event loop"):
        blocking.open(world.address())


@pytest.mark.core
async def test_a_closed_namespace_refuses(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        assert await ns.read(reg, offset=0) == PAGE
        await reg.aclose()
    assert ns.closed
    for call in (
        lambda: ns.read(reg, offset=0),
        lambda: ns.read(bytearray(PAGE), offset=0),
        lambda: ns.write(bytes(PAGE), offset=0),
        lambda: ns.write_zeroes(offset=0, nbytes=PAGE),
        lambda: ns.flush(),
        lambda: ns.write_many([]),
    ):
        with pytest.raises(ClosedError, match="closed"):
            await call()
    await ns.aclose()
