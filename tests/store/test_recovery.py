"""What is read when a store is opened: checkpoints, the journal after them, damage."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.world import KIB, MIB, Option, World
from store.tools import LAYOUT, got, holds, opened, put

import aiougds
from aiougds import store as st
from aiougds.store import _shard
from aiougds.store._entries import Put
from aiougds.store._layout import BLOCK
from aiougds.store._slots import NEW

KEYS = 1_000_000


def fill(chunks: st.ChunkStore, first: int, last: int) -> None:
    """Have the store believe that it holds so many chunks, without their bytes."""
    (shard,) = chunks._shards
    pool = shard.slots.pools[0]
    for number in range(first, last):
        slot = pool.free.pop()
        pool.used += 1
        key = b"model@%032x" % number
        made = Put(key, slot, shard.next_gen(), 500)
        shard.journal.put(made)


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_a_million_keys_are_there_in_five_seconds() -> None:
    """Most of them in a checkpoint, 200 000 in the journal behind it."""

    async def main() -> float:
        async with aiougds.open("emu:?size=9GiB") as ns:
            layout = st.Layout(slot_bytes=512, key_bytes=64)
            chunks = await st.open([ns], create=layout, high=1)
            fill(chunks, 0, KEYS * 8 // 10)
            await chunks.aclose()
            chunks = await st.open([ns], high=1)
            fill(chunks, KEYS * 8 // 10, KEYS)
            await chunks.flush()
            assert chunks.statistics().checkpoints == 0
            await chunks._mount.close()  # as after a loss of power
            async with st.open([ns]) as chunks:
                assert len(chunks) == KEYS
                assert b"model@%032x" % (KEYS - 1) in chunks
                keys = [key for key, _ in zip(chunks.scan(), range(3), strict=False)]
                assert [key for key, _ in keys] == [
                    b"model@%032x" % n for n in range(3)
                ]
                return chunks.statistics().recovery_s

    took_s = asyncio.run(main())
    print(f"{KEYS} keys in {took_s:.2f} s")
    assert took_s <= 5


@pytest.mark.tasks
@pytest.mark.few
async def test_checkpoints_go_on_beside_puts(world: World) -> None:
    """The journal has far fewer blocks than there are puts."""
    layout = st.Layout(slot_bytes=4 * KIB, key_bytes=64, journal_bytes=64 * BLOCK)
    async with world.open(emu={"size": 16 * MIB}) as ns:
        chunks = await st.open([ns], create=layout)
        for n in range(500):
            await put(chunks, b"%d" % n, 10)
            if n % 3 == 0:
                await chunks.delete(b"%d" % n)
        assert chunks.statistics().checkpoints > 5
        await chunks._mount.close()  # as after a loss of power
        async with st.open([ns]) as chunks:
            assert len(chunks) == sum(n % 3 != 0 for n in range(500))
            for n in range(500):
                if n % 3:
                    await holds(chunks, b"%d" % n, 10)


@pytest.mark.tasks
@pytest.mark.few
async def test_a_page_at_a_time(world: World) -> None:
    """A checkpoint of many pages is spread over many writes of the journal."""
    layout = st.Layout(slot_bytes=4 * KIB, key_bytes=64, journal_bytes=256 * BLOCK)
    async with opened(world, create=layout, size=96 * MIB) as (_, chunks):
        (shard,) = chunks._shards
        assert shard.disk.superblock.slots > 9000
        steps: list[int] = []
        for n in range(400):
            before = shard.journal.checkpoints._nbytes
            await put(chunks, b"%d" % n, 10)
            steps.append(shard.journal.checkpoints._nbytes - before)
        assert chunks.statistics().checkpoints >= 1
        assert sum(step > 0 for step in steps) >= 15
        assert max(steps) <= 4 * 64 * KIB


@pytest.mark.tasks
@pytest.mark.few
async def test_damage_is_told(world: World) -> None:
    async with world.open() as ns:
        async with st.open([ns], create=LAYOUT) as chunks:
            await put(chunks, b"a", 100)
            superblock = chunks._shards[0].disk.superblock
        block = bytearray(BLOCK)
        await ns.read(block, offset=0)

        async def store_is(match: str) -> None:
            with pytest.raises(st.StoreFormatError, match=match):
                await st.open([ns])

        for at, what in ((0, "no chunk store"), (8, "version"), (40, "checksum")):
            wrong = bytearray(block)
            wrong[at] ^= 0x40
            await ns.write(bytes(wrong), offset=0)
            await store_is(what)
        await ns.write(bytes(block), offset=0)
        region = superblock.checkpoint + superblock.checkpoint_bytes
        for at in (region, superblock.checkpoint):
            await ns.write(bytes(BLOCK), offset=at)
        await store_is("both checkpoints")


@pytest.mark.tasks
@pytest.mark.few
async def test_the_checkpoint_before_a_damaged_one_will_do(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With the journal since then it says the same; closing makes a new one."""
    async with world.open() as ns:
        async with st.open([ns], create=LAYOUT) as chunks:
            for n in range(5):
                await put(chunks, b"%d" % n, 100)
            await chunks.delete(b"3")
            superblock = chunks._shards[0].disk.superblock
        # The last checkpoint has number 1; its page is behind its head.
        region = superblock.checkpoint + superblock.checkpoint_bytes
        await ns.write(bytes(BLOCK), offset=region + BLOCK)
        (problem,) = (await st.check([ns])).problems
        assert "page 0 of checkpoint 1" in problem
        for _ in range(2):  # without a trace of the first opening
            chunks = await st.open([ns])
            assert {key for key, _ in chunks.scan()} == {b"0", b"1", b"2", b"4"}
            await chunks._mount.close()
        assert "page 0 of checkpoint 1" in caplog.text
        async with st.open([ns]) as chunks:
            await put(chunks, b"5", 100)
        assert not (await st.check([ns])).problems
        async with st.open([ns]) as chunks:
            for n in (0, 1, 2, 4, 5):
                await holds(chunks, b"%d" % n, 100)


