"""``python tests/gpu/bars.py [--quick] [--json FILE]``: streams and plain reads, timed.

Needs a CUDA GPU, cuda-bindings and aiougds; no compiler, no network. Beside it, where
they can be had, cuFile (``cuda.bindings.cufile``) and KvikIO read the same file: in
compatibility mode, unless filesystem and driver do better. All is one run on one
machine: compare ratios of it, and never with another one. Only the harness has been
tried, on the software GPU: what is printed there says nothing of hardware.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from cuda.bindings import driver

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


class Cufile:
    """cuFile's blocking read, through cuda.bindings."""

    name = "cuFile read"

    def __init__(self, path: Path) -> None:
        from cuda.bindings import cufile

        self._cufile = cufile
        cufile.driver_open()
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        descr = cufile.Descr()
        descr.type = cufile.FileHandleType.OPAQUE_FD
        descr.handle.fd = self._fd
        descr.fs_ops = 0
        self._handle = cufile.handle_register(descr.ptr)

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
        if self._cufile.read(self._handle, ptr, nbytes, offset, 0) != nbytes:
            raise RuntimeError("cuFile read too little")


class Kvikio:
    """KvikIO's blocking read."""

    name = "KvikIO read"

    def __init__(self, path: Path) -> None:
        import cupy
        import kvikio

        self._cupy = cupy
        self._file = kvikio.CuFile(path, "r")

    def read(self, ptr: int, nbytes: int, offset: int) -> None:
        memory = self._cupy.cuda.UnownedMemory(ptr, nbytes, self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        array = self._cupy.ndarray((nbytes,), "u1", pointer)
        if self._file.read(array, nbytes, offset) != nbytes:
            raise RuntimeError("KvikIO read too little")


def peers(path: Path) -> tuple[list[Cufile | Kvikio], dict[str, str]]:
    """Return the peers that can be had, and why others cannot."""
    found: list[Cufile | Kvikio] = []
    missing: dict[str, str] = {}
    for kind in (Cufile, Kvikio):
        try:
            found.append(kind(path))
        except Exception as exc:  # noqa: BLE001 (theirs, whatever it is)
            missing[kind.name] = f"{type(exc).__name__}: {exc}"
    return found, missing


class Bars:
    """One run: a file, a namespace over it, and memory of the GPU."""

    def __init__(self, ns: aiougds.Namespace, path: Path, *, quick: bool) -> None:
        self.ns = ns
        self.rows: Rows = []
        self.rounds = 20 if quick else 1000
        self.peers, self.missing = peers(path)
        self.streams = [done(driver.cuStreamCreate(1)) for _ in range(64)]
        self.large = (4 if quick else 16) * MIB
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

    async def plain(self, reg: aiougds.Registration) -> None:
        """A plain await, random offsets, beside the peers."""
        ptr = reg.__cuda_array_interface__["data"][0]
        for nbytes in (4 * KIB, 64 * KIB, MIB, self.large):
            part, rounds = reg[:nbytes], max(5, self.rounds * 4 * KIB // nbytes)
            ours = partial(self._plain_read, part)
            us = {"aiougds": await middle_of(ours, rounds)}
            for peer in self.peers:
                theirs = partial(self._peer_read, peer, ptr, nbytes)
                us[f"{peer.name} (compat unless configured)"] = middle(theirs, rounds)
            self.row(f"read {nbytes >> 10} KiB, us", **us)

    async def _plain_read(self, part: aiougds.RegistrationSlice) -> None:
        await self.ns.read(part, offset=self.offset(part.nbytes))

    def _peer_read(self, peer: Cufile | Kvikio, ptr: int, nbytes: int) -> None:
        peer.read(ptr, nbytes, self.offset(nbytes))

    def _read_on(self, part: object) -> None:
        stream = self.streams[0]
        self.ns.read_on(stream, part, offset=self.offset(4 * KIB))
        done(driver.cuStreamSynchronize(stream))

    async def ordered(self, reg: aiougds.Registration) -> None:
        """A stream-ordered 4 KiB read with its synchronise, beside the plain await."""
        part = reg[: 4 * KIB]
        self._read_on(part)
        plain = await middle_of(
            lambda: self.ns.read(part, offset=self.offset(4 * KIB)), self.rounds
        )
        on = middle(lambda: self._read_on(part), self.rounds)
        self.row("4 KiB on a stream, us", plain=plain, on=on, on_top=on - plain)

    async def gated(self, reg: aiougds.Registration) -> None:
        """64 streams at once, then 8 of 1 ms each."""
        for count, delay_s in ((64, 0.0), (8, 0.001)):
            chosen = self.streams[:count]

            async def all_of(chosen: list[object] = chosen) -> None:
                ops = [
                    self.ns.read_on(s, reg[i * 4096 : (i + 1) * 4096], offset=i * 4096)
                    for i, s in enumerate(chosen)
                ]
                for op in ops:
                    await op

            await all_of()
            if delay_s:
                with testing.inject(self.ns, testing.Fault.delay(delay_s, "read")):
                    us = await middle_of(all_of, 5)
            else:
                us = await middle_of(all_of, 5)
            self.row(f"{count} streams, {delay_s * 1e3:g} ms each, us", all=us)

    async def large_on_stream(self, reg: aiougds.Registration) -> None:
        """Large reads on one stream: bandwidth beside plain awaits, and the enqueue."""
        stream, part, count = self.streams[0], reg[: self.large], 8
        plain = await middle_of(lambda: self.ns.read(part, offset=0), count)
        start = time.perf_counter()
        ops = [self.ns.read_on(stream, part, offset=0) for _ in range(count)]
        queued = (time.perf_counter() - start) / count * 1e6
        await ops[-1]
        each = (time.perf_counter() - start) / count * 1e6
        share = plain / each
        self.row("large reads, us", plain=plain, on=each, enqueue=queued, share=share)

    async def restore(self, reg: aiougds.Registration) -> None:
        """A set of four chunks and a fill behind it, beside the unordered batch."""
        stream, size = self.streams[0], reg.nbytes // 4
        parts = [(reg[i * size : (i + 1) * size], i * size) for i in range(4)]
        address = reg.__cuda_array_interface__["data"][0]

        async def as_set() -> None:
            with self.ns.on_stream(stream) as group:
                for part, offset in parts:
                    group.read(part, offset=offset)
            done(driver.cuMemsetD8Async(address, 0, 4096, stream))
            await group

        batch = await middle_of(lambda: self.ns.read_many(parts), 5)
        ordered = await middle_of(as_set, 5)
        self.row("set of 4, us", batch=batch, on=ordered, share=batch / ordered)


async def run(path: Path, *, quick: bool) -> Bars:
    memory = (8 if quick else 112) * MIB
    async with aiougds.open(f"emu:{path}?readonly=1") as ns:
        bars = Bars(ns, path, quick=quick)
        async with ns.allocate(memory, device="cuda:0") as reg:
            await bars.plain(reg)
            await bars.ordered(reg)
            await bars.gated(reg)
            await bars.large_on_stream(reg)
            await bars.restore(reg)
    for stream in bars.streams:
        done(driver.cuStreamDestroy(stream))
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=int, default=4 << 30)
    given = parser.parse_args()
    done(driver.cuInit(0))
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
    size = 64 * MIB if given.quick else given.size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        with path.open("wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
        bars = asyncio.run(run(path, quick=given.quick))
    for name, why in bars.missing.items():
        print(f"{name}: not measured ({why})")
    if given.json:
        about = {"python": platform.python_version(), "kernel": platform.release()}
        found = {"about": about, "rows": bars.rows, "missing": bars.missing}
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
