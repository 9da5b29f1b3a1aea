"""The open controller as the rest of the package sees it.

A :class:`Device` owns the C controller, the channels (one for each home that does
I/O), the namespaces' C windows, and the *limbo* (:mod:`aiougds._limbo`). Public objects
hold a Device and never each other.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from errno import EBUSY
from typing import TYPE_CHECKING, Final, Protocol

from aiougds._channel import Channel
from aiougds._completion import current_home, forget_all, sweep
from aiougds._errors import ControllerBusyError
from aiougds._ffi import ffi, lib
from aiougds._limbo import Limbo
from aiougds._policy import how_opened
from aiougds._refusal import refusal
from aiougds._sink import Sink
from aiougds._streams import Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aiougds._errors import UGDSError
    from aiougds._ffi import CData
    from aiougds._home import Home, Signal
    from aiougds._mapping import Mapping
    from aiougds._options import OpenOptions
    from aiougds._segment import Segment

TICK_S: Final = 0.01  # how often to look where C has nothing that would tell


class Window(Protocol):
    """A namespace's hold on the C controller, as closing needs it."""

    def detach(self) -> None: ...
    def close_window(self) -> int: ...
    def reopen_window(self) -> None: ...


class Cache(Protocol):
    """Memory that stays registered until closing drops it."""

    def drop(self) -> None: ...


