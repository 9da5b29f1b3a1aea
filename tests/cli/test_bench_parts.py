"""Parts of ``aiougds bench --suite``: rounds, labels, and what peers say of a place."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aiougds
from aiougds.cli._suites import fresh, plot
from aiougds.cli._suites.gpu_peers import GPU_PEERS
from aiougds.cli._suites.movers import Shape
from aiougds.cli._suites.peers import HOST_PEERS, Peer
from aiougds.cli._suites.place import label, machine, show_machine
from aiougds.cli._suites.sides import Place, SpinningSide, our_sides, side_named
from aiougds.cli._suites.turns import (
    Spread,
    device_clocks,
    no_gc,
    processor_ns,
    spread,
    turns,
)

BY_NAME = {peer.name: peer for peer in HOST_PEERS}
FILE = Place(address="emu:data", path="data")
DRIVE = Place(address="/dev/ugds_drv0", no_path="none named")


def test_each_has_a_turn_in_each_round_and_begins_in_turn() -> None:
    order = list(turns(["a", "b", "c"], 4))
    rounds = [order[i : i + 3] for i in range(0, 12, 3)]
    assert [found[0] for found in rounds] == ["a", "b", "c", "a"]
    assert all(sorted(found) == ["a", "b", "c"] for found in rounds)
    assert list(turns([], 3)) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], Spread(7, 7, 7)),
        ([1.0, 2.0], Spread(1.5, 1.05, 1.95)),
        ([*map(float, range(101))], Spread(50, 5, 95)),
        ([5.0, 1.0, 3.0, 2.0, 4.0], Spread(3, 1.2, 4.8)),
    ],
)
def test_spread(values: list[float], expected: Spread) -> None:
    random.Random(1).shuffle(values)
    assert spread(values) == expected


def test_the_collector_rests_meanwhile_and_is_as_before() -> None:
    with no_gc():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with no_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_processor_time_of_all_threads() -> None:
    done, spent = threading.Event(), threading.Event()

    def spin() -> None:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.05:
            pass
        spent.set()
        done.wait()

    thread = threading.Thread(target=spin)
    before = processor_ns(())
    thread.start()
    spent.wait()
    try:
        assert processor_ns(()) - before >= 49.9e6
    finally:
        done.set()
        thread.join()


def test_processor_time_without_the_device() -> None:
    address = "emu:?size=1MiB&awake=1&threads=1&step=0"
    with aiougds.blocking.open(address) as ns:
        device = device_clocks()
        assert len(device) == 1
        before, all_of_it = processor_ns(device), time.process_time_ns()
        while time.process_time_ns() - all_of_it < 100e6:
            time.sleep(0.01)
        assert processor_ns(device) - before < 50e6
        assert ns.size
    assert device_clocks() == ()


def test_processor_time_is_looked_at_again_where_the_device_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In the first look 70 ms go by: what the device had of them is not the process's.
    device = iter([0, 70_000_000, 70_000_100, 70_001_100])
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: next(device))
    monkeypatch.setattr(time, "process_time_ns", lambda: 100_000_000)
    assert processor_ns((1,)) == 100_000_000 - 70_000_600


def test_labels_say_what_the_figures_are_of() -> None:
    assert "over the page cache" in label("emu", "aiougds emulated", FILE)
    assert "over memory" in label("emu", "aiougds", Place(address="emu:?size=1MiB"))
    model = Place(address="emu:?latency=9us")
    assert "simulated latencies" in label("emu", "aiougds", model)
    assert label("kmod", "QEMU NVMe Ctrl", DRIVE).startswith("EMULATED DRIVE")
    assert label("kmod", "Samsung 990", DRIVE) == "DEVICE Samsung 990"


def test_the_machine() -> None:
    found = machine("uvloop")
    words = show_machine(found)
    assert f"{found.cpus} CPUs" in words
    assert found.loop.startswith("uvloop 0.")
    assert f"load {found.load[0]:.2f}" in words
    kind = "virtual machine" if found.virtual else "machine"
    assert words.startswith(f"{kind} with")


@pytest.mark.parametrize("peer", HOST_PEERS, ids=lambda peer: peer.name)
def test_what_peers_say_of_a_place(peer: Peer) -> None:
    assert peer.why_not(FILE) == ""
    assert peer.why_not(DRIVE) == "none named"
    assert "--device cuda:0 was given" in peer.why_not(replace(FILE, device="cuda:0"))
    assert "write only" in peer.why_not(replace(FILE, writes=True))
    assert not peer.why_not(replace(FILE, writes=True, peers_write=True))
    direct = peer.why_not(replace(FILE, direct=True))
    assert (not direct) == (peer.name in ("to_thread", "preadv"))
    assert bool(peer.why_not(replace(FILE, loop="trio"))) == (peer.name != "preadv")
    assert peer.how
    assert side_named(peer.name) is peer


def test_what_peers_of_gpus_say() -> None:
    for peer in GPU_PEERS:
        assert peer.why_not(FILE) == "moves memory of a GPU: give --device cuda:0"
        on = replace(FILE, device="cuda:0")
        assert "NVIDIA's" in peer.why_not(replace(FILE, device="hip:0"))
        assert "trio" in peer.why_not(replace(on, loop="trio"))
        assert peer.why_not(replace(on, writes=True)) == "is compared in reads only"


@pytest.mark.parametrize("rw", ["read", "write"])
def test_a_fresh_process_opens_one_controller(
    rw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"emu:{tmp_path}/data?size=1MiB"
    opened: list[str] = []
    real = aiougds.open

    def counting(address: str, **keywords: Any) -> Any:  # noqa: ANN401
        opened.append(keywords["mode"])
        return real(address, **keywords)

    monkeypatch.setattr(aiougds, "open", counting)
    place = Place(
        address=address, path=f"{tmp_path}/data", writes=rw == "write", span=1 << 20
    )
    side = side_named("aiougds inline")
    found = asyncio.run(fresh.setup(side, place))
    assert opened == ["inline"]
    assert found["total"] >= found["open"] > 0
    more = {"size": 4096, "batch": 4, "rw": rw, "total": 1 << 18}
    assert asyncio.run(fresh.batches(side, place, **more))["first"] > 0  # type: ignore[arg-type]
    assert opened == ["inline"] * 2


def test_what_we_say() -> None:
    assert [side.name for side in our_sides(("poll", "inline"))] == [
        "aiougds inline", "aiougds poll"
    ]  # fmt: skip
    spinning = SpinningSide()
    assert not spinning.why_not(FILE)
    assert "opened once" in spinning.why_not(DRIVE)
    assert "opened once" in spinning.why_not(replace(FILE, writes=True))
    assert not spinning.why_not(Place(address="emu:?size=1MiB", writes=True))


@pytest.mark.parametrize("peer", HOST_PEERS, ids=lambda peer: peer.name)
def test_peers_move_what_they_are_told(peer: Peer, tmp_path: Path) -> None:
    """Reads come short at the end of a file, and writes are seen in it."""
    path = tmp_path / "data"
    path.write_bytes(bytes(64 << 10))
    place = Place(address="emu:", path=str(path), writes=True, peers_write=True)

    async def work() -> None:
        shape = Shape(size=4096, tasks=2, batch=3)
        async with peer.opened(place, None, shape) as mover:
            first, second = mover.steps(0), mover.steps(1)
            assert first.write is not None
            assert second.write_many is not None
            await first.read(60 << 10)
            with pytest.raises(OSError, match="moved 0 bytes of 4096"):
                await first.read(64 << 10)
            await first.write(4096)
            await second.write_many(array("q", [16 << 10, 40 << 10, 56 << 10]))
            await second.read_many(array("q", [0, 4096, 8192]))

    asyncio.run(work())
    data = path.read_bytes()
    written = [at for at in range(0, 64 << 10, 4096) if any(data[at : at + 4096])]
    assert written == [4096, 16 << 10, 40 << 10, 56 << 10]
    pages = Counter(data[at : at + 4096] for at in written)
    assert len(pages) == 1


@pytest.mark.parametrize("suite", ["poll", "sync"])
@pytest.mark.parametrize("count", [1, 5, 11])
def test_nothing_of_a_figure_is_cut_off(suite: str, count: int, tmp_path: Path) -> None:
    metric = {"median": 2.0, "p5": 1.0, "p95": 3.0}
    names = ("latency", "cpu_share", "bandwidth")
    told = {
        "name": suite,
        "device": {"label": label("emu", "aiougds", Place(address="emu:?latency=9us"))},
        "cells": [
            {
                "side": f"aiougds {k} interrupt",
                "rw": "read",
                "size": size,
                "tasks": 1,
                "metrics": dict.fromkeys(names, metric),
            }
            for k in range(count)
            for size in (4096, 1 << 20)
        ],
    }
    there = {"processor": "AMD EPYC", "cpus": 128, "loop": "uvloop", "load": [99.0]}
    drawn: list[Any] = []

    def keep(figure: Any, path: Path, **_: object) -> None:  # noqa: ANN401
        drawn.append(figure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", keep)
        plot.draw(tmp_path, {"suites": [told], "machine": there})
    assert drawn
    for figure in drawn:
        for part in (*figure.legends, *figure.texts):
            box = part.get_window_extent()
            assert box.x0 >= 0, part
            assert box.x1 <= figure.bbox.x1, part
            assert box.y0 >= 0, part
