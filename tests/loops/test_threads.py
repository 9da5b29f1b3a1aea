"""The blocking interface: many threads, few queue pairs, signals."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

import pytest
import trio
from life.live import BLOCK, Clock, address, pattern
from loops.child import check_quiet, run_script

import aiougds
from aiougds import (
    OpenKeywords,
    OperationTimeoutError,
    WrongLoopError,
    _channel,
    blocking,
)
from aiougds.testing import Fault, counters, inject


@contextmanager
def opened(
    query: str = "", **options: Unpack[OpenKeywords]
) -> Iterator[blocking.Namespace]:
    with blocking.open(address(query), **options) as ns:
        yield ns
        seen, stats = counters(ns), ns.controller.statistics()
        assert (seen.iommu_faults, seen.protocol_errors) == (0, 0)
        assert (stats.inflight, stats.quarantined, stats.unknown_cids) == (0, 0, 0)


def soon(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the awaited state did not come"
        time.sleep(0.001)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def guarded(slot: int) -> None:
        try:
            start.wait()
            work(slot)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def churn(ns: blocking.Namespace, slot: int, rounds: int) -> None:
    at = slot * 16 * BLOCK
    with ns.allocate(16 * BLOCK) as reg:
        for number in range(rounds):
            data = pattern(16 * BLOCK, slot * 100 + number)
            reg.view[:] = data
            ns.write(reg, offset=at)
            reg.view[:] = bytes(16 * BLOCK)
            pairs = [
                (reg[i * BLOCK : (i + 1) * BLOCK], at + i * BLOCK) for i in range(8)
            ]
            assert ns.read_many(pairs) == [BLOCK] * 8
            assert ns.read(reg[8 * BLOCK :], offset=at + 8 * BLOCK) == 8 * BLOCK
            assert reg.view[:] == data


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll", "inline"])
@pytest.mark.parametrize("queues", [1, 2, 16])
def test_64_threads(mode: aiougds.Mode, queues: int) -> None:
    with opened(f"queues={queues}", mode=mode, queues=queues) as ns:
        assert ns.controller.capabilities.queue_pairs == queues
        in_threads(64, lambda slot: churn(ns, slot, 4))
        stats = ns.controller.statistics()
        assert stats.reads == 64 * 4 * 9
        assert stats.writes == 64 * 4
        assert stats.read_bytes == stats.write_bytes == 64 * 4 * 16 * BLOCK
        gc.collect()
        # The channels of ended threads are given back: this thread has at most one.
        soon(lambda: ns.controller.statistics().channels <= 1)


@pytest.mark.parametrize("mode", ["adaptive", "interrupt"])
@pytest.mark.parametrize("vectors", [1, 2])
def test_8_pairs_on_few_vectors(mode: aiougds.Mode, vectors: int) -> None:
    """Each owner is woken for its own completions, whoever shares its vector."""
    query = f"queues=9&vectors={vectors + 1}"
    with opened(query, mode=mode, queues=9, batch_queues=0, vectors=vectors) as ns:
        assert ns.controller.capabilities.queue_pairs == 9
        assert ns.controller.capabilities.vectors == vectors
        own: list[str] = []

        def work(slot: int) -> None:
            churn(ns, slot, 10)
            own.append(ns.controller.capabilities.queue)

        in_threads(8, work)
        assert own == ["own"] * 8
        # No completion was found by the housekeeping only: none slept through its own.
        assert ns.controller.statistics().stragglers == 0


def test_one_thread_sleeps_while_another_on_its_vector_works() -> None:
    query = "queues=3&vectors=1"
    with opened(query, mode="interrupt", queues=3, batch_queues=0) as ns:
        held = inject(ns, Fault.hold("read").on(slba=100, nlb=1))
        results: list[int] = []

        def sleeper() -> None:
            results.append(ns.read(bytearray(BLOCK), offset=100 * BLOCK))

        thread = threading.Thread(target=sleeper)
        thread.start()
        soon(lambda: held.hits == 1)
        for i in range(200):
            assert ns.read(bytearray(BLOCK), offset=i % 50 * BLOCK) == BLOCK
        assert results == []
        held.clear()
        thread.join()
        assert results == [BLOCK]
        assert ns.controller.statistics().stragglers == 0


def test_threads_share_one_registration() -> None:
    with opened() as ns, ns.allocate(64 * BLOCK) as reg:
        data = pattern(64 * BLOCK)
        ns.write(data, offset=0)

        def work(slot: int) -> None:
            part = reg[slot * 8 * BLOCK : (slot + 1) * 8 * BLOCK]
            for _ in range(100):
                assert ns.read(part, offset=slot * 8 * BLOCK) == 8 * BLOCK

        in_threads(8, work)
        assert reg.view[:] == data


def test_registering_in_many_threads() -> None:
    with opened() as ns:

        def work(slot: int) -> None:
            for _ in range(50):
                with ns.register(bytearray(4 * BLOCK)) as reg:
                    assert ns.read(reg[BLOCK:], offset=slot * BLOCK) == 3 * BLOCK

        in_threads(8, work)
        assert ns.controller.statistics().mappings == 0


def test_closed_from_another_thread() -> None:
    ns = blocking.open(address())
    held = inject(ns, Fault.hold("read"))
    results: list[int] = []
    reader = threading.Thread(
        target=lambda: results.append(ns.read(bytearray(BLOCK), offset=0))
    )
    reader.start()
    soon(lambda: held.hits == 1)
    with pytest.raises(aiougds.ControllerBusyError):
        ns.close(timeout_s=0)
    with pytest.raises(aiougds.ControllerBusyError):
        ns.close(timeout_s=0.02)
    assert ns.controller.state == "live"
    closer = threading.Thread(target=ns.close)
    closer.start()
    soon(lambda: _refused(ns))
    held.clear()
    reader.join(10)
    closer.join(10)
    assert not reader.is_alive()
    assert not closer.is_alive()
    assert results == [BLOCK]
    assert ns.closed
    with pytest.raises(aiougds.ClosedError):
        ns.read(bytearray(BLOCK), offset=0)


def _refused(ns: blocking.Namespace) -> bool:
    try:
        ns.flush()
    except aiougds.ClosedError:
        return True
    return False


def test_timeouts_without_a_loop() -> None:
    with opened() as ns, ns.allocate(BLOCK) as reg:
        for mode in ("adaptive", "interrupt", "poll", "inline"):
            with inject(ns, Fault.hold("read", count=1)):
                clock = Clock()
                with pytest.raises(OperationTimeoutError):
                    ns.read(reg, offset=0, mode=mode, timeout_s=0.05)
                assert clock.within(0.05, 0.2)
            soon(lambda: not ns.controller.quarantine)
            assert ns.read(reg, offset=0, mode=mode) == BLOCK


def answers(ns: blocking.Namespace) -> int:
    seen = counters(ns)
    return seen.interrupts + seen.interrupts_masked


def read_again(ns: blocking.Namespace, reg: blocking.Registration) -> None:
    assert ns.read(reg, offset=0) == BLOCK


def read_many_again(ns: blocking.Namespace, reg: blocking.Registration) -> None:
    assert ns.read_many([(reg[:], 0)]) == [BLOCK]


def batch_again(ns: blocking.Namespace, reg: blocking.Registration) -> None:
    with ns.batch(1) as batch:
        batch.read(reg[:], offset=0)
        batch.submit()
        assert [item.result for item in batch.harvest()] == [BLOCK]


def close_memory(ns: blocking.Namespace, reg: blocking.Registration) -> None:
    reg.close()
    assert reg.closed


def close_controller(ns: blocking.Namespace, reg: blocking.Registration) -> None:
    ns.close()
    assert ns.closed


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll"])
@pytest.mark.parametrize(
    "then",
    [read_again, read_many_again, batch_again, close_memory, close_controller],
)
def test_a_late_completion_is_noticed_by_the_next_call(
    mode: aiougds.Mode,
    then: Callable[[blocking.Namespace, blocking.Registration], None],
) -> None:
    """No loop takes it in the meantime: the memory must not stay busy for ever."""
    with blocking.open(address(), mode=mode) as ns:
        reg = ns.allocate(BLOCK)
        with inject(ns, Fault.hold("read", count=1)):
            with pytest.raises(OperationTimeoutError):
                ns.read(reg, offset=0, timeout_s=0.1)  # it was sent by then
            with pytest.raises(aiougds.RangeBusyError):
                ns.read(reg, offset=0)
            before = answers(ns)
        # The device has answered. The executor of mode "poll" looks, but no one else.
        if mode == "poll":
            soon(lambda: not ns.controller.statistics().quarantined)
        else:
            soon(lambda: answers(ns) > before)
        then(ns, reg)
        if not reg.closed:
            reg.close()


class DownOnce:
    """The C library, whose controller is being reset when a channel is asked for."""

    def __init__(self, lib: object) -> None:
        self._lib = lib
        self.refusals = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._lib, name)

    def ugds_chan_open(self, *arguments: object) -> int:
        if not self.refusals:
            self.refusals += 1
            return -errno.EHOSTDOWN
        return self._lib.ugds_chan_open(*arguments)  # type: ignore[attr-defined, no-any-return]


def test_a_channel_is_opened_as_a_reset_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, and live again when it is to be said why: it is opened once more."""
    with opened() as ns:
        once = DownOnce(_channel.lib)
        monkeypatch.setattr(_channel, "lib", once)
        assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
        assert once.refusals == 1