@pytest.mark.tasks
@pytest.mark.few
@pytest.mark.parametrize("what", ["head", "page"])
async def test_what_the_journal_no_longer_has_is_refused(
    world: World, what: str
) -> None:
    """The ring is a block round: nothing may be taken for all that there was."""
    layout = st.Layout(slot_bytes=4 * KIB, key_bytes=64, journal_bytes=64 * BLOCK)
    async with world.open(emu={"size": 16 * MIB}) as ns:
        chunks = await st.open([ns], create=layout)
        journal = chunks._shards[0].journal
        before, n = journal.checkpoints.last, 0
        while journal.checkpoints.count < 3 or journal.head <= before.replay_from + 64:
            if journal.checkpoints.count < 3:
                before = journal.checkpoints.last
            await put(chunks, b"%d" % n, 10)
            n += 1
        last = journal.checkpoints.last
        assert last.number == before.number + 1
        superblock = chunks._shards[0].disk.superblock
        await chunks._mount.close()
        region = superblock.checkpoint + last.number % 2 * superblock.checkpoint_bytes
        at = region if what == "head" else region + BLOCK
        kept = bytearray(BLOCK)
        await ns.read(kept, offset=at)
        await ns.write(bytes(BLOCK), offset=at)
        with pytest.raises(st.StoreFormatError, match="overwritten"):
            await st.open([ns])
        await ns.write(bytes(kept), offset=at)
        async with st.open([ns]) as chunks:
            assert len(chunks) == n


@pytest.mark.tasks
@pytest.mark.few
async def test_what_an_earlier_opening_left_behind_is_not_replayed(
    world: World,
) -> None:
    """A torn commit leaves whole blocks behind the first that is not there."""
    async with world.open() as ns:
        chunks = await st.open([ns], create=LAYOUT)
        (shard,) = chunks._shards
        await put(chunks, b"first", 100)
        # Three blocks of one commit, of which the first is torn.
        keys = [b"%d" % n + b"k" * 60 for n in range(30)]
        await chunks.put_many([(key, b"x" * 50) for key in keys])
        last = shard.journal.head - 1
        journal = shard.disk.superblock.journal
        await chunks._mount.close()
        block = bytearray(BLOCK)
        await ns.read(block, offset=journal + last * BLOCK)
        await ns.write(bytes(block), offset=journal + (last + 1) * BLOCK)
        torn = bytearray(block)
        torn[100] ^= 1
        await ns.write(bytes(torn), offset=journal + last * BLOCK)
        async with st.open([ns]) as chunks:
            (shard,) = chunks._shards
            assert shard.journal.head == last
            assert shard.journal._epoch == 2
            assert b"first" in chunks


