"""A channel: how one event loop or thread talks to one controller.

It has the waiters of the operations in flight, reaps their completions in bulk when
its eventfd says so, and keeps C batches for reuse. Nothing here is thread safe but
:meth:`Channel.retire` for a home that is over; a thread inside a blocking call holds
``lock``.
"""

from __future__ import annotations

import threading
from collections import deque
from errno import EBUSY, EHOSTDOWN
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from aiougds._errors import ClosedError, UGDSError
from aiougds._ffi import OP_NAMES, ffi, lib, records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiougds._device import Device
    from aiougds._ffi import CData, Record
    from aiougds._home import Home

REAP: Final = 256
SMALL: Final = 128  # capacity of the batches that quick calls take
FAIRNESS: Final = 64  # inline completions before the loop gets a turn
TRACED: Final = lib.UGDS_TRACED
_one: Final = Struct("=4q").unpack_from  # a completion, in half the time of tolist()
NOTICE: Final = 0xFF  # where an opcode is: a batch has reached what was waited for
MODES: Final = {
    "adaptive": lib.UGDS_MODE_ADAPTIVE,
    "inline": lib.UGDS_MODE_INLINE,
    "interrupt": lib.UGDS_MODE_INTERRUPT,
    "poll": lib.UGDS_MODE_POLL,
}


