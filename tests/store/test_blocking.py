"""The store for threads: the same chunks, from any thread, without a loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store.tools import LAYOUT, SLOT, noise

import aiougds
import aiougds.blocking
from aiougds import ClosedError, RangeError, WrongLoopError
from aiougds import store as st
from aiougds.store import blocking
from aiougds.testing import Fault, FaultHandle, inject

EMU = "emu:?size=4MiB"


@pytest.mark.parametrize("devices", [1, 2])
def test_chunks_come_back(tmp_path: Path, devices: int) -> None:
    found = [f"emu:{tmp_path}/{i}?size=4MiB" for i in range(devices)]
    keys = [b"%d" % i for i in range(20)]
    with blocking.open(found, create=LAYOUT) as store:
        with store.allocate(20 * SLOT) as reg:
            parts = [reg[i * SLOT : (i + 1) * SLOT] for i in range(20)]
            for key, part in zip(keys, parts, strict=True):
                part.view[:] = noise(key, SLOT)
            assert store.put(keys[0], parts[0])
            assert not store.put(keys[0], parts[0])
            many = list(zip(keys, parts, strict=True))
            assert store.put_many(many) == [False] + [True] * 19
            reg.view[:] = bytes(reg.nbytes)
            assert store.get(keys[0], parts[0]) == SLOT
            assert store.get_many(many) == [SLOT] * 20
            for key, part in zip(keys, parts, strict=True):
                assert part.view == noise(key, SLOT)
            assert store.statistics().unregistered == 0
        assert store.put(b"tail", noise(b"tail", 12_345))
        assert store.delete(keys[0])
        assert store.delete_many(keys[:2]) == [False, True]
        store.flush()
        assert len(store) == 19
    assert store.closed
    assert "closed" in repr(store)
    with pytest.raises(ClosedError):
        store.put(b"x", b"x")
    with blocking.open(found) as store:
        into = bytearray(SLOT)
        assert store.get(b"tail", into) == 12_345
        assert into[:12_345] == noise(b"tail", 12_345)
        assert b"tail" in store
        assert keys[0] not in store
        assert store.contains_many([b"tail", keys[1]]) == [True, False]
        assert sorted(key for key, _ in store.scan()) == sorted([*keys[2:], b"tail"])
    assert blocking.check(found).problems == ()
    assert len(blocking.info(found).devices) == devices


def test_threads_share_a_commit() -> None:
    """What they put at a time is journaled together; each gets its own."""
    with blocking.open([EMU], create=LAYOUT) as store, store.allocate(8 * SLOT) as reg:

        def work(number: int) -> None:
            part = reg[number * SLOT : (number + 1) * SLOT]
            for i in range(40):
                key = b"%d/%d" % (number, i)
                part.view[:] = noise(key, SLOT)
                assert store.put(key, part)
                part.view[:] = bytes(SLOT)
                if store.contains(key):
                    assert store.get(key, part) == SLOT
                    assert part.view == noise(key, SLOT)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        stats = store.statistics()
        assert stats.puts == 320
        assert stats.commits <= stats.puts


def test_pins_listeners_and_numbers() -> None:
    heard: list[tuple[str, bytes]] = []

    def listener(event: st.StoreEvent) -> None:
        heard.extend((event.kind, key) for key, _ in event.items)

    with blocking.open([EMU], create=LAYOUT) as store:
        store.put(b"a", noise(b"a", 100))
        store.add_listener(listener, replay=True)
        generation = store.pin(b"a")
        assert generation == store.chunk(b"a").generation
        with pytest.raises(st.ChunkPinnedError):
            store.delete(b"a")
        assert store.unpin(b"a", generation)
        with store.pinned(b"a") as info:
            assert info.nbytes == 100
        store.touch([b"a"])
        store.delete(b"a")
        store.remove_listener(listener)
        store.put(b"b", b"b")
        assert heard == [("restored", b"a"), ("deleted", b"a")]
        assert store.capacity.used_bytes == 1
        assert store.slot_bytes_for(1) == SLOT
        assert store.broken is None


def test_of_a_blocking_namespace() -> None:
    """Others' namespaces stay open; the store reads and writes through them."""
    with aiougds.blocking.open(EMU) as ns:
        blocking.format([ns], LAYOUT)
        with blocking.open([ns]) as store, store.register(bytearray(SLOT)) as reg:
            assert store.put(b"a", reg)
        assert blocking.check([ns]).chunks == 1
        assert ns.size


def test_errors_are_the_callers() -> None:
    with pytest.raises(st.StoreFormatError):
        blocking.open([EMU])
    with blocking.open([EMU], create=LAYOUT) as store:
        with pytest.raises(st.ChunkNotFoundError):
            store.get(b"a", bytearray(10))
        store.put(b"a", bytes(100))
        with pytest.raises(RangeError):
            store.get(b"a", bytearray(10))
        (error,) = store.get_many([(b"b", bytearray(10))])
        assert isinstance(error, st.ChunkNotFoundError)


async def called_on_a_loop(call: Callable[[], object]) -> None:
    with pytest.raises(WrongLoopError):
        call()


def test_refused_on_a_loop() -> None:
    with blocking.open([EMU], create=LAYOUT) as store:
        for call in (
            lambda: store.put(b"a", b"a"),
            lambda: store.get_many([]),
            lambda: store.allocate(4096),
            lambda: blocking.open([EMU], create=LAYOUT),
            lambda: blocking.info([EMU]),
            store.close,
        ):
            asyncio.run(called_on_a_loop(call))
        assert not store.closed


def test_a_listener_cannot_wait_for_its_own_store() -> None:
    errors: list[BaseException] = []
    with blocking.open([EMU], create=LAYOUT) as store:

        def listener(event: st.StoreEvent) -> None:
            try:
                store.get(b"a", bytearray(10))
            except WrongLoopError as error:
                errors.append(error.with_traceback(None))

        store.add_listener(listener)
        store.put(b"a", bytes(10))
    assert len(errors) == 1


def test_a_signal_interrupts_once_the_device_let_go() -> None:
    """The put is cancelled; its memory is the caller's again when that is raised."""
    with (
        aiougds.blocking.open(EMU) as ns,
        blocking.open([ns], create=LAYOUT) as store,
        store.allocate(SLOT) as reg,
    ):
        with inject(ns, Fault.hold("write", count=1)) as held:
            helper = threading.Thread(target=interrupt, args=(held,))
            helper.start()
            with pytest.raises(KeyboardInterrupt):
                store.put(b"a", reg)
            assert reg.inflight == 0
            helper.join()
        store.put(b"a", reg)
        assert store.get(b"a", reg) == SLOT


def interrupt(held: FaultHandle) -> None:
    """Interrupt the main thread while the device holds its command."""
    end = time.monotonic() + 20
    while not held.hits and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)  # who did not wait for the device has raised by then
    held.clear()
