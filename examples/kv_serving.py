"""Serve a model over HTTP, and restore the KV cache of each prompt from NVMe.

What it shows: a chunk store behind an ASGI service. A request restores the longest
prefix of its prompt that is cached, a task for each chunk, into memory that was
registered once; computes and stores the rest; and streams its answer. It has a
deadline (504) and a place in a bounded line (503, Retry-After), and ends when its
client goes away. Memory that a device may still write to is given to nobody. A chunk
that cannot be read is computed again: a broken cache is slow, not wrong.

``python kv_serving.py [--port 8000] ['emu:kv.bin?size=1GiB' ...]``, and then::

    curl -N localhost:8000/generate -d '{"prompt": "It was a dark and stormy night"}'
    curl localhost:8000/metrics

You see the chunks and how many of them were cached (all, when you ask again), a line
for each token, and what controllers and service have done. SIGTERM ends it, once the
requests that run have ended.

Needs ``pip install 'aiougds[metrics]' starlette uvicorn``. The model is a stand-in.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b, shake_128
from typing import Any, Final, Literal

import anyio
import anyio.lowlevel
import uvicorn
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import aiougds
import aiougds.store
from aiougds.metrics import ControllerCollector

Memory = aiougds.Registration
LOOK_S: Final = 0.02  # how often it is seen whether a device has let go of memory
LAST_WORD_S: Final = 0.1  # for the line that says why a stream ends
log = logging.getLogger("kv_serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the service is made for."""

    devices: tuple[str, ...] = ("emu:?size=256MiB",)
    block: int = 16  # bytes of a prompt (tokens, of a real model) that make a chunk
    chunk_bytes: int = 64 << 10
    most_chunks: int = 32
    seats: int = 16  # requests that are worked on at a time
    line: int = 64  # and that wait for a seat
    deadline_s: float = 10.0  # unless a request says otherwise, and at most
    drain_s: float = 15.0  # for requests that run when the service ends

    @property
    def most_prompt(self) -> int:
        """Bytes of the longest prompt."""
        return self.block * self.most_chunks


# ---- the model ----


def keys_of(prompt: bytes, block: int) -> list[bytes]:
    """Return a key for each whole block; it names all that came before it, too."""
    keys: list[bytes] = []
    key = b""
    for at in range(0, len(prompt) - block + 1, block):
        key = blake2b(key + prompt[at : at + block], digest_size=16).digest()
        keys.append(key)
    return keys


def prefill(key: bytes, into: memoryview) -> None:
    """Compute the cache of a block: here, bytes that follow from its key."""
    into[:] = shake_128(key).digest(len(into))


def decode(cache: memoryview, token: int) -> str:
    """Make a token, for which all of the cache is read: here, a digest of it."""
    salt = token.to_bytes(8, "little")
    return blake2b(cache, digest_size=8, salt=salt).hexdigest()


# ---- admission, and memory ----


class FullError(Exception):
    """All seats are taken, and so is the line."""


class Seats:
    """Memory for a number of requests, registered once. Some wait in line, no more."""

    def __init__(self, memory: Sequence[Memory], line: int) -> None:
        self.memory = tuple(memory)
        self.free = list(memory)
        self.stuck: list[Memory] = []
        self._line = line
        self._turn = anyio.Semaphore(len(memory))

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return self._turn.statistics().tasks_waiting

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Memory]:
        """Take a seat, when it is its turn; raise FullError at the end of the line."""
        if self._turn.value == 0 and self.waiting >= self._line:
            raise FullError
        await self._turn.acquire()
        memory = self.free.pop()
        try:
            yield memory
        finally:
            # After a time-out the device may write there yet. It says so: inflight.
            self.stuck.append(memory)
            self.give_back()

    def give_back(self) -> None:
        """Free the memory that no device can touch any more."""
        for memory in [one for one in self.stuck if not one.inflight]:
            self.stuck.remove(memory)
            self.free.append(memory)
            self._turn.release()

    async def look_after(self) -> None:
        """Look now and then what devices have let go of."""
        while True:
            await anyio.sleep(LOOK_S)
            self.give_back()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all requests have ended, and devices too; False: some have not."""
        with anyio.move_on_after(timeout_s):
            for _ in self.memory:
                await self._turn.acquire()
            return True
        return False


# ---- the service ----


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants."""

    keys: list[bytes]
    tokens: int
    deadline_s: float

    @classmethod
    def of(cls, body: bytes, settings: Settings) -> Ask:
        """Read it from JSON; ValueError says what is wrong with it."""
        given: dict[str, Any] | list[Any] | str | float | None = json.loads(body)
        if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
            raise ValueError('{"prompt": "..."} is needed')
        prompt = given["prompt"].encode()
        tokens = given.get("tokens", 4)
        seconds = given.get("deadline_s", settings.deadline_s)
        if len(prompt) > settings.most_prompt:
            raise ValueError(f"the prompt is longer than {settings.most_prompt} bytes")
        if type(tokens) is not int or not 0 <= tokens <= 4096:
            raise ValueError("tokens is a number in 0 .. 4096")
        if not isinstance(seconds, (int, float)) or not seconds > 0:
            raise ValueError("deadline_s is a positive number of seconds")
        seconds = min(seconds, settings.deadline_s)
        return cls(keys_of(prompt, settings.block), tokens, seconds)


