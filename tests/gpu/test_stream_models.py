"""Random histories of GPU memory against a plain model.

Plain transfers, transfers on streams, sets and fills come one behind the other in an
order that is made in every way there is: by the stream itself, by ``after=``, by
``stream=``, by a stream that waits for the event, or by awaiting. So whatever runs too
early or too late, or elsewhere, leaves other bytes than a ``bytearray``.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, Final, Literal, NamedTuple

import pytest
from gpu.on_stream import cells_given_back, ended, obj, recorded
from gpu.rig import GPU
from helpers.facade import bare
from helpers.model import pattern
from helpers.world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from aiougds import Cell, StreamOperation

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
EXAMPLES: Final = int(os.environ.get("AIOUGDS_EXAMPLES", "25"))
LBA: Final = 512
BLOCKS: Final = 64
NBYTES: Final = BLOCKS * LBA
SKEW: Final = 3 * LBA  # the memory begins there in its allocation, and ends before it
PART: Final = 20 * LBA  # a registration inside the registration begins there
Kind = Literal["read", "write"]


class Move(NamedTuple):
    """Blocks of the namespace, and blocks of the memory."""

    kind: Kind
    block: int
    start: int
    count: int
    within: bool  # through the inner registration, where it lies in it
    registered: bool


class Step(NamedTuple):
    """Something that comes behind all before it."""

    what: Literal["plain", "bytes", "stream", "late", "set", "fill"]
    moves: list[Move]
    stream: int  # which; for plain ones: how they come behind
    order: Literal["await", "after", "stream"]
    busy: bool  # a kernel holds the stream up for a moment


@st.composite
def moves(draw: Any) -> Move:  # noqa: ANN401
    count = draw(st.integers(1, 16))
    return Move(
        draw(st.sampled_from(("read", "write"))),
        draw(st.integers(0, BLOCKS - count)),
        draw(st.integers(0, BLOCKS - count)),
        count,
        draw(st.booleans()),
        draw(st.integers(0, 3)) > 0,
    )


@st.composite
def sets(draw: Any) -> list[Move]:  # noqa: ANN401
    """Moves that are in no order: their blocks and their memory are each their own."""
    kinds = st.sampled_from(("read", "write"))
    blocks = draw(st.permutations(range(8)))
    starts = draw(st.permutations(range(8)))
    n = draw(st.integers(1, 5))
    return [
        Move(draw(kinds), 8 * block, 8 * start, draw(st.integers(1, 8)), False, True)
        for block, start in zip(blocks[:n], starts[:n], strict=True)
    ]


@st.composite
def steps(draw: Any) -> Step:  # noqa: ANN401
    what = draw(st.sampled_from(("plain", "bytes", "stream", "late", "set", "fill")))
    return Step(
        what,
        draw(sets()) if what == "set" else [draw(moves())],
        draw(st.integers(0, 1)),
        draw(st.sampled_from(("await", "after", "stream"))),
        draw(st.booleans()),
    )


class History:
    """The bytes as they are to be, and what the next step has to come behind."""

    def __init__(self, world: World, gpu: GPU, ptr: int, streams: list[int]) -> None:
        self.world, self.gpu, self.ptr, self.streams = world, gpu, ptr, streams
        self.disk = bytearray(pattern(NBYTES, 1))
        self.memory = bytearray(pattern(NBYTES, 2))
        self.ops: list[StreamOperation] = []
        self.cells: list[Cell] = []
        self.tail: int | None = None  # the stream that may not have come to it yet
        self.last: StreamOperation | None = None  # None: it ends with a fill

    def note(self, move: Move) -> None:
        at, start, n = (x * LBA for x in (move.block, move.start, move.count))
        if move.kind == "read":
            self.memory[start : start + n] = self.disk[at : at + n]
        else:
            self.disk[at : at + n] = self.memory[start : start + n]

    async def settle(self) -> None:
        if self.tail is not None:
            stream = obj(self.gpu, self.streams[self.tail])
            if self.last is not None:
                await ended(self.world, self.last)
            else:
                self.soft_sync(stream)
        self.tail = self.last = None

    def soft_sync(self, stream: Any) -> None:  # noqa: ANN401
        if self.gpu.name == "cuda":
            from cuda.bindings import driver

            assert int(driver.cuStreamSynchronize(stream)[0]) == 0
        else:
            from hip import hip

            assert int(hip.hipStreamSynchronize(stream)[0]) == 0

    def behind(self, step: Step, events: ExitStack) -> dict[str, Any]:
        """Return arguments that order a transfer behind what was before."""
        if self.tail is None:
            return {}
        handle = self.streams[self.tail]
        if step.what in ("plain", "bytes") and step.order == "stream":
            return {"stream": obj(self.gpu, handle)}
        if self.last is not None:
            return {"after": [self.last] if step.busy else self.last.event}
        return {"after": events.enter_context(recorded(self.gpu, handle))}


def view(step: Move, whole: Any, inner: Any, ptr: int, name: str) -> Any:  # noqa: ANN401
    start, end = step.start * LBA, (step.start + step.count) * LBA
    if not step.registered:
        return (ptr + start, end - start, name)
    if step.within and start >= PART:
        return bare(inner)[start - PART : end - PART]
    return bare(whole)[start:end]


async def do_plain(h: History, ns: Any, step: Step, buf: Any) -> None:  # noqa: ANN401
    (move,) = step.moves
    with ExitStack() as events:
        order = h.behind(step, events)
        if step.what == "bytes" and move.kind == "read":
            at, start = move.block * LBA + 7, move.start * LBA
            n = move.count * LBA - 9
            part = buf[:n] if move.registered else (h.ptr + start, n, h.gpu.name)
            assert await ns.read(part, offset=at, edges="bounce", **order) == n
            h.memory[start : start + n] = h.disk[at : at + n]
        else:
            call = ns.read if move.kind == "read" else ns.write
            assert await call(buf, offset=move.block * LBA, **order) == move.count * LBA
            h.note(move)
    h.tail = h.last = None


def do_fill(h: History, step: Step) -> None:
    (move,) = step.moves
    target = step.stream
    if h.tail is not None and h.tail != target:
        if h.last is not None:
            h.last.event.wait(obj(h.gpu, h.streams[target]))
        else:
            target = h.tail
    start, n = move.start * LBA, move.count * LBA
    h.gpu.api.fill(h.ptr + start, move.block, n, h.streams[target])
    h.memory[start : start + n] = bytes([move.block]) * n
    h.tail, h.last = target, None


def do_on_stream(h: History, ns: Any, step: Step, bufs: list[Any]) -> None:  # noqa: ANN401
    handle = h.streams[step.stream]
    on = handle if step.busy and step.stream else obj(h.gpu, handle)
    with ExitStack() as events:
        order = {} if h.tail == step.stream else h.behind(step, events)
        if step.what == "set":
            with ns.on_stream(on, **order) as group:
                for move, buf in zip(step.moves, bufs, strict=True):
                    add = group.read if move.kind == "read" else group.write
                    add(buf, offset=move.block * LBA)
            op = group.operation
        else:
            (move,), (buf,) = step.moves, bufs
            call = ns.read_on if move.kind == "read" else ns.write_on
            at: Any = move.block * LBA
            if step.what == "late":
                h.cells.append(Cell(at, device=h.gpu.name))
                at = h.cells[-1]
            op = call(on, buf, offset=at, **order)
    for move in step.moves:
        h.note(move)
    h.ops.append(op)
    h.tail, h.last = step.stream, op


@settings(max_examples=EXAMPLES)
@given(
    mdts=st.integers(0, 2),
    history=st.lists(steps(), min_size=2, max_size=12),
)
def test_histories(world: World, gpu: GPU, mdts: int, history: list[Step]) -> None:
    room = NBYTES + 2 * SKEW
    ptr = gpu.alloc(room)
    streams = [gpu.stream(), gpu.stream()]

    async def body() -> None:
        h = History(world, gpu, ptr + SKEW, streams)
        gpu.put(h.ptr, bytes(h.memory))
        inside = (h.ptr + PART, NBYTES - PART, gpu.name)
        emu = {"size": NBYTES, "lba": LBA, "mdts": mdts}
        async with (
            world.open(emu=emu) as ns,
            ns.register((h.ptr, NBYTES, gpu.name)) as whole,
            ns.register(inside) as inner,
        ):
            await ns.write(bytes(h.disk), offset=0)
            for step in history:
                if step.busy:
                    gpu.soft.kernel(streams[step.stream], seconds=0.002)
                if step.order == "await":
                    await h.settle()
                    assert gpu.get(h.ptr, NBYTES) == h.memory
                bufs = [view(m, whole, inner, h.ptr, gpu.name) for m in step.moves]
                if step.what in ("plain", "bytes"):
                    await do_plain(h, ns, step, bufs[0])
                elif step.what == "fill":
                    do_fill(h, step)
                else:
                    do_on_stream(h, ns, step, bufs)
            await h.settle()
            for op in h.ops:
                await ended(world, op)
            seen = bytearray(NBYTES)
            await ns.read(seen, offset=0)
            assert seen == h.disk
        guard = b"\xee" * SKEW
        assert gpu.get(ptr, room) == guard + bytes(h.memory) + guard

    with cells_given_back():
        world.run(body())
    for stream in streams:
        gpu.destroy(stream)
    gpu.free(ptr)