class Device(Limbo):
    """An open controller: C handle, channels, limbo, and whether it may be used."""

    __slots__ = (
        "__weakref__",
        "address",
        "bounced_bytes",
        "bounces",
        "cache",
        "channels",
        "closing",
        "ended",
        "event_fd",
        "forked",
        "gpus",
        "how",
        "jit_pins",
        "lock",
        "options",
        "pool",
        "ptr",
        "segment",
        "streams",
        "unclaimed",
        "windows",
    )

    def __init__(
        self, address: str, ptr: CData, options: OpenOptions, segment: Segment
    ) -> None:
        super().__init__()
        self.address = address
        # Its memory is there for as long as this object: other threads may look.
        self.ptr: CData = ffi.gc(ptr, lib.ugds_ctrl_free)
        self.options = options
        self.how = how_opened(options)
        self.segment = segment  # what others see of it
        weakref.finalize(self, segment.remove)  # also where nobody closes it
        self.closing = False
        self.ended = False
        self.forked = False
        self.gpus: set[tuple[int, int, int]] = set()  # of which memory was mapped
        self.lock = threading.RLock()
        self.channels: dict[int, Channel | Sink] = {}
        self.streams = Streams(self)
        self.windows: weakref.WeakSet[Window] = weakref.WeakSet()
        self.pool: list[Mapping] = []  # bounce buffers that are not in use
        self.event_fd = -1
        self.jit_pins = 0
        self.unclaimed = 0  # completions of operations that a signal cut off
        self.bounces = 0
        self.cache: Cache | None = None  # of registered allocations, once one is kept
        self.bounced_bytes = 0
        _devices.add(self)

    # ---- may it be used? ----

    def refusal(self) -> UGDSError | None:
        """Return why nothing can be submitted now, if so."""
        return refusal(self)

    def check_open(self) -> None:
        """Raise when it was closed or belongs to the parent process."""
        if self.ended or self.closing:
            error = self.refusal()
            if error is not None:
                raise error

    def info(self) -> CData:
        """Return ``struct ugds_ctrl_info`` of this moment."""
        info = ffi.new("struct ugds_ctrl_info *")
        if lib.ugds_ctrl_info(self.ptr, info) < 0:
            info.state = lib.UGDS_STATE_CLOSED
        return info

    def stats(self) -> CData:
        """Return ``struct ugds_ctrl_stats`` of this moment."""
        stats = ffi.new("struct ugds_ctrl_stats *")
        lib.ugds_ctrl_stats(self.ptr, stats)
        return stats

    # ---- channels ----

    def channel(self) -> Channel:
        """Return the channel of the home that this code runs on; make it if needed."""
        home = current_home()
        line = home.channels.get(id(self))
        if isinstance(line, Channel) and not line.closed:
            return line
        self.check_open()
        sweep()
        self.sweep_limbo()
        with self.lock:
            self.check_open()  # once more: close() looks at the channels later
            channel = Channel(self, home)
            self.channels[id(channel)] = channel
        return channel

    def forget_channel(self, channel: Channel | Sink) -> None:
        """Drop a channel or sink that is no more."""
        self.channels.pop(id(channel), None)

    # ---- windows ----

    def add_window(self, window: Window) -> None:
        """Have close() close it."""
        with self.lock:
            self.windows.add(window)

    def drop_window(self, window: Window) -> None:
        """It was closed by itself."""
        with self.lock:
            self.windows.discard(window)

    def open_windows(self) -> list[Window]:
        """Return the windows of this moment, whatever other threads do."""
        with self.lock:
            return list(self.windows)

    # ---- what was given up ----

    def _stuck(self) -> tuple[CData, int]:
        room = max(16, 0 if self.ended else self.stats().quarantined)
        array = ffi.new("struct ugds_stuck[]", room)
        if self.ended:
            return array, 0
        return array, min(lib.ugds_ctrl_quarantine(self.ptr, array, room), room)

    def stuck_handles(self) -> set[int]:
        """Return the handles of mappings that a given-up command may still touch."""
        array, count = self._stuck()
        return {int(array[i].map) for i in range(count)}

    def may_touch(self, handle: int, start: int, nbytes: int) -> bool:
        """Whether a given-up command may touch these bytes of a mapping; 0: of any."""
        array, count = self._stuck()
        end = start + nbytes
        return any(
            not handle
            or (
                one.map == handle
                and one.buf_off < end
                and start < one.buf_off + one.nbytes
            )
            for one in map(array.__getitem__, range(count))
        )

    def is_stuck(self, window: CData) -> bool:
        """Whether a given-up command went through a namespace's C window."""
        array, count = self._stuck()
        return any(array[i].ns == window for i in range(count))

    # ---- the end ----

    def busy(self) -> int:
        """Return operations and batches that somebody still waits for."""
        channels = list(self.channels.values())
        return (
            sum(channel.unfinished() for channel in channels)
            + self.streams.unfinished()
        )

    async def until(
        self,
        done: Callable[[], bool],
        stuck: Callable[[], bool],
        timeout_s: float | None,
    ) -> bool:
        """Wait until ``done``; False on the deadline, or when it is ``stuck``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        signal = current_home().signal()
        self.observers.append(signal)
        self.poke()  # a thread takes late completions only when it calls
        looks = 2  # an answer may be on its way through the executor
        try:
            while not done():
                left = TICK_S
                if deadline is not None:
                    left = min(left, deadline - time.monotonic())
                looks -= stuck()
                if not looks or left <= 0:
                    return False
                await signal.wait(left)
                self.poke()
        finally:
            self.observers.remove(signal)
        return True

    def poke(self) -> None:
        """Have every channel take what has completed."""
        home = current_home()
        for channel in list(self.channels.values()):
            if channel.home is home or channel.home.idle():
                channel.reap_if_free()
            else:
                channel.home.post(channel.reap_if_free)

    async def close(self, timeout_s: float | None, *, force: bool) -> None:
        """Drain, give everything back and free the controller.

        On the deadline, or when memory is quarantined and not ``force``, raise
        ControllerBusyError; the controller stays usable.
        """
        if self.ended:
            return
        home = current_home()
        sweep()
        if timeout_s == 0 and not self.closing:  # a refusal is noticed by nobody else
            self.poke()
            if not self._passes(self._drained(force=force), force=force):
                raise self._busy_error()
        with self.lock:  # against try_end() in another thread
            if self.closing:
                raise ControllerBusyError(
                    f"{self.address} is being closed by someone else"
                )
            self.closing = True
        for window in self.open_windows():
            window.detach()
        try:
            # What stalls ends now.
            await home.off_loop(lambda: self.streams.close(force=force))
            await self._drain(timeout_s, force=force)
            await self._close_channels(home)
            await self._close_patiently(home, timeout_s, force=force)
        finally:
            self.closing = False
        for window in self.open_windows():
            window.detach()

    def _drained(self, *, force: bool) -> bool:
        """Whether nothing is in flight, also for loops and threads that are gone."""
        if self.busy() or self.info().state == lib.UGDS_STATE_RESETTING:
            return False
        return force or not self.stats().inflight

    def _given_up(self, *, force: bool) -> bool:
        # Force passes over what was given up, but not over whoever still waits.
        return bool(self.stats().quarantined) and not (force and self._awaited())

    def _passes(self, drained: bool, *, force: bool) -> bool:
        stuck = self._given_up(force=force)
        return drained or stuck if force else drained and not stuck

    async def _drain(self, timeout_s: float | None, *, force: bool) -> None:
        def done() -> bool:
            return self._drained(force=force)

        def stuck() -> bool:
            return self._given_up(force=force)

        if not self._passes(await self.until(done, stuck, timeout_s), force=force):
            raise self._busy_error()

    def _awaited(self) -> bool:
        channels = list(self.channels.values())
        return any(channel.waiters or channel.in_call() for channel in channels)

    def _busy_error(self) -> ControllerBusyError:
        stats = self.stats()
        if stats.quarantined and self.info().state == lib.UGDS_STATE_REMOVED:
            return ControllerBusyError(
                f"{self.address} was removed while {stats.quarantined} operations were "
                "outstanding; close it with force=True when it can do no more DMA"
            )
        if stats.quarantined:
            return ControllerBusyError(
                f"{self.address}: the device may still touch the memory of "
                f"{stats.quarantined} given-up operations; await controller.reset(), "
                "or close it with force=True once the device was reset from outside"
            )
        running = self.busy() or int(stats.inflight)
        return ControllerBusyError(
            f"{self.address}: {running} operations or batches are in flight; await "
            "them or give aclose() more time. The controller stays usable"
        )

    async def _close_channels(self, home: Home) -> None:
        for channel in list(self.channels.values()):
            if channel.home is home or channel.home.idle():
                channel.retire()
                continue
            signal = home.signal()

            def work(
                channel: Channel | Sink = channel, signal: Signal = signal
            ) -> None:
                channel.retire()
                signal.set()

            if channel.home.post(work):
                while not channel.closed and not channel.home.idle():
                    await signal.wait(TICK_S)
            if not channel.closed:
                channel.retire()

    async def _close_patiently(
        self, home: Home, timeout_s: float | None, *, force: bool
    ) -> None:
        """Close it step by step; cancelled between two, it stays usable."""
        steps = self._closing(timeout_s, force=force)
        signal = home.signal()
        try:
            while not await home.off_loop(lambda: next(steps, True)):
                await signal.wait(TICK_S)
        finally:
            steps.close()

    def _close_native(self, timeout_s: float | None, *, force: bool) -> None:
        for _ in self._closing(timeout_s, force=force):
            threading.Event().wait(TICK_S)

    def _closing(
        self, timeout_s: float | None, *, force: bool
    ) -> Generator[None, None, None]:
        """Close C's part; every step but the last is to be waited after."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.pool:
            self.pool.pop().unmap()
        if self.cache is not None:
            self.cache.drop()
        stopped = not force
        try:
            while True:
                self.sweep_limbo()  # windows that nobody has any more are in it too
                for window in self.open_windows():
                    window.close_window()
                self.streams.close(force=force)
                code = lib.ugds_ctrl_close(self.ptr, int(force))
                if code != -EBUSY:
                    break
                if not stopped:
                    stopped = True  # it let go of what was given up, windows too
                    continue
                late = deadline is not None and time.monotonic() >= deadline
                if late or (self.stats().quarantined and not force):
                    raise self._busy_error()
                # Housekeeping drains what a dead loop or thread left, and tells nobody.
                yield
            self.ended = True
            # A stream that the GPU passed between the last look and C's is closed too.
            self.streams.close(force=force)
        finally:
            if not self.ended and self.info().state != lib.UGDS_STATE_CLOSED:
                for window in self.open_windows():
                    window.reopen_window()
        _devices.discard(self)
        _lingering.discard(self)
        self.segment.remove()
        self.limbo.clear()
        if self.event_fd >= 0:
            os.eventfd_write(self.event_fd, 1)  # its reader sees the end

    def end_now(self) -> None:
        """Free a controller that nobody has used yet. Blocks: off the loop."""
        self._close_native(None, force=False)

    def linger(self) -> None:
        """Nobody holds it any more: it is freed as soon as the device lets go."""
        if not self.ended:
            _lingering.add(self)

    def lingers(self) -> bool:
        """Whether it is only waiting to be freed."""
        return self in _lingering

    def try_end(self) -> None:
        """Free a lingering controller, if that can be done at once.

        Not while somebody still waits for an operation: closing the channel would
        lose its completion.
        """
        with self.lock:
            if self.ended or self.closing or self.busy():
                return
            self.closing = True
        try:
            for channel in list(self.channels.values()):
                if channel.home.idle():
                    channel.retire()
                else:
                    channel.home.post(channel.retire)
            with contextlib.suppress(ControllerBusyError):
                self._close_native(0, force=False)
        finally:
            self.closing = False

    def __del__(self) -> None:
        # Whoever watches it holds a reference: nobody does.
        if getattr(self, "event_fd", -1) >= 0:
            os.close(self.event_fd)

    def forget_parent(self) -> None:
        """In a fork's child: the device is the parent's."""
        self.forked = self.ended = True
        self.lock = threading.RLock()
        self.channels.clear()
        self.streams.forget()
        self.segment.forget()
        self.observers.clear()
        lib.ugds_ctrl_fork_child(self.ptr)
        for window in self.open_windows():
            window.detach()


_devices: Final[weakref.WeakSet[Device]] = weakref.WeakSet()
_lingering: Final[set[Device]] = set()


def open_devices() -> list[Device]:
    """Return the controllers that are open in this process, by address."""
    return sorted(_devices, key=lambda device: device.address)


def end_lingering() -> None:
    """Free what lingers, as far as that can be done now. Blocks: off the loop."""
    for device in list(_lingering):
        device.try_end()


def _after_fork_in_child() -> None:
    devices = list(_devices)
    _devices.clear()
    _lingering.clear()
    for device in devices:
        for channel in list(device.channels.values()):
            channel.forget()
        device.forget_parent()
    forget_all()


os.register_at_fork(after_in_child=_after_fork_in_child)