def left(ends: float) -> float:
    """Return the seconds that are left until then; raise TimeoutError if none are."""
    seconds = ends - anyio.current_time()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class Answer:
    """A stream of lines of JSON, or one refusal."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.begun = self.ended = False

    async def line(self, **what: object) -> None:
        """Send a line; waits while the client does not take what was sent before."""
        await self._begin(200, {"content-type": "application/x-ndjson"})
        await self._body(json.dumps(what).encode() + b"\n")

    async def end(self) -> None:
        """Send the end of the stream."""
        self.ended = True
        await self._body(b"", more=False)

    async def refuse(self, status: int, error: str) -> None:
        """Say why there is no answer, or why it ends here."""
        with anyio.move_on_after(LAST_WORD_S):  # a client may take nothing any more
            retry = {"retry-after": "1"} if status == 503 else {}
            await self._begin(status, {"content-type": "application/json", **retry})
            await self._body(json.dumps({"error": error}).encode() + b"\n")
            await self.end()

    async def _begin(self, status: int, headers: dict[str, str]) -> None:
        if not self.begun:
            self.begun = True
            pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
            head = {"type": "http.response.start", "status": status, "headers": pairs}
            await self.send(head)

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})


class Service:
    """The store, the seats, and what becomes of requests."""

    def __init__(
        self,
        settings: Settings,
        spaces: Sequence[aiougds.Namespace],
        store: aiougds.store.ChunkStore,
        seats: Seats,
    ) -> None:
        self.settings = settings
        self.spaces = spaces
        self.store = store
        self.seats = seats
        self.registry = CollectorRegistry()
        self.registry.register(ControllerCollector(*(ns.controller for ns in spaces)))
        self.requests = Counter(
            "kv_requests", "Requests", ["outcome"], registry=self.registry
        )
        self.chunks = Counter("kv_chunks", "Chunks", ["how"], registry=self.registry)
        for name, of in {
            "seats_free": lambda: len(seats.free),
            "seats_stuck": lambda: len(seats.stuck),
            "waiting": lambda: seats.waiting,
        }.items():
            Gauge(f"kv_{name}", name, registry=self.registry).set_function(of)

    async def serve(self, ask: Ask, answer: Answer) -> None:
        """Answer a request. Cancelled, it has let go of all that it held."""
        outcome = "gone"
        try:
            await self._serve(ask, answer, anyio.current_time() + ask.deadline_s)
            outcome = "done"
        except FullError:
            outcome = "full"
            await answer.refuse(503, "the line is full; come back later")
        except TimeoutError:  # aiougds.OperationTimeoutError is one
            outcome = "late"
            await answer.refuse(504, f"not done in time, {ask.deadline_s:g} s at most")
        finally:
            self.requests.labels(outcome).inc()

    async def _serve(self, ask: Ask, answer: Answer, ends: float) -> None:
        size, keys = self.settings.chunk_bytes, ask.keys
        async with AsyncExitStack() as stack:
            with anyio.fail_after(left(ends)):
                seat = await stack.enter_async_context(self.seats.one())
            cached = await self._restore(keys[: self._pin(keys, stack)], seat, ends)
            cache = seat.view[: len(keys) * size]
            for index in range(cached, len(keys)):
                left(ends)
                prefill(keys[index], cache[index * size : (index + 1) * size])
                await anyio.lowlevel.checkpoint()
            self.chunks.labels("restored").inc(cached)
            self.chunks.labels("computed").inc(len(keys) - cached)
            scope = anyio.move_on_after(left(ends))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._save, keys, cached, seat)
                with scope:
                    await answer.line(chunks=len(keys), cached=cached)
                    for token in range(ask.tokens):
                        await answer.line(token=decode(cache, token))
                        await anyio.lowlevel.checkpoint()
                    await answer.line(done=True)
                    await answer.end()
            if scope.cancelled_caught:
                raise TimeoutError

    def _pin(self, keys: list[bytes], pins: AsyncExitStack) -> int:
        """Keep the chunks that are there from eviction; return their number."""
        for number, key in enumerate(keys):
            try:
                pins.enter_context(self.store.pinned(key))
            except aiougds.store.ChunkNotFoundError:
                return number
        return len(keys)

    async def _restore(self, keys: list[bytes], seat: Memory, ends: float) -> int:
        """Read chunks, all at the same time; return how many can be used.

        Each has the request's deadline, which C keeps: when it passes, the answer does
        not wait for the device. When the client goes, the task group does: it cancels
        the reads, and ends when the device has let go of the memory.
        """
        size = self.settings.chunk_bytes
        good, late = len(keys), False

        async def fetch(index: int) -> None:
            nonlocal good, late
            part = seat[index * size : (index + 1) * size]
            try:
                n = await self.store.get(keys[index], part, timeout_s=left(ends))
                if n != size:  # of a store that was filled with other settings
                    good = min(good, index)
            except TimeoutError:
                late = True
            except aiougds.UGDSError as error:
                log.warning("a chunk is computed again: %s", error)
                good = min(good, index)

        async with anyio.create_task_group() as tasks:
            for index in range(len(keys)):
                tasks.start_soon(fetch, index)
        if late or seat.inflight:  # it may yet come: nothing else is put there
            raise TimeoutError
        return good

    async def _save(self, keys: list[bytes], since: int, seat: Memory) -> None:
        """Store what was computed. Worth it also when the client has gone."""
        size = self.settings.chunk_bytes
        parts = [
            (keys[index], seat[index * size : (index + 1) * size])
            for index in range(since, len(keys))
        ]
        limit_s = self.settings.deadline_s
        done: list[bool | aiougds.UGDSError] = []
        with anyio.CancelScope(shield=True):
            try:
                done = await self.store.put_many(parts, timeout_s=limit_s)
            except aiougds.UGDSError as error:  # none of them can be
                done = [error]
        for result in done:
            if isinstance(result, aiougds.UGDSError):
                log.warning("a chunk was not stored: %s", result)


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncGenerator[Service]:
    """Open devices and store, register the memory; in the end wait for requests."""
    layout = aiougds.store.Layout(slot_bytes=settings.chunk_bytes, key_bytes=16)
    nbytes = settings.chunk_bytes * settings.most_chunks
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        spaces = [await enter(aiougds.open(one)) for one in settings.devices]
        store = await enter(aiougds.store.open(spaces, create=layout))
        numbers = range(settings.seats)
        memory = [await enter(await store.allocate(nbytes)) for _ in numbers]
        seats = Seats(memory, settings.line)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seats.look_after)
            yield Service(settings, spaces, store, seats)
            if not await seats.drain(settings.drain_s):
                log.error("a device does not answer: it is reset")
                for ns in spaces:
                    await ns.controller.reset()  # then nothing is in flight any more
            tasks.cancel_scope.cancel()


# ---- HTTP ----


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the body; ValueError: it is longer than any that can be served."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > 1024 + 6 * settings.most_prompt:  # 6: "\\u0041" is one byte
            raise ValueError(f"the prompt is longer than {settings.most_prompt} bytes")
    return bytes(body)


async def until_gone(receive: Receive, answer: Answer, all_: anyio.CancelScope) -> None:
    """Cancel it all when the client has gone; the end of the answer looks alike."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not answer.ended:
        all_.cancel()


