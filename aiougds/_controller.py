"""A controller: what it is, what it has done, and its admin commands."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Self

from aiougds import _admin
from aiougds._completion import current_home
from aiougds._errors import (
    ArgumentError,
    BrokenError,
    CapabilityError,
    ControllerBusyError,
    RangeError,
    UGDSError,
)
from aiougds._events import Events
from aiougds._ffi import ffi, lib, text
from aiougds._gpu_cache import RegistrationCache, segments_of
from aiougds._namespace import Namespace
from aiougds._settled import settled
from aiougds._stats import (
    STATES,
    Capabilities,
    ControllerInfo,
    ControllerState,
    Quarantined,
    Statistics,
    capabilities,
    controller_info,
    quarantine,
    statistics,
)
from aiougds._timeline import CommandTimeline, steady, timelines

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from aiougds._buffer import ForeignMemory
    from aiougds._channel import Channel
    from aiougds._device import Device
    from aiougds._pinned import PinnedMemory, RegistrationSlice


class Controller:
    """An open controller. Made by :func:`aiougds.open_controller`.

    It may be used from any event loop and thread. Queue pairs are leased to each of
    them at its first operation.
    """

    __slots__ = ("__weakref__", "_device", "_events")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._events = Events(device)

    # ---- namespaces ----

    def namespaces(self) -> list[int]:
        """Return the active namespace identifiers, ascending.

        As Identify has them (NVMe base, clause 5.17).
        """
        device = self._device
        device.check_open()
        room = 1024
        while True:
            array = ffi.new("uint32_t[]", room)
            count = lib.ugds_ctrl_nsids(device.ptr, array, room)
            if count < 0:
                raise device.refusal() or UGDSError("it was closed", errno=-count)
            if count <= room:
                return [array[i] for i in range(count)]
            room = count

    def namespace(
        self, nsid: int | None = None, *, readonly: bool = False
    ) -> Namespace:
        """Return a namespace; None: the lowest one that can be used.

        Raises RangeError, with the choices, when it is not there, and CapabilityError
        for formats that are refused (metadata).
        """
        return Namespace(self, self._choose(nsid), readonly=readonly)

    def _choose(self, nsid: int | None) -> int:
        present = self.namespaces()
        if nsid is None:
            for candidate in present:
                info = ffi.new("struct ugds_ns_info *")
                code = lib.ugds_ns_info(self._device.ptr, candidate, info)
                if not code and info.usable:
                    return candidate
            if present:  # opening it says what is wrong with it
                return present[0]
            raise RangeError(f"{self._device.address} has no active namespace")
        if isinstance(nsid, bool) or nsid not in present:
            listed = ", ".join(map(str, present)) or "none"
            raise RangeError(
                f"{self._device.address} has no namespace {nsid!r}; there are: {listed}"
            )
        return nsid

    # ---- what it is ----

    @property
    def address(self) -> str:
        """The address it was opened with."""
        return self._device.address

    @property
    def capabilities(self) -> Capabilities:
        """What is in force, on this loop or thread where that matters."""
        self._device.check_open()
        channel = self._channel()
        if channel is None:
            return capabilities(self._device, own_queue=None, armed=None)
        return capabilities(
            self._device,
            own_queue=bool(lib.ugds_chan_owns_queue(channel.ptr)),
            armed=bool(lib.ugds_chan_armed(channel.ptr)),
        )

    def _channel(self) -> Channel | None:
        try:
            line = current_home().channels.get(id(self._device))
        except UGDSError:
            return None
        # typed: homes keep lines of any kind; of this device they are channels
        channel: Channel | None = line  # type: ignore[assignment]
        return channel

    @property
    def info(self) -> ControllerInfo:
        """Identity and limits."""
        self._device.check_open()
        return controller_info(self._device)

    @property
    def state(self) -> ControllerState:
        """``live``, ``resetting``, ``wedged``, ``removed`` or ``closed``."""
        if self._device.ended:
            return "closed"
        return STATES[self._device.info().state]

    @property
    def state_reason(self) -> str:
        """Why it is wedged or removed; empty while it is live."""
        return "" if self._device.ended else text(self._device.info().reason)

    def statistics(self) -> Statistics:
        """Return the counters of this moment."""
        self._device.check_open()
        return statistics(self._device)

    def trace(self, seconds: float) -> None:
        """Trace commands for ``seconds`` from now on, at most an hour; 0: no longer.

        Until then, and afterwards, tracing costs nothing; meanwhile some 100 ns a
        command. Needs ``statistics`` (CapabilityError). :meth:`timelines` has the last.
        """
        device = self._device
        device.check_open()
        if not 0 <= seconds <= 3600:
            raise ArgumentError(f"seconds={seconds!r} is outside 0 .. 3600")
        until = time.monotonic_ns() + int(seconds * 1e9) if seconds else 0
        if lib.ugds_trace(device.ptr, until) < 0:
            raise device.refusal() or CapabilityError(
                f"{device.address} keeps no statistics (statistics=False), so its "
                "commands cannot be traced"
            )

    def timelines(self) -> tuple[CommandTimeline, ...]:
        """Return what was traced: some thousand commands, those sent first first."""
        device = self._device
        device.check_open()
        words = ffi.new("uint64_t[]", 8 * lib.UGDS_TRACE_EVENTS)
        again = ffi.new("uint64_t[]", 8 * lib.UGDS_TRACE_EVENTS)
        for copy in (words, again):
            if lib.ugds_trace_copy(device.ptr, copy) < 0:
                return ()
        found = steady(
            memoryview(ffi.buffer(words)).cast("B").cast("Q"),
            memoryview(ffi.buffer(again)).cast("B").cast("Q"),
        )
        return tuple(timelines(found.values()))

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """Memory that the device may still touch for operations that were given up.

        It ends with the command's own late completion, a reset, or the removal of
        the device; :meth:`settled` waits for that (uGDS paper, 2.6).
        """
        return () if self._device.ended else quarantine(self._device)

    async def settled(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Wait until the device has let go of what was given up.

        That is, until none of ``buf``, registered memory or a part of it, is in
        :attr:`quarantine` any more, and it may be used again; None: until that is
        empty. Awaits late answers of the device, or a reset by somebody else, at most
        ``timeout_s`` (0: looks once). What is in flight and was not given up is not
        waited for. Cancelled, it has changed nothing. Raises OperationTimeoutError,
        ControllerWedgedError and DeviceRemovedError where no answer will come,
        MemoryTypeError for memory that is not registered, NotMappedError, ClosedError.
        """
        await settled(self._device, buf, timeout_s)

    # ---- registrations that are kept ----

    @property
    def registration_cache(self) -> RegistrationCache:
        """What ``register(..., cached=True)`` keeps registered."""
        self._device.check_open()
        return segments_of(self._device).info()

    async def clear_registration_cache(self) -> None:
        """Let go of it: before a framework gives memory back to its GPU, say.

        Awaits the unmapping, off the loop where it needs a system call; cancelled, that
        goes on. Registrations go on as they are, and keep what they look into. Raises
        ClosedError.
        """
        device = self._device
        device.check_open()
        segments = segments_of(device)
        if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
            segments.drop()
        else:
            await current_home().off_loop(segments.drop)

    # ---- admin ----

    async def admin(
        self,
        opcode: int,
        *,
        nsid: int = 0,
        cdw10: int = 0,
        cdw11: int = 0,
        cdw12: int = 0,
        cdw13: int = 0,
        cdw14: int = 0,
        cdw15: int = 0,
        data: Buffer | None = None,
        nbytes: int = 0,
    ) -> tuple[int, bytes]:
        """Send an admin command; returns dword 0 of its completion, and its data.

        ``data`` goes to the controller; or ``nbytes`` (up to 65536) come from it.
        Opcodes that would touch the engine's own queues are refused. Cancelled, it
        goes on until the command has ended. Raises NVMeError for what the controller
        answered. ``opcode``, ``cdw10`` to ``cdw15`` (``cdw11``, ``cdw12``, ``cdw13``,
        ``cdw14``) are those of the command (NVMe base, clause 5).
        """
        self._device.check_open()
        cdws = (cdw10, cdw11, cdw12, cdw13, cdw14, cdw15)
        return await _admin.admin(
            self._device, opcode, nsid=nsid, cdws=cdws, data=data, nbytes=nbytes
        )

    async def identify(self, cns: int = 1, nsid: int = 0) -> bytes:
        """Return the 4096 bytes of Identify structure ``cns``; as :meth:`admin`."""
        self._device.check_open()
        return await _admin.identify(self._device, cns, nsid)

    async def log_page(
        self, page: int, nbytes: int = 512, *, nsid: int = 0xFFFFFFFF
    ) -> bytes:
        """Return the first ``nbytes`` of log ``page``; as :meth:`admin`."""
        self._device.check_open()
        return await _admin.log_page(self._device, page, nbytes, nsid)

    async def smart_log(self) -> _admin.SmartLog:
        """Return the SMART / Health log; as :meth:`admin`."""
        self._device.check_open()
        return await _admin.smart_log(self._device)

    async def error_log(self, entries: int = 16) -> tuple[_admin.ErrorLogEntry, ...]:
        """Return ``entries`` of the error log, newest first; as :meth:`admin`."""
        self._device.check_open()
        return await _admin.error_log(self._device, entries)

    def events(self) -> Events:
        """Return the async iterator over asynchronous events; it ends at close.

        They come as NVMe base, clause 5.2, has them.
        """
        self._device.check_open()
        return self._events

    async def reset(self) -> None:
        """Disable and enable the controller, and rebuild its queues.

        Awaits a thread. Operations in flight end with OperationAbortedError; the
        quarantine is released; submissions meanwhile are refused with BrokenError.
        While another reset runs, this one comes after it (a controller level reset:
        NVMe base, clause 3.7.2). Cancelled, it goes on until the reset is over. Raises
        BrokenError when the controller does not come back.
        """
        device = self._device
        device.check_open()

        def work() -> None:
            err = ffi.new("struct ugds_error *")
            code = lib.ugds_ctrl_reset(device.ptr, err)
            if code < 0:
                raise device.refusal() or BrokenError(text(err.text), errno=-code)

        await current_home().off_loop(work)
        device.sweep_limbo()

    # ---- the end ----

    async def aclose(
        self, timeout_s: float | None = None, *, force: bool = False
    ) -> None:
        """Wait for operations in flight, then shut the controller down.

        Waits at most ``timeout_s`` (0: not at all), and never for quarantined memory:
        then, and on the deadline, ControllerBusyError is raised and the controller
        stays usable. ``force`` closes it with a quarantine: only after the device was
        reset from outside. Its namespaces and registrations end with it.

        Leaving ``async with`` is the same without a deadline, and after a time-out or
        cancel whose memory is quarantined it raises ControllerBusyError, with the
        body's exception as context; it is closed then once the quarantine has ended.
        """
        await self._device.close(timeout_s, force=force)

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` has returned."""
        return self._device.ended

    async def __aenter__(self) -> Self:
        self._device.check_open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self.aclose()
        except ControllerBusyError:
            self._device.linger()
            raise

    def __repr__(self) -> str:
        device = self._device
        busy = "" if device.ended else f", {device.stats().inflight} commands in flight"
        return f"<Controller {device.address}, {self.state}{busy}>"

    def __del__(self) -> None:
        device = self._device
        if not device.ended and not device.lingers():
            warnings.warn(
                f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self
            )
            device.linger()
