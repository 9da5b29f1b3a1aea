"""The example server under load: right answers, bounded memory, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import uvloop
from helpers.examples import command, imported
from helpers.http_client import Client, Reply, fetch
from prometheus_client.parser import text_string_to_metric_families

import aiougds
from aiougds.testing import Fault, counters, inject

CHUNK, BLOCK = 16 << 10, 16
SLOW = "emu:?size=16MiB&latency=300us&jitter=300us"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def kv() -> Iterator[ModuleType]:
    with imported("kv_serving") as module:
        yield module


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a coroutine on a loop of each kind; no task of it is left."""

    async def whole(work: Awaitable[None]) -> None:
        await work
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def run(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(whole(work))

    return run


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No registration, namespace or store outlives the server that opened it."""
    yield
    gc.collect()
    kinds = (aiougds.Registration, aiougds.Namespace, aiougds.Controller)
    left = [one for one in gc.get_objects() if type(one) in kinds and not one.closed]
    assert not left


@asynccontextmanager
async def serving(
    kv: ModuleType, send_buffer: int = 0, **settings: object
) -> AsyncIterator[SimpleNamespace]:
    """Serve on a free port; at the end all seats are free, and no chunk is pinned."""
    given = {
        "devices": (SLOW,), "chunk_bytes": CHUNK, "block": BLOCK, "most_chunks": 8,
        "seats": 8, "line": 1000, **settings,
    }  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    if send_buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = kv.make_server(kv.Settings(**given), log_level="critical")
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
    service = server.config.app.state.service
    here = SimpleNamespace(
        port=listening.getsockname()[1],
        server=server,
        service=service,
        ns=service.spaces[0],
        task=task,
    )
    mappings = here.ns.controller.statistics().mappings
    try:
        yield here
        if not task.done():
            await until(lambda: len(service.seats.free) == len(service.seats.memory))
            assert service.store.statistics().pinned == 0
            assert here.ns.controller.statistics().mappings == mappings
            assert counters(here.ns).iommu_faults == 0
    finally:
        server.should_exit = True
        await task


async def until(true: Callable[[], object]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become true")


def ask(prompt: str, **more: object) -> bytes:
    return json.dumps({"prompt": prompt, **more}).encode()


@cache
def expected(
    kv: ModuleType, prompt: str, tokens: int = 4, chunk: int = CHUNK
) -> list[dict[str, object]]:
    """What the model says, from what it computes itself."""
    keys = kv.keys_of(prompt.encode(), BLOCK)
    whole = bytearray(chunk * len(keys))
    for i, key in enumerate(keys):
        kv.prefill(key, memoryview(whole)[i * chunk : (i + 1) * chunk])
    view = memoryview(whole)
    said = [{"token": kv.decode(view, token)} for token in range(tokens)]
    return [*said, {"done": True}]


def check(kv: ModuleType, prompt: str, reply: Reply, tokens: int = 4) -> int:
    """Compare a whole answer; return how many chunks were cached."""
    assert (reply.status, reply.whole) == (200, True), reply
    first, *said = reply.lines
    assert said == expected(kv, prompt, tokens)
    assert first["chunks"] == len(prompt.encode()) // BLOCK
    cached = first["cached"]
    assert isinstance(cached, int)
    return cached


def prompts(number: int) -> list[str]:
    """Conversations that have beginnings in common."""
    rng = random.Random(7)
    roots = [f"system prompt {i:2}" for i in range(6)]  # a block each
    return [
        rng.choice(roots) + "".join(f"turn {rng.randrange(4):11}" for _ in range(7))
        for _ in range(number)
    ]


# ---- load ----


async def client_of(kv: ModuleType, port: int, prompt: str, kind: str) -> str:
    """Be one client; return what became of it."""
    rng = random.Random(prompt + kind)
    client = await Client.connect(port)
    try:
        more = (
            {"deadline_s": rng.choice([0.001, 0.01, 0.05])} if kind == "hurry" else {}
        )
        client.send("POST", "/generate", ask(prompt, **more))
        if kind == "leave":  # before, in or behind the line
            await asyncio.sleep(rng.random() * 0.3)
            client.reset()
            return "left"
        if kind == "leave in the middle":
            reply = await client.head()
            await client.part(reply)
            client.reset()
            return "left"
        reply = await client.reply()
        if reply.status == 504 or (reply.lines and "error" in reply.lines[-1]):
            return "late"
        check(kv, prompt, reply)
        return "done"
    finally:
        await client.close()


async def load(kv: ModuleType) -> None:
    kinds = ["stay"] * 6 + ["leave"] * 2 + ["leave in the middle"] + ["hurry"]
    async with serving(kv, deadline_s=100.0) as here, asyncio.TaskGroup() as clients:
        tasks = [
            clients.create_task(client_of(kv, here.port, prompt, kinds[i % len(kinds)]))
            for i, prompt in enumerate(prompts(400))
        ]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.05)
            reply = await fetch(here.port, "/metrics")
            assert "aiougds_command_duration_seconds" in reply.text
            assert len(here.service.seats.memory) == 8
    outcomes = Counter(task.result() for task in tasks)
    assert outcomes["done"] >= 240  # who stayed, and had time
    assert outcomes["left"] == 120
    assert outcomes.total() == 400
    # The store is smaller than what was asked for: it evicted, and never what was read.
    assert here.service.store.statistics().evictions > 0
    assert here.service.store.statistics().hits > 100


@pytest.mark.timeout(120)
def test_hundreds_of_clients_and_every_answer_is_right(
    kv: ModuleType, on_loop: Callable[[Awaitable[None]], None]
) -> None:
    on_loop(load(kv))


# ---- admission, deadlines, clients that go ----

PROMPT = "a prompt of sixteen characters, times three...!!"
Case = Callable[[ModuleType], Awaitable[None]]


async def warm(kv: ModuleType, here: SimpleNamespace, prompt: str = PROMPT) -> None:
    """Have the chunks of a prompt stored."""
    reply = await fetch(here.port, "/generate", ask(prompt))
    assert check(kv, prompt, reply) == 0
    await until(lambda: len(here.service.store) == len(prompt) // BLOCK)


async def metric(port: int, name: str, **labels: str) -> float:
    """Scrape; 0.0 stands for what was never counted."""
    text = (await fetch(port, "/metrics")).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    )


async def ended(here: SimpleNamespace, outcome: str, number: int) -> None:
    """Wait until so many requests came to that end, and no more."""
    name = "kv_requests_total"
    while await metric(here.port, name, outcome=outcome) < number:
        await asyncio.sleep(0.01)
    assert await metric(here.port, name, outcome=outcome) == number


async def the_line_is_bounded(kv: ModuleType) -> None:
    async with serving(kv, seats=1, line=2) as here, asyncio.TaskGroup() as clients:
        await warm(kv, here)
        with inject(here.ns, Fault.hold("read")):
            asked = [
                clients.create_task(fetch(here.port, "/generate", ask(PROMPT)))
                for _ in range(3)
            ]
            await until(lambda: here.service.seats.waiting == 2)
            refused = await fetch(here.port, "/generate", ask(PROMPT))
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            # What looks after the service is not held up by it.
            assert (await fetch(here.port, "/health")).status == 200
            assert await metric(here.port, "kv_waiting") == 2
            await ended(here, "full", 1)
        for task in asked:
            assert check(kv, PROMPT, await task) == 3


async def a_deadline_does_not_wait_for_the_device(kv: ModuleType) -> None:
    async with serving(kv, seats=2) as here:
        await warm(kv, here)
        service = here.service
        # A device that does not give up either what it holds.
        stubborn = inject(here.ns, Fault.abort_refused())
        with stubborn, inject(here.ns, Fault.hold("read", count=3)) as held:
            began = asyncio.get_running_loop().time()
            reply = await fetch(here.port, "/generate", ask(PROMPT, deadline_s=0.2))
            assert reply.status == 504
            assert asyncio.get_running_loop().time() - began < 5
            # Its memory is nobody's while the device may write there; the rest serves.
            await until(lambda: len(service.seats.stuck) == 1)
            assert service.seats.stuck[0].inflight == 3
            for _ in range(5):
                again = await fetch(here.port, "/generate", ask(PROMPT))
                assert check(kv, PROMPT, again) == 3
            assert len(service.seats.stuck) == 1
            held.clear()
        await until(lambda: len(service.seats.free) == 2)
        await ended(here, "late", 1)


async def a_deadline_holds_in_line_too(kv: ModuleType) -> None:
    async with serving(kv, seats=1) as here:
        await warm(kv, here)
        with inject(here.ns, Fault.hold("read")):
            for _ in range(3):  # the first has the seat, which stays stuck
                reply = await fetch(here.port, "/generate", ask(PROMPT, deadline_s=0.1))
                assert reply.status == 504
            assert here.service.seats.waiting == 0


async def memory_waits_for_a_device_whose_client_left(kv: ModuleType) -> None:
    async with serving(kv, seats=1) as here:
        await warm(kv, here)
        stubborn = inject(here.ns, Fault.abort_refused())
        with stubborn, inject(here.ns, Fault.hold("read")) as held:
            client = await Client.connect(here.port)
            client.send("POST", "/generate", ask(PROMPT))
            await until(lambda: here.service.seats.memory[0].inflight == 3)
            client.reset()
            await client.close()
            await until(lambda: here.service.seats.stuck)  # after cancel_grace_s
            assert here.service.store.statistics().pinned == 0
            assert not here.service.seats.free
            held.clear()
        reply = await fetch(here.port, "/generate", ask(PROMPT))
        assert check(kv, PROMPT, reply) == 3
        await ended(here, "gone", 1)


async def a_client_that_reads_nothing_is_left(kv: ModuleType) -> None:
    async with serving(kv, send_buffer=4096, seats=1, chunk_bytes=4096) as here:
        client = await Client.connect(here.port, receive_buffer=4096)
        client.writer.transport.pause_reading()
        client.send("POST", "/generate", ask(PROMPT, tokens=4096, deadline_s=1))
        await until(lambda: not here.service.seats.free)
        await until(lambda: here.service.seats.free)
        await ended(here, "late", 1)
        client.reset()
        await client.close()


async def chunks_that_cannot_be_read_are_computed(kv: ModuleType) -> None:
    async with serving(kv) as here:
        await warm(kv, here)
        bad = Fault.status("read", sct=2, sc=0x81, count=1).on(skip=1)
        with inject(here.ns, bad) as fault:
            reply = await fetch(here.port, "/generate", ask(PROMPT))
            assert check(kv, PROMPT, reply) in (0, 1, 2)
            assert fault.hits == 1


async def a_broken_device_is_slow_but_not_wrong(kv: ModuleType) -> None:
    async with serving(kv, seats=2) as here:
        await warm(kv, here)
        with inject(here.ns, Fault.cfs("read", count=1)):
            reply = await fetch(here.port, "/generate", ask(PROMPT))
            assert reply.status == 504  # its memory is the device's, who knows how long
        ill = await fetch(here.port, "/health")
        assert ill.status == 503
        assert "wedged" in ill.text
        for _ in range(3):  # with the seat that is left
            reply = await fetch(here.port, "/generate", ask(PROMPT))
            assert check(kv, PROMPT, reply) == 0
        assert len(here.service.seats.stuck) == 1
        await here.ns.controller.reset()


async def without_memory_it_is_not_well(kv: ModuleType) -> None:
    async with serving(kv, seats=1) as here:
        await warm(kv, here)
        with inject(here.ns, Fault.drop("read", count=1)):
            reply = await fetch(here.port, "/generate", ask(PROMPT, deadline_s=0.2))
            assert reply.status == 504
        await until(lambda: here.service.seats.stuck)
        assert here.ns.controller.state == "live"
        assert (await fetch(here.port, "/health")).status == 503
        await here.ns.controller.reset()
        await until(lambda: here.service.seats.free)
        assert (await fetch(here.port, "/health")).status == 200


async def nonsense_is_refused(kv: ModuleType) -> None:
    async with serving(kv) as here:
        for body, words in {
            b"": "Expecting value",
            b"\xff": "invalid start byte",
            b"[]": '{"prompt": "..."} is needed',
            b'{"prompt": 5}': '{"prompt": "..."} is needed',
            ask("x" * 129): "longer than 128 bytes",
            b" " * (1 << 20): "longer than 128 bytes",
            ask("x", tokens=-1): "tokens is a number",
            ask("x", tokens=True): "tokens is a number",
            b"[" * 1700: "",  # in words of json, by version
            ask("x", deadline_s=0): "a positive number of seconds",
        }.items():
            reply = await fetch(here.port, "/generate", body)
            assert reply.status == 400
            assert words in str(reply.lines[0]["error"])
        assert (await fetch(here.port, "/generate")).status == 405
        reply = await fetch(here.port, "/generate", ask("short"))
        assert reply.lines[0] == {"chunks": 0, "cached": 0}


# ---- the end ----


async def requests_that_run_are_answered_at_the_end(kv: ModuleType) -> None:
    async with serving(kv) as here:
        await warm(kv, here)
        with inject(here.ns, Fault.hold("read")):
            asked = asyncio.create_task(fetch(here.port, "/generate", ask(PROMPT)))
            memory = here.service.seats.memory
            await until(lambda: any(one.inflight for one in memory))
            here.server.should_exit = True
            await asyncio.sleep(0.3)
            with pytest.raises(OSError):
                await Client.connect(here.port)
            assert not here.task.done()
        assert check(kv, PROMPT, await asked) == 3
        await here.task


async def a_device_that_never_answers_is_reset_at_the_end(kv: ModuleType) -> None:
    async with serving(kv, drain_s=0.3) as here:
        await warm(kv, here)
        with inject(here.ns, Fault.drop("read")):
            reply = await fetch(here.port, "/generate", ask(PROMPT, deadline_s=0.1))
            assert reply.status == 504
            here.server.should_exit = True
            await here.task


CASES: list[Case] = [
    the_line_is_bounded,
    a_deadline_does_not_wait_for_the_device,
    a_deadline_holds_in_line_too,
    memory_waits_for_a_device_whose_client_left,
    a_client_that_reads_nothing_is_left,
    chunks_that_cannot_be_read_are_computed,
    a_broken_device_is_slow_but_not_wrong,
    without_memory_it_is_not_well,
    nonsense_is_refused,
    requests_that_run_are_answered_at_the_end,
    a_device_that_never_answers_is_reset_at_the_end,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_service(
    case: Case, kv: ModuleType, on_loop: Callable[[Awaitable[None]], None]
) -> None:
    on_loop(case(kv))


# ---- as a process ----


@contextmanager
def process(address: str, loop: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the server; yields it and its port."""
    words = command("kv_serving", address, "--port", 0, "--loop", loop)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                found = re.search(r"running on http://[\d.]+:(\d+)", line)
                if found:
                    yield child, int(found[1])
                    break
        finally:
            child.kill()


CLIENT = """
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    body = sys.argv[2].encode()
    sock.sendall(b"POST /generate HTTP/1.1\\r\\nHost: here\\r\\n")
    sock.sendall(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    print(sock.recv(64), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_kills(kv: ModuleType, tmp_path: Path, loop: str) -> None:
    """Of clients, and of the server: what was stored is there when it is back."""
    address = f"emu:{tmp_path / 'kv.bin'}?size=256MiB"

    def asked(port: int, prompt: str) -> Reply:
        return asyncio.run(fetch(port, "/generate", ask(prompt)))

    def right(reply: Reply) -> None:
        assert reply.whole
        assert reply.lines[1:] == expected(kv, PROMPT, chunk=64 << 10)

    with process(address, loop) as (child, port):
        body = ask(PROMPT, tokens=4096)
        words = [sys.executable, "-c", CLIENT, str(port), body.decode()]
        for _ in range(3):
            with subprocess.Popen(words, stdout=subprocess.PIPE) as client:
                assert client.stdout is not None
                assert b"200 OK" in client.stdout.readline()
                client.kill()
        right(asked(port, PROMPT))
        child.kill()
        child.wait()
    with process(address, loop) as (child, port):
        reply = asked(port, PROMPT)
        assert reply.lines[0] == {"chunks": 3, "cached": 3}
        right(reply)
        child.send_signal(signal.SIGTERM)
        assert child.stderr is not None
        said = child.stderr.read()
        assert "Application shutdown complete." in said
        assert "Warning" not in said
        assert child.wait(20) == -signal.SIGTERM  # uvicorn ends as it was asked to
