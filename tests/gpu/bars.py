"""``python tests/gpu/bars.py [--quick] [--json FILE]``: streams and plain reads, timed.

Needs a CUDA GPU, cuda-bindings and aiougds; no compiler, no network. Beside it, where
they can be had, cuFile (``cuda.bindings.cufile``) and KvikIO read the same file, in
compatibility mode, from the page cache. All is one run on one machine: compare ratios
of it, and never with another one. What was moved is checked by kernels, every byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuda.bindings import driver
from gpu.kernels import WORD, Kernels, pattern_words
from gpu.peers import Cufile, Kvikio, peers, prepare

import aiougds
from aiougds import testing

KIB, MIB = 1 << 10, 1 << 20
Rows = list[dict[str, object]]


def done(answer: tuple) -> object:
    code, *rest = answer
    if code:
        sys.exit(f"the driver answered {code.name}")
    return rest[0] if rest else None


def middle(work: Callable[[], object], rounds: int) -> float:
    """Return the median microseconds of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


async def middle_of(work: Callable[[], Awaitable[object]], rounds: int) -> float:
    """As middle(), of something that is awaited."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


class Bars:
    """One run: a file, a namespace over it, and memory of the GPU."""

    def __init__(self, ns: aiougds.Namespace, path: Path, *, quick: bool) -> None:
        self.ns = ns
        self.rows: Rows = []
        self.rounds = 20 if quick else 1000
        self.peers, self.missing = peers(path)
        self.streams = [done(driver.cuStreamCreate(1)) for _ in range(64)]
        self.large = (4 if quick else 16) * MIB
        self.kernels = Kernels()
        self.checked = 0
        self._random = random.Random(5)

    def row(self, what: str, **numbers: object) -> None:
        self.rows.append({"what": what, **numbers})
        shown = ", ".join(
            f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in numbers.items()
        )
        print(f"{what}: {shown}", flush=True)

    def offset(self, nbytes: int) -> int:
        return self._random.randrange((self.ns.size - nbytes) // 4096) * 4096

    def check(self, ptr: int, offset: int, nbytes: int, stream: object = 0) -> None:
        """Have a kernel look at every byte; :meth:`right` says what it saw."""
        self.checked += nbytes
        self.kernels.check(ptr, offset, nbytes, int(stream))  # type: ignore[call-overload]

    def right(self, what: str) -> None:
        wrong = self.kernels.wrong()
        if wrong:
            sys.exit(f"{what}: {wrong} words are wrong")

    @property
    def cufile(self) -> Cufile | None:
        return next((peer for peer in self.peers if isinstance(peer, Cufile)), None)

    # ---- awaited ----

    async def plain(self, reg: aiougds.Registration) -> None:
        """A plain await, random offsets, beside the peers."""
        for nbytes in (4 * KIB, 64 * KIB, MIB, self.large):
            part, rounds = reg[:nbytes], max(20, self.rounds * 16 * KIB // nbytes)
            rounds = min(rounds, self.rounds)
            us: dict[str, object] = {}
            for turn in range(2):  # the first warms up
                us["aiougds"] = await middle_of(
                    partial(self._plain_read, part), rounds if turn else 5
                )
                for peer in self.peers:
                    us[peer.name] = middle(
                        partial(self._peer_read, peer, reg.ptr, nbytes),
                        rounds if turn else 5,
                    )
            for _ in range(20):
                offset = self.offset(nbytes)
                await self.ns.read(part, offset=offset)
                self.check(reg.ptr, offset, nbytes)
            self.right(f"a read of {nbytes} bytes")
            self.row(f"read {nbytes >> 10} KiB, us", **us)

    async def _plain_read(self, part: aiougds.RegistrationSlice) -> None:
        await self.ns.read(part, offset=self.offset(part.nbytes))

    def _peer_read(self, peer: Cufile | Kvikio, ptr: int, nbytes: int) -> None:
        peer.read(ptr, nbytes, self.offset(nbytes))

    async def batch(self, reg: aiougds.Registration) -> None:
        """128 reads of 4 KiB in one batch, beside as many of cuFile."""
        page = 4 * KIB
        offsets = [self.offset(page) for _ in range(128)]
        requests = [
            (reg[i * page : (i + 1) * page], offset) for i, offset in enumerate(offsets)
        ]

        def theirs() -> None:
            for i, offset in enumerate(offsets):
                peer.read(reg.ptr + i * page, page, offset)

        us: dict[str, object] = {}
        await self.ns.read_many(requests)
        us["aiougds"] = await middle_of(lambda: self.ns.read_many(requests), 100)
        for i, offset in enumerate(offsets):
            self.check(reg.ptr + i * page, offset, page)
        self.right("a batch")
        peer = self.cufile
        if peer is not None:
            us[peer.name] = middle(theirs, 20)
        self.row("batch of 128 x 4 KiB, us", **us)

    # ---- on streams ----

    def _read_on(self, part: object) -> None:
        stream = self.streams[0]
        self.ns.read_on(stream, part, offset=self.offset(4 * KIB))
        done(driver.cuStreamSynchronize(stream))

    def _read_async(self, peer: Cufile, ptr: int) -> None:
        stream = self.streams[1]
        kept = peer.read_async(int(stream), ptr, 4 * KIB, self.offset(4 * KIB))
        done(driver.cuStreamSynchronize(stream))
        del kept

    async def ordered(self, reg: aiougds.Registration) -> None:
        """A stream-ordered 4 KiB read with its synchronise, beside the plain await."""
        part = reg[: 4 * KIB]
        for _ in range(20):
            self._read_on(part)
        plain, on = await self._by_turns(part)
        await asyncio.sleep(0)  # ends are told
        more: dict[str, object] = {}
        if self.cufile is not None:
            theirs = partial(self._read_async, self.cufile, reg.ptr)
            middle(theirs, 10)
            more["cuFileReadAsync (compat)"] = middle(theirs, min(self.rounds, 300))
        for _ in range(50):
            offset = self.offset(4 * KIB)
            op = self.ns.read_on(self.streams[0], part, offset=offset)
            self.check(reg.ptr, offset, 4 * KIB, self.streams[0])
            await op
        self.right("a read on a stream")
        self.row("4 KiB on a stream, us", plain=plain, on=on, on_top=on - plain, **more)

    async def _by_turns(self, part: aiougds.RegistrationSlice) -> tuple[float, float]:
        """Return the median microseconds of a plain await, and on a stream.

        By turns of 50, as the machine is faster and slower from second to second.
        """
        stream, clock = self.streams[0], time.perf_counter
        read, read_on, sync = self.ns.read, self.ns.read_on, driver.cuStreamSynchronize
        plain, on = [], []
        for _ in range(max(1, self.rounds // 50)):
            offsets = [self.offset(4 * KIB) for _ in range(50)]
            for offset in offsets:
                start = clock()
                await read(part, offset=offset)
                plain.append(clock() - start)
            for offset in reversed(offsets):
                start = clock()
                read_on(stream, part, offset=offset)
                answer = sync(stream)
                on.append(clock() - start)
                done(answer)
        return statistics.median(plain) * 1e6, statistics.median(on) * 1e6

    async def gated(self, reg: aiougds.Registration) -> None:
        """64 streams and the default one at once."""
        chosen = [*self.streams, driver.CUstream(0)]
        us = await self._at_once(self.ns, reg, chosen)
        self.row(f"{len(chosen)} streams at once, us", all=us)

    async def apart(self, slow: aiougds.Namespace, reg: aiougds.Registration) -> None:
        """8 streams of 1 ms of I/O each, on a device that keeps its time."""
        with testing.inject(slow, testing.Fault.delay(0.001, "read")):
            us = await self._at_once(slow, reg, self.streams[:8])
        self.row("8 streams, 1 ms each, us", all=us)

    async def _at_once(
        self, ns: aiougds.Namespace, reg: aiougds.Registration, streams: list[object]
    ) -> float:
        async def all_of() -> None:
            ops = [
                ns.read_on(s, reg[i * 4096 : (i + 1) * 4096], offset=i * 4096)
                for i, s in enumerate(streams)
            ]
            for op in ops:
                await op

        await all_of()
        us = await middle_of(all_of, 15)
        self.check(reg.ptr, 0, len(streams) * 4096)
        self.right("streams at once")
        return us

    async def large_on_stream(self, reg: aiougds.Registration) -> None:
        """Large reads on one stream: bandwidth beside plain awaits, and the enqueue."""
        stream, part, count = self.streams[0], reg[: self.large], 8
        room = (self.ns.size - self.large) // self.large

        def place() -> int:
            return self._random.randrange(room) * self.large

        for _ in range(3):
            await self.ns.read_on(stream, part, offset=0)
        plain = await middle_of(lambda: self.ns.read(part, offset=place()), 30)
        rates, queued = [], []
        for _ in range(7):
            start = time.perf_counter()
            ops = []
            for _ in range(count):
                begin = time.perf_counter()
                ops.append(self.ns.read_on(stream, part, offset=place()))
                queued.append(time.perf_counter() - begin)
            await ops[-1]
            rates.append((time.perf_counter() - start) / count * 1e6)
        each, enqueue = statistics.median(rates), statistics.median(queued) * 1e6
        more: dict[str, object] = {}
        if self.cufile is not None:
            more = self._large_async(self.cufile, reg.ptr, place, count)
        for _ in range(8):
            offset = place()
            op = self.ns.read_on(stream, part, offset=offset)
            self.check(reg.ptr, offset, self.large, stream)
            await op
        self.right("a large read on a stream")
        rate = self.large / each / 1e3
        self.row(
            f"{self.large >> 20} MiB on a stream, us",
            plain=plain,
            on=each,
            enqueue=enqueue,
            share=plain / each,
            gb_per_s=rate,
            **more,
        )

    def _large_async(
        self, peer: Cufile, ptr: int, place: Callable[[], int], count: int
    ) -> dict[str, object]:
        stream = int(self.streams[1])
        rates, shares = [], []
        for _ in range(5):
            start, enqueue, kept = time.perf_counter(), 0.0, []
            for _ in range(count):
                begin = time.perf_counter()
                kept.append(peer.read_async(stream, ptr, self.large, place()))
                enqueue += time.perf_counter() - begin
            done(driver.cuStreamSynchronize(stream))
            took = time.perf_counter() - start
            rates.append(took / count * 1e6)
            shares.append(enqueue / took)
        return {
            "cuFileReadAsync (compat)": statistics.median(rates),
            "its enqueue's share": statistics.median(shares),
        }

    async def restore(self, reg: aiougds.Registration) -> None:
        """A set of four chunks and a kernel behind it, beside the unordered batch."""
        stream, size = self.streams[0], reg.nbytes // 4
        parts = [(reg[i * size : (i + 1) * size], i * size) for i in range(4)]

        async def as_set() -> None:
            with self.ns.on_stream(stream) as group:
                for part, offset in parts:
                    group.read(part, offset=offset)
            self.check(reg.ptr, 0, reg.nbytes, stream)
            await group

        await as_set()
        batch = await middle_of(lambda: self.ns.read_many(parts), 9)
        ordered = await middle_of(as_set, 9)
        self.right("a set")
        rate = reg.nbytes / ordered / 1e3
        self.row(
            "set of 4, us",
            batch=batch,
            on=ordered,
            share=batch / ordered,
            gb_per_s=rate,
        )

    async def overlap(self, reg: aiougds.Registration, out: aiougds.Namespace) -> None:
        """Sixteen 1 MiB writes and kernels (paper, figure 13)."""
        io, compute, count = self.streams[0], self.streams[1], 16
        parts = [reg[i * MIB : (i + 1) * MIB] for i in range(count)]
        self.kernels.make(reg.ptr, 0, count * MIB, int(io))
        await out.write_on(io, parts[0], offset=0)
        write = await middle_of(lambda: out.write(parts[0], offset=0), 30)

        def kernel() -> None:
            self.kernels.spin(write / 1e6, int(compute))

        async def sequential() -> None:
            for i, part in enumerate(parts):
                await out.write_on(io, part, offset=i * MIB)
                kernel()
                done(driver.cuStreamSynchronize(compute))

        async def each() -> None:
            for i, part in enumerate(parts):
                op = out.write_on(io, part, offset=i * MIB)
                kernel()
                await op
                done(driver.cuStreamSynchronize(compute))

        async def pipelined() -> None:
            ops = []
            for i, part in enumerate(parts):
                ops.append(out.write_on(io, part, offset=i * MIB))
                kernel()
            for op in ops:
                await op
            done(driver.cuStreamSynchronize(compute))

        us = {}
        for work in (sequential, each, pipelined):
            await work()
            us[work.__name__] = await middle_of(work, 9)
        done(driver.cuMemsetD8(reg.ptr, 0, count * MIB))
        for i, part in enumerate(parts):
            await out.read(part, offset=i * MIB)
        self.check(reg.ptr, 0, count * MIB)
        self.right("what was written")
        gain = us["sequential"] / us["pipelined"]
        self.row("16 writes of 1 MiB and kernels, us", write=write, **us, gain=gain)


async def run(path: Path, *, quick: bool) -> Bars:
    memory = (16 if quick else 112) * MIB
    async with (
        aiougds.open(f"emu:{path}?readonly=1") as ns,
        aiougds.open(f"emu:{path}.out?size=64MiB") as out,
    ):
        bars = Bars(ns, path, quick=quick)
        async with ns.allocate(memory, device="cuda:0") as reg:
            await bars.plain(reg)
            await bars.batch(reg)
            await bars.ordered(reg)
            await bars.gated(reg)
            await bars.large_on_stream(reg)
            await bars.restore(reg)
        async with out.allocate(16 * MIB, device="cuda:0") as reg:
            await bars.overlap(reg, out)
    # its own thread's sleep would make a millisecond longer by what waking up takes
    async with (
        aiougds.open(f"emu:{path}?readonly=1&awake=1") as slow,
        slow.allocate(MIB, device="cuda:0") as reg,
    ):
        await bars.apart(slow, reg)
    for stream in bars.streams:
        done(driver.cuStreamDestroy(stream))
    print(f"{bars.checked >> 20} MiB were checked by a kernel, all of it right")
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=int, default=4 << 30)
    given = parser.parse_args()
    done(driver.cuInit(0))
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
    size = 256 * MIB if given.quick else given.size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        prepare(Path(folder))
        with path.open("wb") as file:
            for at in range(0, size, 16 * MIB):
                file.write(pattern_words(at // WORD, 16 * MIB // WORD).tobytes())
        bars = asyncio.run(run(path, quick=given.quick))
    for name, why in bars.missing.items():
        print(f"{name}: not measured ({why})")
    if given.json:
        about = {"python": platform.python_version(), "kernel": platform.release()}
        found = {"about": about, "rows": bars.rows, "missing": bars.missing}
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
