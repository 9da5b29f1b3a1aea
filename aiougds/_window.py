"""A window of a namespace: its C object, its state and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiougds._channel import NO_CHANNEL
from aiougds._errors import ClosedError, ControllerBusyError
from aiougds._explain import open_error
from aiougds._ffi import ffi, lib, new_tuple, text
from aiougds._mapping import LostWindow
from aiougds._policy import (
    ASK,
    NOTHING_SAID,
    Intent,
    Plan,
    checked_plan,
    choose,
    plan_flags,
    plan_stream_flags,
)
from aiougds._transfer import Window

if TYPE_CHECKING:
    from aiougds._controller import Controller
    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._options import IoClass, Mode, PolicyName
    from aiougds._policy import How, Policy, Said


def _intent(name: str, offset: object, nbytes: object) -> Intent:
    at = offset if isinstance(offset, int) else None
    length = nbytes if isinstance(nbytes, int) else None
    intent: Intent = new_tuple(Intent, (name, at, length))
    return intent


class NamespaceWindow:
    """Bytes ``[base, base + nbytes)`` of a namespace, held open in C."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_channel",
        "_closed",
        "_controller",
        "_device",
        "_flags",
        "_how",
        "_known",
        "_last_own",
        "_last_plan",
        "_nbytes",
        "_open",
        "_own",
        "_owner",
        "_ptr",
        "_read_op",
        "_said_flags",
        "_size",
        "_stream_flags",
        "_window",
        "lba_bytes",
        "nsid",
        "readonly",
    )

    nsid: int
    """Namespace identifier."""
    lba_bytes: int
    """Bytes of a block: offsets and lengths are multiples of it."""
    readonly: bool
    """Whether writing is refused."""

    def __init__(
        self,
        controller: Controller,
        nsid: int,
        *,
        base: int = 0,
        nbytes: int = 0,
        readonly: bool = False,
        owner: bool = False,
    ) -> None:
        self._closed = True
        device: Device = controller._device
        device.check_open()
        self._controller = controller
        self._device = device
        self._channel = NO_CHANNEL
        self._owner = owner
        self._base = base
        self.nsid = nsid
        self._nbytes = nbytes  # 0: to the end, wherever that is
        self._size = 0
        self.readonly = readonly
        # The pointer stays good when it is closed: a call may be about to use it.
        self._ptr: CData = ffi.NULL
        self._open = False
        self.reopen_window()
        info = ffi.new("struct ugds_ns_info *")
        lib.ugds_ns_info(device.ptr, nsid, info)
        self.lba_bytes = info.lba_bytes
        self.readonly = readonly or bool(info.readonly) or device.options.readonly
        self._window = Window(device, self._ptr, self.lba_bytes, [True])
        self._do(device.how)
        device.add_window(self)

    # ---- state ----

    @property
    def controller(self) -> Controller:
        """The controller it belongs to."""
        return self._controller

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._closed or self._device.ended

    @property
    def size(self) -> int:
        """Bytes. It follows the namespace, which may grow, shrink or go."""
        return lib.ugds_ns_size(self._ptr) if self._open else self._size

    def _checked(self) -> Window:
        self._ready()
        return self._window

    def _ready(self) -> Device:
        """Return the device, or raise when this or the controller is closed."""
        device = self._device
        device.check_open()
        if self._closed:
            raise ClosedError(
                f"namespace {self.nsid} of {device.address} is closed; open it again"
            )
        return device

    def _here(self) -> Device:
        """As _ready(), with the fast path set up for the loop that runs here."""
        device = self._ready()
        channel = device.channel()
        self._channel = channel if channel.thread else NO_CHANNEL
        return device

    # ---- how operations are done ----

    def _do(self, how: How) -> None:
        """Do operations in that manner from now on."""
        self._how = how
        default = self._device.options.mode
        self._flags = ASK if how.policy else how.flags(default)
        self._said_flags: dict[object, int] = {}  # by names that calls said
        self._last_plan: tuple[object, int] = how, self._flags
        self._own = how.policy
        self._last_own: tuple[object, int] = how, self._flags  # of the handle's policy
        self._known: Policy | None = None  # one that a call named before
        self._read_op = lib.UGDS_OP_READ | self._flags
        self._stream_flags = ASK if how.policy else how.stream_flags(default)
        self.detach()

    def using(
        self,
        *,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
    ) -> Self:
        """Return another handle of the same bytes, whose operations are done otherwise.

        ``policy`` is a name or an object of your own; ``mode`` and ``io_class`` go
        before what it says. What is not given is as here. Close it as any other, or
        leave that to the controller.
        """
        self._checked()
        other = type(self)(
            self._controller,
            self.nsid,
            base=self._base,
            nbytes=self._nbytes,
            readonly=self.readonly,
        )
        other._do(choose(policy, mode, io_class, self._how))
        return other

    def _asked(
        self,
        name: str,
        offset: object,
        nbytes: object,
        policy: Policy | PolicyName | None,
        mode: Mode | None,
        io_class: IoClass | None,
    ) -> int:
        """Return the flags of an operation that says how it is done, or is asked about.

        What only names say is looked up once for each handle, and so is what the last
        plan means: a policy is asked each time, but mostly it returns the same one.
        """
        if mode is None and io_class is None:
            if policy is None:
                own = self._own
                if own is not None:
                    at = offset if isinstance(offset, int) else None
                    length = nbytes if isinstance(nbytes, int) else None
                    intent: Intent = new_tuple(Intent, (name, at, length))
                    plan = own.plan(intent)
                    last, flags = self._last_own
                    return flags if plan is last else self._meant(own, plan, own=True)
            else:
                last, flags = self._last_plan
                if policy is last and type(policy) is Plan:  # it would return itself
                    return flags
                known = self._known
                if known is not None and policy is known:
                    at = offset if isinstance(offset, int) else None
                    length = nbytes if isinstance(nbytes, int) else None
                    intent = new_tuple(Intent, (name, at, length))
                    plan = known.plan(intent)
                    return flags if plan is last else self._meant(known, plan)
        said = policy, mode, io_class
        asked = self._how.policy if policy is None else policy
        named = asked is None or isinstance(asked, str)
        if named:
            try:
                return self._said_flags[said]
            except (KeyError, TypeError):  # not yet, or no name: put in words below
                pass
        how = self._how.ask(_intent(name, offset, nbytes), said)
        flags = plan_flags(*how, self._device.options.mode)
        if named:
            self._said_flags[said] = flags
        elif mode is None and io_class is None and not isinstance(policy, str):
            self._known = policy
            self._last_plan = how[0], flags
        return flags

    def _meant(self, policy: Policy, plan: object, *, own: bool = False) -> int:
        """Return the flags of a plan that is not the last one, and keep them."""
        plan = checked_plan(policy, plan)
        default = self._device.options.mode
        if own:
            how = self._how
            flags = plan_flags(plan, how.mode, how.io_class, default)
            self._last_own = plan, flags
        else:
            flags = plan_flags(plan, None, None, default)
            self._last_plan = plan, flags
        return flags

    def _named(
        self,
        policy: Policy | PolicyName | None,
        mode: Mode | None,
        io_class: IoClass | None,
    ) -> int:
        """Return the flags of an operation, if names say it all that were said before.

        Negative: somebody has to be asked.
        """
        if policy is None and mode is None and io_class is None:
            return self._flags
        if policy is None and self._how.policy is not None:
            return ASK
        if policy is not None and type(policy) is not str:
            return ASK
        try:
            return self._said_flags.get((policy, mode, io_class), ASK)
        except TypeError:  # no name
            return ASK

    def _planned(
        self,
        name: str,
        said: Said = NOTHING_SAID,
        offset: object = None,
        nbytes: object = None,
    ) -> int:
        """Return the flags of one operation, and set the fast path up."""
        self._here()
        if said == NOTHING_SAID and self._how.policy is None:
            return self._flags
        return self._asked(name, offset, nbytes, *said)

    def _planned_on_stream(
        self, name: str, said: Said, offset: object = None, nbytes: object = None
    ) -> int:
        """Return the flags of an operation on a stream."""
        device = self._ready()
        if said == NOTHING_SAID and self._how.policy is None:
            return self._stream_flags
        plan = self._how.ask(_intent(name, offset, nbytes), said)
        return plan_stream_flags(*plan, device.options.mode)

    def _batch_flags(self) -> int:
        """Return the flags of a batch that is made now, for whatever loop."""
        if self._how.policy is None:
            return self._flags
        return self._asked("batch", None, None, None, None, None)

    def detach(self) -> None:
        """Leave the fast path: the next operation looks again."""
        self._channel = NO_CHANNEL

    def close_window(self) -> int:
        """Close the C window; -EBUSY while operations use it."""
        with self._device.lock:  # the controller may be closed by another thread
            if not self._open:
                return 0
            size = lib.ugds_ns_size(self._ptr)
            code = lib.ugds_ns_close(self._ptr)
            if not code:
                self._size = size
                self._open = False
                self._window.life.clear()
                self.detach()
            return code

    def reopen_window(self) -> None:
        """Open the C window (again, after a close that failed later on)."""
        if self._open:
            return
        ret, err = ffi.new("struct ugds_ns **"), ffi.new("struct ugds_error *")
        code = lib.ugds_ns_open(
            self._device.ptr,
            self.nsid,
            self._base,
            self._nbytes,
            int(self.readonly),
            ret,
            err,
        )
        if code < 0:
            raise open_error(code, text(err.text), err.status)
        self._ptr = ffi.gc(ret[0], lib.ugds_ns_free)
        self._open = True
        self._closed = False
        if hasattr(self, "_window"):
            self._window = self._window._replace(ptr=self._ptr, life=[True])

    async def aclose(self, timeout_s: float | None = None) -> None:
        """Close it, and its controller when ``aiougds.open`` made both.

        Waits for operations in flight, at most ``timeout_s`` (0: not at all), but
        never for quarantined memory: then, and on the deadline, ControllerBusyError
        is raised and everything stays usable.
        """
        if self._owner:
            await self._controller.aclose(timeout_s)
            self._closed = True
            return
        device = self._device
        if self.closed:
            self._closed = True
            return
        self._closed = True
        self.detach()

        def done() -> bool:
            return device.ended or not self.close_window()

        def stuck() -> bool:
            return device.is_stuck(self._ptr)

        if done() or (timeout_s != 0 and await device.until(done, stuck, timeout_s)):
            device.drop_window(self)
            return
        self._closed = False
        raise ControllerBusyError(
            f"operations are in flight on namespace {self.nsid} of {device.address}; "
            "await them, or give aclose() more time"
        )

    def __repr__(self) -> str:
        state = "closed" if self.closed else "read-only" if self.readonly else "open"
        where = f" from {self._base} on" if self._base else ""
        return (
            f"<Namespace {self.nsid} of {self._device.address}: {self.size} bytes"
            f"{where} in blocks of {self.lba_bytes}{self._how.words()}, {state}>"
        )

    def __del__(self) -> None:
        if not self._closed and not self._device.ended and self.close_window():
            self._device.limbo.append(LostWindow(self._device, self._ptr))
