"""Jobs of vLLM's tier over a real store: what the scheduler sees without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.model import pattern

from aiougds import MemoryLayoutError, OptionError
from aiougds._store_options import StoreOptions
from aiougds.store import ChunkStore, StoreEvent
from aiougds.testing import Fault, inject
from aiougds.vllm._jobs import Finished, Jobs

ROW = 3 * 4096 + 512  # no multiple of 4 KiB
ROWS = 16


class Tier:
    """Jobs over rows of memory."""

    def __init__(self, address: str, **options: object) -> None:
        self.rows = np.zeros((ROWS, ROW), dtype=np.int8)
        self.told: list[StoreEvent] = []
        given = {"addresses": address, "slot_bytes": ROW, **options}
        self.jobs = Jobs(
            StoreOptions.parse(given),
            memoryview(self.rows),
            prefix=b"model",
            listener=self.told.append,
        )
        self._number = 0

    def fill(self, row: int, seed: int) -> None:
        self.rows[row] = np.frombuffer(pattern(ROW, seed), dtype=np.int8)

    def run(
        self,
        what: Callable[[int, Sequence[bytes], Sequence[int]], None],
        keys: Sequence[bytes],
        rows: Sequence[int],
    ) -> Finished:
        self._number += 1
        what(self._number, keys, rows)
        self.jobs.drain()
        (done,) = self.jobs.finished()
        assert done.job == self._number
        assert self.jobs.finished() == []
        return done


Opened = Callable[..., Tier]


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Opened]:
    made: list[Tier] = []

    def open_one(**options: object) -> Tier:
        tier = Tier(f"emu:{tmp_path}/kv?size=4MiB", **options)
        made.append(tier)
        return tier

    yield open_one
    for tier in made:
        tier.jobs.close()


def test_blocks_come_back_from_where_they_were_put(tiers: Opened) -> None:
    tier = tiers()
    for row in range(4):
        tier.fill(row, row)
    keys = [bytes([i]) * 36 for i in range(4)]
    done = tier.run(tier.jobs.store_rows, keys, range(4))
    assert done.success
    assert done.keys == keys
    assert done.nbytes == 4 * ROW
    assert done.seconds > 0
    assert [tier.jobs.look(key) for key in keys] == ["there"] * 4
    tier.rows[:] = 0
    done = tier.run(tier.jobs.load_rows, keys, [9, 7, 15, 0])
    assert (done.success, done.nbytes) == (True, 4 * ROW)
    for key, row in zip(range(4), [9, 7, 15, 0], strict=True):
        assert tier.rows[row].tobytes() == pattern(ROW, key)
    assert not tier.rows[1].any()


def test_a_block_on_its_way_is_coming(tiers: Opened) -> None:
    """Looking never waits for it, and neither does asking for what is finished."""
    tier = tiers()
    ns = next(ns for _, ns in tier.jobs.store._mount.namespaces)
    with inject(ns, Fault.hold("write")):
        began = time.monotonic()
        tier.jobs.store_rows(1, [b"a"], [0])
        assert tier.jobs.look(b"a") == "coming"
        assert tier.jobs.look(b"b") == "missing"
        assert tier.jobs.finished() == []
        assert tier.jobs.pending == 1
        assert time.monotonic() - began < 5
    tier.jobs.drain()
    assert tier.jobs.look(b"a") == "there"
    assert tier.jobs.pending == 0
    assert [one.success for one in tier.jobs.finished()] == [True]


def test_each_key_of_a_load_has_a_result(tiers: Opened) -> None:
    """One that failed must not fail the others, nor be promised again."""
    tier = tiers()
    keys = [b"a", b"b", b"c"]
    assert tier.run(tier.jobs.store_rows, keys, range(3)).success
    ns = next(ns for _, ns in tier.jobs.store._mount.namespaces)
    with inject(ns, Fault.status("read", sct=2, sc=0x81, count=1)):
        done = tier.run(tier.jobs.load_rows, keys, range(3))
    assert not done.success
    assert len(done.keys) == 2
    (bad,) = set(keys) - set(done.keys)
    assert tier.jobs.look(bad) == "missing"
    done = tier.run(tier.jobs.load_rows, [b"never", *done.keys], range(3))
    assert not done.success
    assert len(done.keys) == 2
    assert tier.run(tier.jobs.store_rows, [bad], [0]).success
    assert tier.jobs.look(bad) == "there"


def test_a_store_that_fails_says_which(tiers: Opened) -> None:
    tier = tiers()
    ns = next(ns for _, ns in tier.jobs.store._mount.namespaces)
    with inject(ns, Fault.status("write", sct=2, sc=0x80, count=1)):
        done = tier.run(tier.jobs.store_rows, [b"a", b"b"], range(2))
    assert not done.success
    assert len(done.keys) == 1
    assert sorted(tier.jobs.look(key) for key in (b"a", b"b")) == ["missing", "there"]


def test_what_is_there_is_not_written_again(tiers: Opened) -> None:
    tier = tiers()
    assert tier.run(tier.jobs.store_rows, [b"a"], [0]).nbytes == ROW
    done = tier.run(tier.jobs.store_rows, [b"a", b"b"], [1, 2])
    assert (done.success, done.nbytes) == (True, ROW)


def test_blocks_are_there_after_a_restart_for_the_same_layout(
    tiers: Opened, tmp_path: Path
) -> None:
    tier = tiers()
    tier.fill(0, 1)
    assert tier.run(tier.jobs.store_rows, [b"a"], [0]).success
    tier.jobs.close()
    again = tiers()
    assert again.jobs.look(b"a") == "there"
    assert again.run(again.jobs.load_rows, [b"a"], [5]).success
    assert again.rows[5].tobytes() == pattern(ROW, 1)
    again.jobs.close()
    other = Jobs(
        StoreOptions.parse({"addresses": f"emu:{tmp_path}/kv"}),
        memoryview(tier.rows),
        prefix=b"other",
    )
    assert other.look(b"a") == "missing"
    other.close()


def test_what_was_touched_stays_longer(tiers: Opened) -> None:
    tier = tiers()
    slots = tier.jobs.store.capacity.slots
    keys = [i.to_bytes(4, "big") for i in range(slots + 8)]
    for i, key in enumerate(keys[: slots * 9 // 10]):
        assert tier.run(tier.jobs.store_rows, [key], [i % ROWS]).success
    tier.jobs.touch(keys[:2])
    for i, key in enumerate(keys[slots * 9 // 10 :]):
        assert tier.run(tier.jobs.store_rows, [key], [i % ROWS]).success
    assert [tier.jobs.look(key) for key in keys[:3]] == ["there", "there", "missing"]


def test_after_closing_jobs_fail_and_nothing_raises(tiers: Opened) -> None:
    tier = tiers()
    tier.jobs.close()
    assert not tier.run(tier.jobs.store_rows, [b"a"], [0]).success
    assert not tier.run(tier.jobs.load_rows, [b"a"], [0]).success
    assert tier.jobs.pending == 0


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    where = {"addresses": f"emu:{tmp_path}/kv?size=4MiB"}
    options = StoreOptions.parse({**where, "slot_bytes": 4096})
    rows = np.zeros((4, 8192), dtype=np.int8)
    with pytest.raises(OptionError, match="less than the 8192 bytes of a block"):
        Jobs(options, memoryview(rows))
    with pytest.raises(MemoryLayoutError, match="not contiguous"):
        Jobs(StoreOptions.parse(where), memoryview(rows[:, :4096]))
    assert not (tmp_path / "kv").exists()


def test_whatever_goes_wrong_is_answered(
    tiers: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = tiers()

    async def wrong(*_: object) -> None:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(ChunkStore, "put_many", wrong)
    monkeypatch.setattr(ChunkStore, "get_many", wrong)
    assert not tier.run(tier.jobs.store_rows, [b"a"], [0]).success
    assert not tier.run(tier.jobs.load_rows, [b"a"], [0]).success