class Channel:
    """One home's way to one controller."""

    __slots__ = (
        "_out",
        "_words",
        "abandoned",
        "bad",
        "batches",
        "budget",
        "closed",
        "device",
        "fd",
        "grace_ns",
        "home",
        "lock",
        "ptr",
        "running",
        "small",
        "spare",
        "targets",
        "thread",
        "waiters",
    )

    def __init__(self, device: Device, home: Home) -> None:
        ret = ffi.new("struct ugds_chan **")
        code = lib.ugds_chan_open(device.ptr, MODES[device.options.mode], ret)
        while code == -EHOSTDOWN:  # a reset that may be over by now: then it is live
            refusal = device.refusal()
            if refusal is not None:
                raise refusal
            code = lib.ugds_chan_open(device.ptr, MODES[device.options.mode], ret)
        if code < 0:
            raise device.refusal() or UGDSError(
                f"{device.address}: no channel can be opened for this loop or thread",
                errno=-code,
            )
        self.ptr: CData = ret[0]
        self.device = device
        self.home = home
        # What the fast paths compare: is this the home where we run now?
        self.follow()
        self.lock = threading.RLock()
        self.closed = False
        self.budget = FAIRNESS
        self.grace_ns = int(device.options.cancel_grace_s * 1e9)
        self.waiters: dict[int, tuple[object, object]] = {}
        self.batches: dict[int, CData] = {}  # in use, by token
        self.abandoned: deque[tuple[CData, int]] = deque()  # by a collected Batch
        self.spare: dict[int, list[CData]] = {}  # by capacity
        self.small: list[CData] = []
        self.spare[SMALL] = self.small
        self.bad = ffi.new("uint32_t *")
        self._out, self._words = records(REAP)
        self.targets: dict[int, int] = {}  # by a batch's token: how many are awaited
        self.fd = lib.ugds_chan_fd(self.ptr)
        home.watch(self.fd, partial(self._reap, home.dispatch_woken))
        home.channels[id(device)] = self

    def follow(self) -> None:
        """Compare with where the home is now."""
        self.thread = self.home.thread
        self.running = self.home.running

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.waiters)} waiting"
        return f"<Channel of {self.device.address} {state}>"

    # ---- completions ----

    def reap(self) -> None:
        """Take all that has completed and wake who waits for it."""
        self._reap(self.home.dispatch)

    def _reap(self, dispatch: Callable[[Channel, Sequence[int]], None]) -> None:
        count = REAP
        while count == REAP and not self.closed:
            count = lib.ugds_reap(self.ptr, self._out, REAP)
            if count > REAP:  # somebody wants to know what becomes of each
                count -= TRACED
                marked = self._words[: 4 * count].tolist()
                self.home.dispatch_traced(self, marked, self.mark)
                self._words[0] = 0
            elif count > 0:
                words = self._words
                dispatch(
                    self, _one(words) if count == 1 else words[: 4 * count].tolist()
                )
                self._words[0] = 0
        device = self.device
        if device.observers or device.limbo:
            device.progress()

    def mark(self, token: int, kind: int) -> None:
        """Note for a trace what became of an operation."""
        if not self.closed:
            lib.ugds_trace_mark(self.ptr, token, kind)

    def describe(self, token: int) -> str:
        """Say in words what is waited for by a token."""
        look = ffi.new("struct ugds_op_look *")
        if self.closed or lib.ugds_op_look(self.ptr, token, look) < 0:
            return f"operation of {self.device.address}"
        if look.what == lib.UGDS_LOOK_BATCH:
            return f"batch of {look.nbytes} operations of {self.device.address}"
        if look.what == lib.UGDS_LOOK_ADMIN:
            return f"admin command of {self.device.address}"
        name = OP_NAMES[look.what]
        where = f"namespace {look.nsid} of {self.device.address}"
        if look.what == lib.UGDS_OP_FLUSH:
            return f"{name} of {where}"
        return f"{name} of {look.nbytes} bytes at offset {look.offset} of {where}"

    def reap_if_free(self) -> None:
        """As reap(), unless the owning thread is inside a call."""
        if self.lock.acquire(blocking=False):
            try:
                self.reap()
            finally:
                self.lock.release()

    def block(self, timeout_ns: int = 0) -> None:
        """Wait in C until something has completed or a signal came, and take it.

        The handler of a signal may raise right behind the call: what the call brought
        is in the buffer still, and is taken by the next one. A token is never zero.
        """
        if self.closed:  # by a fork in a signal's handler, and this is the child
            raise self.device.refusal() or ClosedError("the channel was closed")
        words = self._words
        if not words[0]:
            lib.ugds_wait(self.ptr, self._out, REAP, timeout_ns)
        count = 0
        while count < REAP and words[4 * count]:
            count += 1
        if count:
            self.home.dispatch(self, words[: 4 * count].tolist())
            for i in range(count):
                words[4 * i] = 0
        device = self.device
        if device.observers or device.limbo:
            device.progress()

    async def wait(self, token: int, keep: object) -> Record:
        """Wait for an operation; cancelled, it still waits for the completion."""
        return await self.home.wait(self, token, keep)

    async def breathe(self) -> None:
        """Give the loop a turn, and take a cancellation that is pending."""
        self.budget = FAIRNESS
        await self.home.breathe()

    def cancel(self, token: int) -> None:
        """Ask for the end of an operation or batch; its completion still comes."""
        batch = self.batches.get(token)
        if batch is None:
            lib.ugds_cancel(self.ptr, token, self.grace_ns)
        else:
            lib.ugds_batch_cancel(batch, self.grace_ns)

    def expect(self, batch: CData, count: int) -> bool:
        """Ask to be told when ``count`` can be harvested; True: they can be now."""
        self.targets[lib.ugds_batch_token(batch)] = count
        return bool(lib.ugds_batch_notify(batch, count))

    def reached(self, token: int) -> bool:
        """Whether a notice means what its waiter asked for.

        A notice of an earlier wait, which was given up, may come first: then the mark
        is set again.
        """
        count = self.targets.get(token)
        return count is None or bool(lib.ugds_batch_notify(self.batches[token], count))

    def unclaimed(self, status: int) -> None:
        """Count a completion that nobody waits for, unless it is but a notice."""
        if (status >> 16) & 0xFF != NOTICE:
            self.device.unclaimed += 1

    def settle(self) -> None:
        """End what a call started and did not note, as a signal's handler raised.

        Waits, at most ``cancel_grace_s``: so that memory is free, or in quarantine,
        when the exception reaches the caller, as with any other cancelled call.
        """
        if self.closed:
            return
        room = 256
        array = ffi.new("uint64_t[]", room)
        count = min(room, lib.ugds_chan_tokens(self.ptr, array, room))
        for i in range(count):
            if array[i] not in self.waiters:
                self.home.finish(self, int(array[i]))
        for batch, _capacity in tuple(self.abandoned):
            lib.ugds_batch_cancel(batch, self.grace_ns)
            left = lib.ugds_batch_pending(batch)
            if left and not self.expect(batch, left):
                self.home.finish(self, lib.ugds_batch_token(batch))

    def strand(self, keep: object) -> None:
        """An operation was given up: its memory stays until the device is done."""
        self.device.strand(keep)

    def unfinished(self) -> int:
        """Return what is in flight or not harvested."""
        running = 0
        for batch in list(self.batches.values()):
            running += lib.ugds_batch_pending(batch) > lib.ugds_batch_ready(batch)
        return len(self.waiters) + running + self.in_call()

    def in_call(self) -> bool:
        """Whether another thread is inside a call on it: submitting, or waiting."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return False
        return True

    # ---- batches ----

    def take_batch(self, capacity: int) -> CData:
        """Return an idle C batch of that capacity."""
        for _ in range(len(self.abandoned)):
            batch, room = self.abandoned.popleft()
            if _in_use(batch):
                lib.ugds_batch_cancel(batch, self.grace_ns)
                _harvest(batch)
                self.abandoned.append((batch, room))
            else:
                self.disarm(batch)
                self.give_batch(batch, room)
        spare = self.spare.get(capacity)
        if spare:
            batch = spare.pop()
        else:
            ret = ffi.new("struct ugds_batch **")
            code = lib.ugds_batch_new(self.ptr, capacity, ret)
            if code < 0:
                raise self.device.refusal() or UGDSError(
                    f"no batch for {capacity} operations can be made", errno=-code
                )
            batch = ret[0]
        self.batches[lib.ugds_batch_token(batch)] = batch
        return batch

    def take_small(self) -> CData:
        """Return a batch that is back in ``small`` before anything is awaited."""
        if self.small:
            return self.small.pop()
        batch = self.take_batch(SMALL)
        del self.batches[lib.ugds_batch_token(batch)]
        return batch

    def disarm(self, batch: CData) -> None:
        """Take back the deadline of a batch."""
        if not self.closed:
            lib.ugds_batch_deadline(batch, 0)

    def give_batch(self, batch: CData, capacity: int) -> None:
        """Take back a batch; kept for the next one when it is idle."""
        if self.closed:
            return
        self.targets.pop(lib.ugds_batch_token(batch), None)
        if _in_use(batch):
            self.abandoned.append((batch, capacity))
            return
        self.batches.pop(lib.ugds_batch_token(batch), None)
        self.spare.setdefault(capacity, []).append(batch)

    # ---- the end ----

    def retire(self) -> None:
        """Close it, or leave it to housekeeping while operations are in flight.

        On its own home, or when that cannot run any more.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.thread = 0
            self.home.channels.pop(id(self.device), None)
            self.home.unwatch(self.fd)
            self.device.forget_channel(self)
            if self.device.ended:
                return
            for spare in (*self.spare.values(), list(self.batches.values())):
                for batch in spare:
                    lib.ugds_batch_free(batch)
            if lib.ugds_chan_close(self.ptr) == -EBUSY:
                for _slot, keep in self.waiters.values():
                    self.strand(keep)
                lib.ugds_chan_orphan(self.ptr)
            self.waiters.clear()

    def forget(self) -> None:
        """In a fork's child: touch nothing, match no loop, wait for nothing."""
        self.closed = True
        self.thread = 0
        # A handler of a signal may have forked right before an operation is noted.
        self.waiters = Refusing(self.device)
        self.lock = threading.RLock()


class Refusing(dict[int, tuple[object, object]]):
    """The waiters of a channel that is the parent's: nobody may wait here."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __setitem__(self, token: int, entry: tuple[object, object]) -> None:
        raise self._device.refusal() or ClosedError("the channel was closed")


def _in_use(batch: CData) -> bool:
    """Whether items are in flight or not harvested, or hold their places."""
    return bool(lib.ugds_batch_pending(batch) or lib.ugds_batch_held(batch))


def _harvest(batch: CData) -> None:
    """Take what has ended of a batch whose results nobody wants any more."""
    out = ffi.new("struct ugds_completion[]", REAP)
    while lib.ugds_batch_harvest(batch, out, REAP) == REAP:
        pass


def _no_channel() -> Channel:
    channel = Channel.__new__(Channel)
    channel.closed = True
    channel.thread = 0
    return channel


NO_CHANNEL: Final = _no_channel()
