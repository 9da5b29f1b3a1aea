"""The life of a command: every point is there, and in order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from life.conftest import Case, Live
from life.live import BLOCK, address

import aiougds.blocking
from aiougds import ArgumentError, CapabilityError, CommandTimeline, MediaError, _native
from aiougds._timeline import events_of, steady, timelines
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio
PATIENCE_S = 30  # what is so as a rule is seen by then, however busy the machine


def in_order(line: CommandTimeline) -> bool:
    points = (
        line.submitted_ns, line.queued_ns, line.doorbell_ns, line.completed_ns,
        line.future_ns, line.resumed_ns,
    )  # fmt: skip
    there = [point for point in points if point is not None]
    return there == sorted(there)


@pytest.mark.few
def test_probes_are_in_the_library() -> None:
    """A note names provider, probe and where its arguments are."""
    library = Path(_native.__file__).read_bytes()
    for name, sizes in ((b"submit", b"24"), (b"complete", b"214288")):
        at = library.index(b"aiougds\0" + name + b"\0")
        where = library[at:].split(b"\0")[2].split()
        assert b"".join(argument[:1] for argument in where) == sizes
        assert all(argument[1:2] == b"@" for argument in where)


@pytest.mark.few
def test_of_a_thread() -> None:
    with aiougds.blocking.open(address()) as ns, ns.allocate(2 * BLOCK) as reg:
        ns.controller.trace(60)
        ns.read(reg[:BLOCK], offset=BLOCK)
        ns.read_many([(reg[:BLOCK], 0), (reg[BLOCK:], BLOCK)])
        ns.controller.trace(0)
        seen = ns.controller.timelines()
    assert [(line.command, line.nbytes) for line in seen] == [("read", BLOCK)] * 3
    for line in seen:
        assert in_order(line), line
        assert line.resumed_ns is None


async def test_of_reads(live: Live, case: Case) -> None:
    async with live("latency=300us") as ns, ns.allocate(4 * BLOCK) as reg:
        await ns.read(reg[:BLOCK], offset=0)
        assert ns.controller.timelines() == ()
        began = time.monotonic_ns()
        ns.controller.trace(60)
        inline: list[bool] = []  # a thread that loses the processor finds its read done

        def told() -> bool:
            """Of the modes that do not look: one was awaited, as all are as a rule."""
            return case.mode not in ("interrupt", "poll") or not all(inline)

        end = time.monotonic() + PATIENCE_S
        while len(inline) < 5 or (not told() and time.monotonic() < end):
            i, before = len(inline), ns.controller.statistics().inline_completions
            await ns.read(reg[: (i % 4 + 1) * BLOCK], offset=i % 64 * BLOCK)
            inline.append(ns.controller.statistics().inline_completions > before)
        assert told()
        before = ns.controller.statistics().inline_completions
        await ns.write(reg[:BLOCK], offset=0, io_class="background")
        inline.append(ns.controller.statistics().inline_completions > before)
        ns.controller.trace(0)
        await ns.read(reg[:BLOCK], offset=0)
        seen = ns.controller.timelines()
        ended = time.monotonic_ns()
    *reads, write = seen
    assert [line.command for line in seen] == ["read"] * len(reads) + ["write"]
    sent, lba = range(len(inline) - 1), ns.lba_bytes
    assert [line.nbytes for line in reads] == [BLOCK * (i % 4 + 1) for i in sent]
    assert [line.slba * lba for line in reads] == [i % 64 * BLOCK for i in sent]
    assert (write.io_class, write.status) == ("background", 0)
    for line, at_once in zip(seen, inline, strict=True):
        assert in_order(line), line
        assert began <= line.submitted_ns
        assert line.completed_ns <= ended
        assert line.completed_ns - line.queued_ns >= 300_000
        assert line.doorbell_ns is not None
        assert (line.future_ns is None) == at_once, (case, line)
        assert (line.resumed_ns is None) == (at_once or case.loop == "trio"), case


async def test_of_a_batch(live: Live) -> None:
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        ns.controller.trace(60)
        await ns.read_many([(reg[i * BLOCK :][:BLOCK], i * BLOCK) for i in range(64)])
        seen = ns.controller.timelines()
        assert len(seen) == 64
        assert sorted(line.slba * ns.lba_bytes for line in seen) == [
            BLOCK * i for i in range(64)
        ]
        assert all(in_order(line) for line in seen)


async def test_of_a_split_request(live: Live) -> None:
    async with live("mdts=2") as ns, ns.allocate(64 * BLOCK) as reg:
        ns.controller.trace(60)
        await ns.read(reg, offset=0)
        seen = ns.controller.timelines()
        assert sum(line.nbytes for line in seen) == 64 * BLOCK
        assert {line.slba * ns.lba_bytes for line in seen} == {
            i * 4 * BLOCK for i in range(16)
        }


async def test_of_a_failure(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        ns.controller.trace(60)
        fault = Fault.status("read", sct=2, sc=0x81)
        with inject(ns, fault), pytest.raises(MediaError):
            await ns.read(reg, offset=0)
        (line,) = ns.controller.timelines()
        assert line.status & 0x7FF == 0x281


async def test_the_ring_keeps_the_last(live: Live) -> None:
    async with live() as ns, ns.allocate(64 * BLOCK) as reg:
        ns.controller.trace(60)
        for turn in range(80):
            await ns.read_many(
                [(reg[i * BLOCK :][:BLOCK], (turn + i) * BLOCK) for i in range(64)]
            )
        seen = ns.controller.timelines()
        assert 2000 < len(seen) < 4096
        assert seen[-1].slba * ns.lba_bytes >= 79 * BLOCK


async def test_it_ends_by_itself(live: Live) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        ns.controller.trace(1e-9)
        await ns.read(reg, offset=0)
        assert ns.controller.timelines() == ()


async def test_refusals(live: Live) -> None:
    async with live(statistics=False) as ns:
        with pytest.raises(CapabilityError, match="statistics=False"):
            ns.controller.trace(1)
        assert ns.controller.timelines() == ()
        for seconds in (-1, 3601):
            with pytest.raises(ArgumentError, match="outside"):
                ns.controller.trace(seconds)


def ring(*numbers: int) -> memoryview:
    words = [0] * 8 * 4
    for number in numbers:
        at = (number - 1) % 4 * 8
        words[at : at + 8] = [number, 100 + number, 7, 1, 2, 3, 1 << 32, 0x0201]
    return memoryview(b"".join(word.to_bytes(8, "little") for word in words)).cast("Q")


def test_what_changes_while_it_is_read_is_left_out() -> None:
    assert sorted(events_of(ring(1, 2, 3))) == [1, 2, 3]
    assert sorted(steady(ring(1, 2, 3), ring(5, 2, 3))) == [2, 3]
    torn = ring(1, 2).tolist()
    torn[0] = 2  # a number that has no business in its place
    odd = memoryview(b"".join(word.to_bytes(8, "little") for word in torn)).cast("Q")
    assert sorted(events_of(odd)) == [2]
    assert [
        line.completed_ns for line in timelines(events_of(ring(3, 4)).values())
    ] == [
        103,
        104,
    ]