def test_refused_inside_a_loop() -> None:
    with opened() as ns, ns.allocate(BLOCK) as reg:
        before = ns.controller.statistics().commands

        def check() -> None:
            for call in (
                lambda: ns.read(reg, offset=0),
                lambda: ns.read_many([(reg[:], 0)]),
                ns.flush,
                ns.controller.smart_log,
                ns.controller.reset,
                lambda: ns.close(),
                lambda: reg.close(),
                lambda: blocking.open(address()),
            ):
                with pytest.raises(WrongLoopError, match="running event loop"):
                    call()

        async def main() -> None:
            check()

        asyncio.run(main())
        trio.run(main)
        assert ns.controller.statistics().commands == before
        assert ns.read(reg, offset=0) == BLOCK


def waiting(ns: blocking.Namespace) -> bool:
    """Whether a thread is past submitting, where Python may take a signal too."""
    return any(channel.waiters for channel in list(ns._device.channels.values()))


def test_keyboard_interrupt_once_the_device_let_go() -> None:
    with opened(cancel_grace_s=5) as ns, ns.allocate(BLOCK) as reg:
        data = pattern(BLOCK)
        ns.write(data, offset=0)
        with inject(ns, Fault.hold("read")) as held:
            clock = Clock()
            interrupted: list[float] = []

            def interrupt() -> None:
                soon(lambda: held.hits == 1 and waiting(ns))
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(0.1)
                interrupted.append(clock.elapsed)
                held.clear()

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                ns.read(reg, offset=0)
            assert clock.elapsed >= interrupted[0]
            thread.join()
        # The device had it to the end.
        assert reg.inflight == 0
        assert reg.view[:] == data
        assert ns.read(reg, offset=0) == BLOCK


