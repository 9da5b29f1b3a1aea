"""Replaying request traces: blocks of a prompt, each by its number, prefix first.

A request gets the chunks of its longest prefix that is there, and puts those of the
rest. Run as a program it prints hits and latencies:

    python tests/store/replay.py [--requests N] TRACE.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiougds
from aiougds import store as st
from aiougds.store._layout import plan

Trace = Sequence[Sequence[int]]
CHUNK = 512
LAYOUT = st.Layout(slot_bytes=CHUNK, key_bytes=16)
SHARES = (0.1, 0.25, 0.5, 1.0)


def recorded() -> Path | None:
    """Return the path of the trace of Mooncake, where it is at hand."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "mooncake-synthetic.jsonl"
    path = Path(os.environ.get("AIOUGDS_TRACE", beside))
    return path if path.exists() else None


def load(path: Path) -> Trace:
    """Read a trace: one request a line, its blocks in ``hash_ids``."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["hash_ids"] for line in lines]


def generated(requests: int = 200, seed: int = 1) -> Trace:
    """Make a trace: conversations that grow by a few blocks each time they return."""
    rng = random.Random(seed)
    talks: list[list[int]] = []
    fresh = iter(range(1 << 30))
    common = [next(fresh) for _ in range(6)]  # a system prompt
    found = []
    for _ in range(requests):
        if talks and rng.random() < 0.7:
            # Recent ones return more often.
            talk = talks[max(0, len(talks) - 1 - int(rng.expovariate(0.04)))]
        else:
            talk = list(common[: rng.randrange(1, 7)])
            talks.append(talk)
        talk.extend(next(fresh) for _ in range(rng.randrange(1, 12)))
        found.append(tuple(talk))
    return found


def size_for(slots: int) -> int:
    """Return the bytes of a device that has room for exactly so many chunks."""
    low, high = 1 << 8, 4 * slots + (1 << 14)
    while low < high:
        middle = (low + high) // 2
        if plan(LAYOUT, middle * 4096, 4096, bytes(16), 0, 1).slots < slots:
            low = middle + 1
        else:
            high = middle
    return low * 4096


# ---- what each policy would do, written from its description ----


class LRU:
    """Least recently used, down to ``low`` when ``high`` would be passed."""

    def __init__(self, capacity: int, high: float = 1.0, low: float = 1.0) -> None:
        self.high, self.low = int(high * capacity), int(low * capacity)
        self.there: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.there

    def access(self, block: int) -> None:
        """Use a block."""
        if block not in self.there and len(self.there) + 1 > self.high:
            while len(self.there) + 1 > self.low:
                self.there.popitem(last=False)
        self.there[block] = None
        self.there.move_to_end(block)


class ARC:
    """Figure 4 of Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead ...", 2003."""

    def __init__(self, capacity: int) -> None:
        self.c, self.p = capacity, 0.0
        self.t1: OrderedDict[int, None] = OrderedDict()
        self.t2: OrderedDict[int, None] = OrderedDict()
        self.b1: OrderedDict[int, None] = OrderedDict()
        self.b2: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.t1 or block in self.t2

    def _replace(self, block: int) -> None:
        size = len(self.t1)
        if size and (size > self.p or (block in self.b2 and size == self.p)):
            self.b1[self.t1.popitem(last=False)[0]] = None
        else:
            self.b2[self.t2.popitem(last=False)[0]] = None

    def access(self, x: int) -> None:
        """Use a block: cases I to IV."""
        t1, t2, b1, b2, c = self.t1, self.t2, self.b1, self.b2, self.c
        if x in t1 or x in t2:
            t1.pop(x, None)
            t2.pop(x, None)
        elif x in b1:
            self.p = min(c, self.p + max(1.0, len(b2) / len(b1)))
            self._replace(x)
            del b1[x]
        elif x in b2:
            self.p = max(0.0, self.p - max(1.0, len(b1) / len(b2)))
            self._replace(x)
            del b2[x]
        else:
            if len(t1) + len(b1) == c:
                if len(t1) < c:
                    b1.popitem(last=False)
                    self._replace(x)
                else:
                    t1.popitem(last=False)
            elif len(t1) + len(b1) + len(t2) + len(b2) >= c:
                if len(t1) + len(b1) + len(t2) + len(b2) == 2 * c:
                    b2.popitem(last=False)
                self._replace(x)
            t1[x] = None
            return
        t2[x] = None


