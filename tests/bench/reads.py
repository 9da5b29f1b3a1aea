"""Contestants that read 4 KiB pieces of one cached file, one after another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from functools import partial
from time import perf_counter_ns

import aiougds
from bench.stage import PAGE, Stage

Contestant = Callable[[], Awaitable[float]]
CaioMaker = Callable[[], AbstractAsyncContextManager[object]]
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

        async def to_thread() -> float:
            start = perf_counter_ns()
            for offset in offsets[:FEW]:
                await asyncio.to_thread(os.preadv, fd, [buf], offset)
            return per_op(start, FEW)

        async def preadv() -> float:
            start = perf_counter_ns()
            for offset in offsets:
                os.preadv(fd, [buf], offset)
            return per_op(start, MANY)

        found: dict[str, Contestant] = {"ours": ours, "to_thread": to_thread}
        for name, context in caio_contexts():
            opened = await enter(context())
            found[name] = caio_reader(opened, fd, offsets)
        found["preadv"] = preadv
        yield found


def caio_contexts() -> list[tuple[str, CaioMaker]]:
    """Return the contexts of caio that use the kernel's own asynchronous reads.

    Without io_uring's polling thread: it would spin on a core while others run.
    """
    try:
        import caio
    except ImportError:
        return []
    found: list[tuple[str, CaioMaker]] = []
    for name, options in (("aio", {}), ("uring", {"sqpoll": False})):
        module = getattr(caio, f"linux_{name}_asyncio", None)
        if module is not None:
            make = partial(module.AsyncioContext, max_requests=16, **options)
            found.append((f"caio {name}", make))
    return found


def caio_reader(context: object, fd: int, offsets: list[int]) -> Contestant:
    """Return a contestant that reads through a caio context."""

    async def run() -> float:
        read = context.read  # type: ignore[attr-defined]
        start = perf_counter_ns()
        for offset in offsets[:FEW]:
            await read(PAGE, fd, offset)
        return per_op(start, FEW)

    return run