SCRIPT = """
import asyncio, itertools, sys
from aiougds import store as st
from store.tools import LAYOUT, noise

async def main(address):
    async with st.open([address], create=LAYOUT) as chunks:
        async def worker(number):
            for n in itertools.count():
                key = b"%d-%d" % (number, n)
                await chunks.put(key, noise(key, 1 + n * 577 % 60_000))
                print(number, n, flush=True)
                if n % 5 == 4:
                    gone = b"%d-%d" % (number, n - 2)
                    print(number, n - 2, "deleting", flush=True)
                    await chunks.delete(gone)
        async with asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(worker(number))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("after", [60, 400, 1000])
def test_killed_under_load(tmp_path: Path, after: int) -> None:
    """Every chunk whose put has returned is there, whoever kills the process."""
    path = tmp_path / "disk"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), f"emu:{path}?size=512MiB"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(after)]
    child.send_signal(signal.SIGKILL)
    with child:
        lines += child.stdout.readlines()
    put_keys: dict[bytes, int] = {}
    deleted: set[bytes] = set()
    for line in lines:
        if not line.endswith("\n"):
            continue  # killed in the middle of it
        number, n, *rest = line.split()
        key = b"%s-%s" % (number.encode(), n.encode())
        if rest:
            deleted.add(key)
        else:
            put_keys[key] = 1 + int(n) * 577 % 60_000

    async def look() -> None:
        async with st.open([f"emu:{path}"]) as chunks:
            for key, nbytes in put_keys.items():
                if key not in deleted:
                    await holds(chunks, key, nbytes)
            for key, info in chunks.scan():
                n = int(key.split(b"-")[1])
                assert info.nbytes == 1 + n * 577 % 60_000
                await holds(chunks, key, info.nbytes)

    assert len(put_keys) > 20
    asyncio.run(look())


@pytest.mark.tasks
@pytest.mark.parametrize("eviction", ["lru", "arc"])
async def test_what_was_used_last_goes_last_after_a_restart(
    world: World, tmp_path: Path, eviction: st.Eviction
) -> None:
    """The order of use, not that of puts; what is put anew is the newest."""
    emu: dict[str, Option] = {"size": 4 * MIB}
    path, keys = tmp_path / "kv", [b"%d" % i for i in range(20)]
    how: dict[str, Option] = {"eviction": eviction, "high": 1.0, "low": 1.0}
    async with (
        world.open(path, emu=emu) as ns,
        st.open([ns], create=LAYOUT, **how) as chunks,
    ):
        for key in keys:
            await put(chunks, key, 100)
    for used in (keys[:5], keys[5:8]):  # without a put in between, too
        async with world.open(path) as ns, st.open([ns], **how) as chunks:
            for key in used:
                await got(chunks, key)
    order = [*keys[8:], *keys[:8]]
    async with world.open(path) as ns, st.open([ns], **how) as chunks:
        gone: list[bytes] = []
        chunks.add_listener(
            lambda event: gone.extend(
                key for key, _ in event.items if event.kind == "evicted"
            )
        )
        more = chunks.capacity.free_slots
        for i in range(more + len(order)):
            await put(chunks, b"new%d" % i, 100)
        assert gone == order


@pytest.mark.tasks
@pytest.mark.few
async def test_after_a_kill_the_order_of_use_is_that_of_a_checkpoint(
    world: World, tmp_path: Path
) -> None:
    path, keys = tmp_path / "kv", [b"%d" % i for i in range(20)]
    async with world.open(path, emu={"size": 4 * MIB}) as ns:
        chunks = await st.open([ns], create=LAYOUT, high=1.0, low=1.0)
        for key in keys:
            await put(chunks, key, 100)
        for key in keys[:5]:
            await got(chunks, key)
        before = chunks.statistics().checkpoints
        while chunks.statistics().checkpoints < before + 2:
            await put(chunks, b"x", 100)
            await chunks.delete(b"x")
        await chunks._mount.close()  # nothing is written at the end
    async with (
        world.open(path) as ns,
        st.open([ns], high=1.0, low=1.0) as chunks,
    ):
        gone: list[bytes] = []
        chunks.add_listener(
            lambda event: gone.extend(
                key for key, _ in event.items if event.kind == "evicted"
            )
        )
        for i in range(chunks.capacity.free_slots + len(keys)):
            await put(chunks, b"new%d" % i, 100)
        assert gone == keys[5:] + keys[:5]


@pytest.mark.tasks
@pytest.mark.few
async def test_the_order_of_use_is_noted_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many slots some at a time; a chunk that comes meanwhile stays new."""
    monkeypatch.setattr(_shard, "NOTED", 100)
    layout = st.Layout(slot_bytes=4 * KIB, key_bytes=64, journal_bytes=256 * BLOCK)
    async with opened(world, create=layout, size=8 * MIB, high=1.0, low=1.0) as (
        _,
        chunks,
    ):
        (shard,) = chunks._shards
        keys = [b"%d" % n for n in range(chunks.capacity.slots)]
        assert len(keys) > 400
        assert all(await chunks.put_many([(key, b"x") for key in keys]))
        assert not shard.note_use(4)
        await chunks.delete(keys[-1])
        await put(chunks, b"late", 1)  # in the slot of the one that was used last
        while not shard.note_use(4):
            pass
        ages = shard.slots.columns.ages
        assert ages[chunks.chunk(keys[0]).slot] == 0
        assert 50 < ages[chunks.chunk(keys[-2]).slot] < NEW
        assert ages[chunks.chunk(b"late").slot] == NEW


@pytest.mark.tasks
async def test_an_order_that_did_not_change_is_not_written_again(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "kv"
    async with (
        world.open(path, emu={"size": 4 * MIB}) as ns,
        st.open([ns], create=LAYOUT) as chunks,
    ):
        await put(chunks, b"a", 100)
        await put(chunks, b"b", 100)
    async with world.open(path) as ns:
        for used, more in (((), 0), ((b"b",), 0), ((b"a",), 1)):
            async with st.open([ns]) as chunks:
                for key in used:
                    await got(chunks, key)
            assert chunks.statistics().checkpoints == more