def prefix_hits(trace: Trace, policy: LRU | ARC) -> list[int]:
    """Return for each request how many of its first blocks are there."""
    hits = []
    for blocks in trace:
        hits.append(next((i for i, b in enumerate(blocks) if b not in policy), None))
        hits[-1] = len(blocks) if hits[-1] is None else hits[-1]
        for block in blocks:
            policy.access(block)
    return hits  # type: ignore[return-value]


# ---- the store ----


@dataclass(slots=True)
class Replayed:
    """What came of it."""

    hits: list[int] = field(default_factory=list)
    get_us: list[float] = field(default_factory=list)
    """Of each request that found something: for all its chunks together."""
    put_us: list[float] = field(default_factory=list)
    """Of each chunk."""
    took_s: float = 0.0


async def replay(
    trace: Trace, slots: int, eviction: st.Eviction, high: float, low: float
) -> Replayed:
    """Run a trace through a store of so many slots; check each chunk that is read."""
    done = Replayed()
    clock = time.perf_counter
    address = f"emu:?size={size_for(slots)}"
    async with (
        aiougds.open(address) as ns,
        st.open([ns], create=LAYOUT, eviction=eviction, high=high, low=low) as chunks,
    ):
        assert chunks.capacity.slots == slots
        longest = max(map(len, trace))
        reg = await chunks.allocate((longest + 1) * 4096)
        parts = [reg[i * 4096 : i * 4096 + CHUNK] for i in range(longest + 1)]
        source, view = parts[longest], reg.view
        began = clock()
        for blocks in trace:
            keys = [b"%d" % block for block in blocks]
            there = next(prefix(chunks.contains_many(keys)))
            done.hits.append(there)
            if there:
                before = clock()
                items = list(zip(keys[:there], parts, strict=False))
                read = await chunks.get_many(items)
                done.get_us.append(1e6 * (clock() - before))
                assert read == [CHUNK] * there
                for i, key in enumerate(keys[:there]):
                    assert view[i * 4096 : i * 4096 + 16] == key.ljust(16)
            for key in keys[there:]:
                view[longest * 4096 : longest * 4096 + 16] = key.ljust(16)
                before = clock()
                if await chunks.put(key, source):
                    done.put_us.append(1e6 * (clock() - before))
        done.took_s = clock() - began
        await reg.aclose()
    return done


def prefix(there: list[bool]) -> Iterator[int]:
    """Tell how many of the first are there."""
    yield there.index(False) if False in there else len(there)


def percentile(values: list[float], share: float) -> float:
    """Return one of the values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="replay a trace through the store")
    parser.add_argument("trace", type=Path, nargs="?", help="default: generated")
    parser.add_argument("--requests", type=int, help="only the first")
    parser.add_argument("--share", type=float, action="append", help="of all blocks")
    args = parser.parse_args()
    trace = generated() if args.trace is None else load(args.trace)
    trace = trace[: args.requests]
    total = sum(map(len, trace))
    distinct = len({block for blocks in trace for block in blocks})
    print(f"{len(trace)} requests, {total} blocks, {distinct} distinct")
    print("| policy | capacity | prefix hits | simulated | get p50/p99 us a request "
          "| put p50/p99 us | s |")  # fmt: skip
    for eviction in ("lru", "arc"):
        for share in args.share or SHARES:
            slots = int(share * distinct)
            policy = LRU(slots) if eviction == "lru" else ARC(slots)
            wanted = sum(prefix_hits(trace, policy)) / total
            done = asyncio.run(replay(trace, slots, eviction, 1.0, 1.0))  # type: ignore[arg-type]
            get, put = done.get_us, done.put_us
            print(
                f"| {eviction} | {share:.0%} | {sum(done.hits) / total:.4f} "
                f"| {wanted:.4f} "
                f"| {percentile(get, 0.5):.0f} / {percentile(get, 0.99):.0f} "
                f"| {percentile(put, 0.5):.0f} / {percentile(put, 0.99):.0f} "
                f"| {done.took_s:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
