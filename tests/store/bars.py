"""What the store costs beyond raw transfers: ``python tests/store/bars.py [awake]``.

On a namespace in memory, whose pages are there before the clock runs. Each figure is
the best of several rounds, in which everything takes turns. With ``awake`` neither
side sleeps (mode ``inline``, a device that stays awake): what others do disturbs least.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Awaitable, Callable

import aiougds
from aiougds import store as st

KIB = 1 << 10
COUNT = 1024
HEADER = 4 * KIB
AWAKE = "awake" in sys.argv[1:]
MODE: aiougds.Mode = "inline" if AWAKE else "adaptive"


async def prepared(ns: aiougds.Namespace) -> None:
    """Touch every page of the namespace's memory."""
    async with ns.allocate(16 << 20) as reg:
        reg.view[:] = b"\1" * reg.nbytes
        for at in range(0, ns.size, reg.nbytes):
            await ns.write(reg[: min(reg.nbytes, ns.size - at)], offset=at)
        reg.view[:] = bytes(reg.nbytes)
        await ns.write(reg, offset=0)  # nothing, as far as create= looks


async def rounds(
    times: int, **works: Callable[[], Awaitable[object]]
) -> dict[str, float]:
    """Return the shortest time of each, in seconds."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(times):
        for name, work in works.items():
            began = time.perf_counter()
            await work()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


async def single(nbytes: int, at_once: int, vwc: int) -> None:
    """Put and get by several tasks, beside plain writes and reads of the same bytes."""
    size = 8 * COUNT * (nbytes + 2 * HEADER)
    address = f"emu:?size={size}&vwc={vwc}&awake={int(AWAKE)}"
    async with aiougds.open(address, mode=MODE) as ns:
        await prepared(ns)
        raw = ns.region(ns.size // 2, ns.size // 2)
        layout = st.Layout(slot_bytes=nbytes)
        async with st.open([ns], create=layout, high=1) as chunks:
            reg = await chunks.allocate(at_once * nbytes + HEADER)
            header = reg[at_once * nbytes :]
            parts = [reg[i * nbytes : (i + 1) * nbytes] for i in range(at_once)]
            each, turn = COUNT // at_once, 0

            async def run(work: Callable[[int, int], Awaitable[object]]) -> None:
                async def worker(number: int) -> None:
                    for i in range(number * each, (number + 1) * each):
                        await work(number, i)

                async with asyncio.TaskGroup() as tasks:
                    for number in range(at_once):
                        tasks.create_task(worker(number))

            per_commit = float(COUNT)

            async def put() -> None:
                nonlocal turn, per_commit
                turn += 1
                before = chunks.statistics().commits
                await puts()
                commits = chunks.statistics().commits - before
                per_commit = min(per_commit, COUNT / commits)

            async def puts() -> None:
                await run(lambda n, i: chunks.put(b"%d-%d" % (turn, i), parts[n]))

            async def writes(number: int, i: int) -> None:
                """Do what a put has to: header, chunk, its part of a commit."""
                at = i * (nbytes + HEADER)
                await raw.write(header, offset=at)
                await raw.write(parts[number], offset=at + HEADER)
                if not i % max(1, round(per_commit)):
                    if vwc:
                        await raw.flush()
                    await raw.write(header, offset=raw.size - HEADER, fua=True)

            async def delete() -> None:
                await chunks.delete_many([b"%d-%d" % (turn, i) for i in range(COUNT)])

            took = await rounds(
                21,
                write=lambda: run(lambda n, i: raw.write(parts[n], offset=i * nbytes)),
                put=put,
                writes=lambda: run(writes),
                read=lambda: run(lambda n, i: raw.read(parts[n], offset=i * nbytes)),
                get=lambda: run(
                    lambda n, i: chunks.get(b"%d-%d" % (turn, i), parts[n])
                ),
                delete=delete,
            )
            us = {name: 1e6 * took_s / COUNT for name, took_s in took.items()}
            print(
                f"{nbytes // KIB} KiB, {at_once} at once, vwc={vwc}: "
                f"write {us['write']:.1f} put {us['put']:.1f} us "
                f"(+{us['put'] - us['write']:.1f}; beyond its header, chunk and "
                f"{1 / per_commit:.2f} journal writes "
                f"+{us['put'] - us['writes']:.1f}); "
                f"read {us['read']:.1f} "
                f"get {us['get']:.1f} us (+{us['get'] - us['read']:.1f})",
                flush=True,
            )
            await reg.aclose()


async def many(nbytes: int) -> None:
    """Restore and store many chunks with one call, beside a namespace's batches."""
    async with aiougds.open(f"emu:?size={3 * COUNT * (nbytes + 2 * HEADER)}") as ns:
        await prepared(ns)
        layout = st.Layout(slot_bytes=nbytes)
        async with st.open([ns], create=layout, high=1) as chunks:
            reg = await chunks.allocate(COUNT * nbytes)
            reg.view[:] = b"\1" * reg.nbytes
            keys = [b"model@%032x" % i for i in range(COUNT)]
            items = [
                (key, reg[i * nbytes : (i + 1) * nbytes]) for i, key in enumerate(keys)
            ]
            await chunks.put_many(items)
            pool = chunks._shards[0].slots.pools[0]
            offsets = array(
                "q", [pool.at(chunks.chunk(key).slot) + HEADER for key in keys]
            )
            took = await rounds(
                15,
                read_many=lambda: ns.read_many(reg, offsets=offsets, nbytes=nbytes),
                get_many=lambda: chunks.get_many(items),
            )

            async def write_many() -> None:
                await ns.write_many(reg, offsets=offsets, nbytes=nbytes)

            async def put_many() -> None:
                assert all(await chunks.put_many(items))

            took |= await rounds(
                7,
                delete=lambda: chunks.delete_many(keys),
                put_many=put_many,
                write_many=write_many,
            )
            rate = {
                name: COUNT * nbytes / took_s / 1e9 for name, took_s in took.items()
            }
            beyond = 1e6 * (took["put_many"] - took["write_many"]) / COUNT
            print(
                f"{COUNT} x {nbytes // KIB} KiB: read_many {rate['read_many']:.2f}, "
                f"get_many {rate['get_many']:.2f} GB/s "
                f"({rate['get_many'] / rate['read_many']:.1%}); write_many "
                f"{rate['write_many']:.2f}, put_many {rate['put_many']:.2f} GB/s "
                f"(+{beyond:.1f} us a chunk)",
                flush=True,
            )
            await reg.aclose()


async def main() -> None:
    """Print them."""
    for vwc in (0, 1):
        for at_once in (1, 32):
            await single(64 * KIB, at_once, vwc)
    for nbytes in (64 * KIB, 256 * KIB, 1024 * KIB):
        await many(nbytes)


if __name__ == "__main__":
    asyncio.run(main())