def test_keyboard_interrupt_gives_up_after_the_grace() -> None:
    with opened(cancel_grace_s=0.05) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read")) as held:

            def interrupt() -> None:
                soon(lambda: held.hits == 1 and waiting(ns))
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                ns.read(reg, offset=0)
            thread.join()
        soon(lambda: not ns.controller.quarantine)
        assert ns.read(reg, offset=0) == BLOCK


def test_signal_handlers_run_during_a_wait() -> None:
    ended = run_script("""
        ticks = 0
        def tick(number, frame):
            global ticks
            ticks += 1
        signal.signal(signal.SIGALRM, tick)
        with blocking.open("emu:?size=1MiB", mode="interrupt") as ns:
            with ns.allocate(BLOCK) as reg:
                signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
                with inject(ns, Fault.delay(0.3, "read")):
                    assert ns.read(reg, offset=0) == BLOCK
                signal.setitimer(signal.ITIMER_REAL, 0)
        assert ticks >= 5, ticks
        print("done")
    """)
    assert check_quiet(ended) == "done\n"


def test_exception_of_a_signal_handler_ends_a_wait() -> None:
    ended = run_script("""
        class Alarm(Exception):
            pass
        def ring(number, frame):
            raise Alarm
        signal.signal(signal.SIGALRM, ring)
        with blocking.open("emu:?size=1MiB", cancel_grace_s=0.05) as ns:
            with ns.allocate(BLOCK) as reg:
                for _ in range(3):
                    with inject(ns, Fault.hold("read", count=1)):
                        signal.setitimer(signal.ITIMER_REAL, 0.02)
                        try:
                            ns.read(reg, offset=0)
                        except Alarm:
                            print("rang")
                    while ns.controller.quarantine:
                        time.sleep(0.001)
                    assert reg.inflight == 0
                    assert ns.read(reg, offset=0) == BLOCK
    """)
    assert check_quiet(ended) == "rang\n" * 3


def test_a_thread_that_ends_gives_its_queue_back() -> None:
    """With two pairs one is to be had: each thread gets it in turn."""
    with opened("queues=2", queues=2, batch_queues=0) as ns:
        own: list[str] = []

        def work() -> None:
            ns.read(bytearray(BLOCK), offset=0)
            own.append(ns.controller.capabilities.queue)

        for _ in range(10):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            gc.collect()
            soon(lambda: ns.controller.statistics().channels == 0)
        assert own == ["own"] * 10


def test_unclosed_is_warned_about() -> None:
    ns = blocking.open(address())
    with pytest.warns(ResourceWarning, match="unclosed <"):  # noqa: PT031
        del ns
        gc.collect()
    with opened() as ns:
        ns.flush()