class Generate:
    """``POST /generate``, from the first byte to the last in one task group.

    An ASGI application, as an endpoint that returns a response would have to give its
    memory back before the response is sent.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        settings, answer = service.settings, Answer(send)
        try:
            with anyio.fail_after(settings.deadline_s):
                body = await read_body(Request(scope, receive), settings)
            ask = Ask.of(body, settings)
        except ClientDisconnect:
            return
        except TimeoutError:
            await answer.refuse(408, "the request took too long to come")
            return
        except (ValueError, RecursionError) as error:  # of JSON, the latter
            await answer.refuse(400, str(error))
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_gone, receive, answer, tasks.cancel_scope)
            await service.serve(ask, answer)
            tasks.cancel_scope.cancel()


async def health(request: Request) -> Response:
    """``GET /health``: 200 while chunks can be read and stored."""
    service: Service = request.app.state.service
    states = {ns.controller.address: ns.controller.state for ns in service.spaces}
    broken = service.store.broken
    stuck = len(service.seats.stuck) == service.settings.seats
    well = broken is None and not stuck and set(states.values()) == {"live"}
    return JSONResponse(
        {"controllers": states, "store": broken or "live"}, 200 if well else 503
    )


async def metrics(request: Request) -> Response:
    """``GET /metrics``, for Prometheus."""
    service: Service = request.app.state.service
    return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)


def make_app(settings: Settings) -> Starlette:
    """Return the application; its devices are open while it runs."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with open_service(settings) as app.state.service:
            yield

    routes = [
        Route("/generate", Generate(), methods=["POST"]),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def make_server(
    settings: Settings,
    *,
    port: int = 8000,
    loop: Literal["asyncio", "uvloop"] = "asyncio",
    log_level: str = "info",
) -> uvicorn.Server:
    """Return the server; at its end it waits for requests as long as they may take."""
    config = uvicorn.Config(
        make_app(settings),
        port=port,
        loop=loop,
        lifespan="on",
        log_level=log_level,
        access_log=False,
        timeout_graceful_shutdown=int(settings.deadline_s) + 1,
    )
    return uvicorn.Server(config)


def main() -> None:
    parser = argparse.ArgumentParser(description="a KV cache behind HTTP")
    parser.add_argument("devices", nargs="*", default=Settings().devices)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    given = parser.parse_args()
    settings = Settings(devices=tuple(given.devices))
    make_server(settings, port=given.port, loop=given.loop).run()


if __name__ == "__main__":
    main()
