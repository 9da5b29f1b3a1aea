"""A signal's handler that raises between the start of an operation and its wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from life.live import BLOCK, Clock, address, pattern

import aiougds
from aiougds import (
    _blocking_namespace,
    _bulk,
    _completion_thread,
    _items,
    blocking,
)
from aiougds.testing import Fault, counters, inject

Call = Callable[[blocking.Namespace, blocking.Registration], object]
HELD_S = 0.1


@pytest.fixture(params=["adaptive", "interrupt", "poll", "inline"])
def opened(request: pytest.FixtureRequest) -> Iterator[blocking.Namespace]:
    with blocking.open(address(), mode=request.param, cancel_grace_s=5) as ns:
        ns.write(pattern(4 * BLOCK), offset=0)
        yield ns
        assert counters(ns).iommu_faults == 0
        assert ns.controller.statistics().inflight == 0


@contextmanager
def held_for(ns: blocking.Namespace, seconds: float) -> Iterator[Callable[[], bool]]:
    """Reads are held for that long; whether that is over, or none had been sent."""
    held = inject(ns, Fault.hold("read"))
    clock = Clock()
    timer = threading.Timer(seconds, held.clear)
    timer.start()
    yield lambda: clock.elapsed >= seconds or not held.hits
    timer.join()


def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next wait of a thread is interrupted before its first step."""
    home = _completion_thread.ThreadHome
    real = home.wait

    async def wait(self: object, *args: object) -> object:
        monkeypatch.setattr(home, "wait", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(home, "wait", wait)


def behind_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of C returns into an interrupt: its answer is lost."""
    real = _blocking_namespace._rw

    def call(*args: object) -> int:
        monkeypatch.setattr(_blocking_namespace, "_rw", real)
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(_blocking_namespace, "_rw", call)


def behind_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _items.ListedItems.submit

    def call(self: _items.ListedItems, *args: object) -> int:
        monkeypatch.setattr(_items.ListedItems, "submit", real)
        real(self, *args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(_items.ListedItems, "submit", call)


def before_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _bulk._finish

    async def finish(*args: object) -> None:
        monkeypatch.setattr(_bulk, "_finish", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(_bulk, "_finish", finish)


def read(ns: blocking.Namespace, reg: blocking.Registration) -> object:
    return ns.read(reg, offset=0)


def read_with_a_mode(ns: blocking.Namespace, reg: blocking.Registration) -> object:
    return ns.read(reg, offset=0, mode="interrupt")


def read_many(ns: blocking.Namespace, reg: blocking.Registration) -> object:
    parts = [(reg[i * BLOCK : (i + 1) * BLOCK], i * BLOCK) for i in range(4)]
    return ns.read_many(parts)


@pytest.mark.parametrize(
    ("call", "cut", "dropped"),
    [
        (read, behind_the_call, 1),
        (read, no_wait, 1),
        (read_with_a_mode, no_wait, 1),
        (read_many, behind_the_batch, 0),  # batches tell by a notice, not by item
        (read_many, before_the_notice, 0),
        (read_many, no_wait, 0),
    ],
)
def test_it_ends_before_the_caller_hears_of_it(
    opened: blocking.Namespace,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    cut: Callable[[pytest.MonkeyPatch], None],
    dropped: int,
) -> None:
    ns = opened
    with ns.allocate(4 * BLOCK) as reg:
        call(ns, reg)
        reg.view[:] = bytes(4 * BLOCK)
        with held_for(ns, HELD_S) as over:
            cut(monkeypatch)
            with pytest.raises(KeyboardInterrupt):
                call(ns, reg)
            assert over()
            # What the device had, it has finished: it does not touch the memory now.
            assert reg.inflight == 0
            assert ns.controller.statistics().inflight == 0
        assert ns.controller.statistics().dropped == dropped
        assert ns.controller.quarantine == ()
        call(ns, reg)
        assert reg.view[:] == pattern(4 * BLOCK)
        reg.close(timeout_s=0)


def test_unregistered_memory(
    opened: blocking.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = opened
    memory = bytearray(BLOCK)
    ns.read(memory, offset=0)
    memory[:] = bytes(BLOCK)
    with held_for(ns, HELD_S) as over:
        no_wait(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            ns.read(memory, offset=0)
        assert over()
    ns.flush()
    assert ns.controller.statistics().mappings == 0


def test_a_device_that_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace the exception comes, and the memory is in quarantine."""
    with (
        blocking.open(address(), cancel_grace_s=0.05) as ns,
        ns.allocate(BLOCK) as reg,
    ):
        ns.read(reg, offset=0)
        refuse = inject(ns, Fault("abort_refused"))
        held = inject(ns, Fault.hold("read"))
        behind_the_call(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            ns.read(reg, offset=0)
        assert [q.nbytes for q in ns.controller.quarantine] == [BLOCK]
        with pytest.raises(aiougds.RangeBusyError):
            ns.read(reg, offset=0)
        held.clear()
        refuse.clear()
        end = Clock()
        while ns.controller.quarantine:
            ns.flush()
            assert end.within(0, 5)
        assert ns.read(reg, offset=0) == BLOCK


def test_errors_settle_nothing(opened: blocking.Namespace) -> None:
    """An ordinary failure leaves the operations of a batch in flight alone."""
    ns = opened
    with ns.allocate(4 * BLOCK) as reg, ns.batch(4) as batch:
        with held_for(ns, HELD_S):
            batch.read(reg[:BLOCK], offset=0, cookie="it")
            batch.submit()
            with pytest.raises(aiougds.AlignmentError):
                ns.read(reg, offset=1)
            with pytest.raises(aiougds.RangeError):
                ns.read_many([(reg[:BLOCK], 1 << 40)])
        (item,) = batch.harvest()
        assert (item.cookie, item.result) == ("it", BLOCK)
