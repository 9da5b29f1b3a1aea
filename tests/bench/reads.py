"""Contestants that read 4 KiB pieces of one cached file, one after another."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter_ns

import aiougds
from aiougds.cli._suites.movers import One, Shape
from aiougds.cli._suites.peers import HOST_PEERS
from aiougds.cli._suites.sides import Place
from bench.stage import PAGE, Stage

Contestant = Callable[[], Awaitable[float]]
PEERS = ("to_thread", "caio-aio", "caio-uring")
MANY, FEW = 1000, 150  # operations a round: of what costs little, of thread hops


def per_op(start: int, count: int) -> float:
    """Return microseconds an operation since ``start``."""
    return (perf_counter_ns() - start) / count / 1000


@asynccontextmanager
async def contestants(
    stage: Stage, options: str, **keywords: object
) -> AsyncIterator[dict[str, Contestant]]:
    """Ours first, then ``asyncio.to_thread``, caio's contexts and plain ``preadv``."""
    offsets = stage.offsets(MANY)
    buf = bytearray(PAGE)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        address = f"emu:{stage.path}{options}"
        place = Place(address=address, path=str(stage.path))
        ns = await enter(aiougds.open(address, **keywords))  # type: ignore[arg-type]
        memory = await enter(ns.allocate(PAGE))
        part = memory[0:PAGE]
        fd = os.open(stage.path, os.O_RDONLY)
        stack.callback(os.close, fd)

        async def ours() -> float:
            read = ns.read
            start = perf_counter_ns()
            for offset in offsets:
                await read(part, offset=offset)
            return per_op(start, MANY)

        async def preadv() -> float:
            start = perf_counter_ns()
            for offset in offsets:
                os.preadv(fd, [buf], offset)
            return per_op(start, MANY)

        found: dict[str, Contestant] = {"ours": ours}
        for peer in HOST_PEERS:
            if peer.name in PEERS and not peer.why_not(place):
                mover = await enter(peer.opened(place, None, Shape(size=PAGE)))
                found[peer.name] = peer_reader(mover.steps(0).read, offsets)
        found["preadv"] = preadv
        yield found


def peer_reader(read: One, offsets: list[int]) -> Contestant:
    """Return a contestant that reads through a peer of ``aiougds bench``."""

    async def run() -> float:
        start = perf_counter_ns()
        for offset in offsets[:FEW]:
            await read(offset)
        return per_op(start, FEW)

    return run
