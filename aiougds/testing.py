"""For tests of programs that use aiougds: faults, counters and events on demand.

Everything here works on the embedded controller (``emu:`` addresses) only, and raises
CapabilityError on anything else.

.. code-block:: python

    async with aiougds.open("emu:?size=1MiB") as ns:
        with inject(ns, Fault.status("read", sct=2, sc=0x81)) as fault:
            try:
                await ns.read(bytearray(4096), offset=0)
            except aiougds.MediaError:
                assert fault.hits == 1
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from errno import EOPNOTSUPP
from typing import TYPE_CHECKING, Final, Literal, Self

from aiougds import _public as _public  # what errors are called
from aiougds._errors import ArgumentError, CapabilityError, OptionError, UGDSError
from aiougds._ffi import ffi, lib
from aiougds._options import one_of
from aiougds._power import check_power, power_cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aiougds._device import Device
    from aiougds._pinned import OnDevice

power_cut.__module__ = __name__

__all__ = [
    "Action",
    "EmulatorCounters",
    "Fault",
    "FaultHandle",
    "attach",
    "counters",
    "detach",
    "inject",
    "power_cut",
    "raise_event",
    "resize",
]

Action = Literal[
    "status",
    "delay",
    "hold",
    "lose_interrupt",
    "spurious_interrupt",
    "early_interrupt",
    "dup_cqe",
    "bad_cid",
    "bad_sqid",
    "drop",
    "cfs",
    "removed",
    "abort_refused",
    "enable_stuck",
    "stuck_phase",
    "free_cid",
    "bad_sqhd",
    "reset_refused",
    "never_ready",
    "all_ones",
    "power_cut",
    "power_off",
]

_ACTIONS: Final[dict[str, int]] = {
    "status": lib.UGDS_FAULT_STATUS,
    "delay": lib.UGDS_FAULT_DELAY,
    "hold": lib.UGDS_FAULT_HOLD,
    "lose_interrupt": lib.UGDS_FAULT_LOSE_INTERRUPT,
    "spurious_interrupt": lib.UGDS_FAULT_SPURIOUS_INTERRUPT,
    "early_interrupt": lib.UGDS_FAULT_EARLY_INTERRUPT,
    "dup_cqe": lib.UGDS_FAULT_DUP_CQE,
    "bad_cid": lib.UGDS_FAULT_BAD_CID,
    "bad_sqid": lib.UGDS_FAULT_BAD_SQID,
    "drop": lib.UGDS_FAULT_DROP,
    "cfs": lib.UGDS_FAULT_CFS,
    "removed": lib.UGDS_FAULT_REMOVED,
    "abort_refused": lib.UGDS_FAULT_ABORT_REFUSED,
    "enable_stuck": lib.UGDS_FAULT_ENABLE_STUCK,
    "stuck_phase": lib.UGDS_FAULT_STUCK_PHASE,
    "free_cid": lib.UGDS_FAULT_FREE_CID,
    "bad_sqhd": lib.UGDS_FAULT_BAD_SQHD,
    "reset_refused": lib.UGDS_FAULT_RESET_REFUSED,
    "never_ready": lib.UGDS_FAULT_NEVER_READY,
    "all_ones": lib.UGDS_FAULT_ALL_ONES,
    "power_cut": lib.UGDS_FAULT_POWER_CUT,
    "power_off": lib.UGDS_FAULT_POWER_OFF,
}
_OPCODES: Final[dict[str, int]] = {
    "flush": lib.UGDS_OP_FLUSH,
    "write": lib.UGDS_OP_WRITE,
    "read": lib.UGDS_OP_READ,
    "compare": lib.UGDS_OP_COMPARE,
    "write_zeroes": lib.UGDS_OP_WRITE_ZEROES,
    "deallocate": lib.UGDS_OP_DEALLOCATE,
    "verify": lib.UGDS_OP_VERIFY,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What the embedded controller is to do wrong, and to which commands.

    None stands for any. ``slba`` and ``nlb`` (blocks) choose commands that touch that
    range, ``nsid`` a namespace; ``skip`` matches pass first, then ``count`` are acted
    on (0: all). Class methods name each ``action``, ``status_field`` and ``delay_s``.
    """

    action: Action
    command: str | int | None = None
    """``read`` and so on, on the I/O queues, or an opcode, on any queue."""
    queue: int | None = None
    """Queue identifier; 0 is the admin queue."""
    nsid: int | None = None
    slba: int = 0
    nlb: int = 0
    skip: int = 0
    count: int = 0
    status_field: int = 0
    delay_s: float = 0.0

    @classmethod
    def status(
        cls,
        command: str | int | None = None,
        *,
        sct: int = 0,
        sc: int = 0x06,
        dnr: bool = False,
        more: bool = False,
        crd: int = 0,
        count: int = 0,
    ) -> Fault:
        """Complete with that status, and move no data.

        ``dnr`` is "do not retry", ``more`` says that the error log tells more, ``crd``
        is which retry delay the controller wants (the address option ``crdt``; given
        only to hosts that asked for it: ``open(retries=...)``).
        """
        field = (sct & 7) << 8 | sc & 0xFF | (crd & 3) << 11
        field |= (0x2000 if more else 0) | (0x4000 if dnr else 0)
        return cls("status", command, count=count, status_field=field)

    @classmethod
    def delay(
        cls, seconds: float, command: str | int | None = None, *, count: int = 0
    ) -> Fault:
        """Hold commands back for a time, then serve them."""
        return cls("delay", command, count=count, delay_s=seconds)

    @classmethod
    def hold(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Keep commands until the fault is cleared, then serve them."""
        return cls("hold", command, count=count)

    @classmethod
    def power_cut(
        cls,
        command: str | int | None = None,
        *,
        skip: int = 0,
        stays_off: bool = False,
    ) -> Fault:
        """Lose power in the middle of a command, after ``skip`` matching ones.

        The command never completes; if it writes, it is there in part, or not at all,
        or all of it, also with FUA. The rest is as with :func:`power_cut`, and needs
        ``volatile=1`` as well.
        """
        action: Action = "power_off" if stays_off else "power_cut"
        return cls(action, command, skip=skip, count=1)

    @classmethod
    def drop(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Forget commands: no completion, not even on Abort."""
        return cls("drop", command, count=count)

    @classmethod
    def lose_interrupt(
        cls, command: str | int | None = None, *, count: int = 0
    ) -> Fault:
        """Complete, but tell nobody."""
        return cls("lose_interrupt", command, count=count)

    @classmethod
    def spurious_interrupt(
        cls, command: str | int | None = None, *, count: int = 0
    ) -> Fault:
        """Interrupt although nothing has completed, then serve."""
        return cls("spurious_interrupt", command, count=count)

    @classmethod
    def early_interrupt(
        cls, seconds: float, command: str | int | None = None, *, count: int = 0
    ) -> Fault:
        """Interrupt once, that long before the completion can be seen."""
        return cls("early_interrupt", command, count=count, delay_s=seconds)

    @classmethod
    def dup_cqe(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Complete twice."""
        return cls("dup_cqe", command, count=count)

    @classmethod
    def bad_cid(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Before the completion, post one for a command nobody sent."""
        return cls("bad_cid", command, count=count)

    @classmethod
    def free_cid(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Before the completion, post one for an identifier in range but not in use."""
        return cls("free_cid", command, count=count)

    @classmethod
    def bad_sqid(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Before the completion, post one that names another queue."""
        return cls("bad_sqid", command, count=count)

    @classmethod
    def bad_sqhd(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Complete, and tell a submission queue head that cannot be."""
        return cls("bad_sqhd", command, count=count)

    @classmethod
    def stuck_phase(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Complete with the phase tag of the round before: nobody can see it.

        Nor what the queue completes after it, until a reset.
        """
        return cls("stuck_phase", command, count=count)

    @classmethod
    def cfs(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Set CSTS.CFS (controller fatal status); nothing completes any more."""
        return cls("cfs", command, count=count)

    @classmethod
    def removed(cls, command: str | int | None = None, *, count: int = 0) -> Fault:
        """Be gone: registers read all ones, nothing completes, no memory is touched."""
        return cls("removed", command, count=count)

    @classmethod
    def all_ones(
        cls, seconds: float, command: str | int | None = None, *, count: int = 0
    ) -> Fault:
        """Have registers read all ones, and take no writes, for a time.

        The queues work on meanwhile.
        """
        return cls("all_ones", command, count=count, delay_s=seconds)

    @classmethod
    def abort_refused(cls, *, count: int = 0) -> Fault:
        """Answer Abort with "not aborted"."""
        return cls("abort_refused", count=count)

    @classmethod
    def enable_stuck(cls, *, count: int = 0) -> Fault:
        """Let CSTS.RDY follow CC.EN in neither direction."""
        return cls("enable_stuck", count=count)

    @classmethod
    def reset_refused(cls, *, count: int = 0) -> Fault:
        """Ignore CC.EN = 0: CSTS.RDY stays, and the controller works on."""
        return cls("reset_refused", count=count)

    @classmethod
    def never_ready(cls, *, count: int = 0) -> Fault:
        """Ignore CC.EN = 1: CSTS.RDY never comes."""
        return cls("never_ready", count=count)

    def on(
        self,
        *,
        queue: int | None = None,
        nsid: int | None = None,
        slba: int = 0,
        nlb: int = 0,
        skip: int = 0,
    ) -> Fault:
        """Return the same fault for fewer commands."""
        return replace(self, queue=queue, nsid=nsid, slba=slba, nlb=nlb, skip=skip)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorCounters:
    """What the embedded controller has seen; ``aborts``, ``flushes``: commands."""

    iommu_faults: int
    """Accesses outside live mappings: always zero, or there is a defect."""
    protocol_errors: int
    """What a host must not do, such as a doorbell beyond its queue."""
    commands: int
    """I/O commands that were fetched."""
    stepped: int
    """Of these, served on a host thread."""
    admin_commands: int
    """Admin commands that were fetched."""
    interrupts: int
    """Interrupts that were raised."""
    interrupts_masked: int
    """Completions whose owners were awake."""
    kicks: int
    """System calls made to wake device threads."""
    aborts: int
    doorbell_writes_seen: int
    """Writes of doorbell registers."""
    flushes: int


class FaultHandle:
    """A fault that is in force until :meth:`clear`, or the end of ``with``."""

    __slots__ = ("_device", "_hits", "_id", "fault")

    def __init__(self, device: Device, fault: Fault, fault_id: int) -> None:
        self._device = device
        self._id: int | None = fault_id
        self._hits = 0
        self.fault = fault

    @property
    def hits(self) -> int:
        """How often it was acted on."""
        if self._id is not None and not self._device.ended:
            self._hits = max(0, lib.ugds_fault_hits(self._device.ptr, self._id))
        return self._hits

    def clear(self) -> None:
        """End it; commands that it held are served."""
        if self._id is not None:
            fault_id, self._id = self._id, None
            if not self._device.ended:
                hits = lib.ugds_fault_clear(self._device.ptr, fault_id)
                self._hits = max(self._hits, hits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        state = "cleared" if self._id is None else "in force"
        return f"<FaultHandle {self.fault.action}, {state}, {self._hits} hits>"


def _check(device: Device, code: int, what: str) -> None:
    if code == -EOPNOTSUPP:
        raise CapabilityError(
            f"{device.address}: {what} needs the embedded controller (emu:)"
        )
    if code < 0:
        raise device.refusal() or UGDSError(
            f"{what} was refused: {os.strerror(-code)}", errno=-code
        )


def inject(target: OnDevice, fault: Fault) -> FaultHandle:
    """Put a fault in force on the controller of a namespace, or on a controller."""
    device = target._device
    device.check_open()
    one_of("action", fault.action, _ACTIONS)
    native = ffi.new("struct ugds_fault *")
    native.action = _ACTIONS[fault.action]
    opcode = fault.command
    anywhere = lib.UGDS_FAULT_ANY
    if isinstance(opcode, str):
        one_of("command", opcode, _OPCODES)
        opcode = _OPCODES[opcode]
        anywhere = lib.UGDS_FAULT_ANY_IO  # admin opcodes mean other things
    try:
        native.opcode = lib.UGDS_FAULT_ANY if opcode is None else opcode
        native.qid = anywhere if fault.queue is None else fault.queue
        native.nsid = lib.UGDS_FAULT_ANY if fault.nsid is None else fault.nsid
        native.slba, native.nlb = fault.slba, fault.nlb
        native.skip, native.count = fault.skip, fault.count
        native.status = fault.status_field
        native.delay_ns = int(fault.delay_s * 1e9)
    except (OverflowError, TypeError) as exc:
        raise OptionError(f"{fault!r}: {exc}") from exc
    fault_id = lib.ugds_fault_add(device.ptr, native)
    if fault.action in ("power_cut", "power_off"):
        check_power(device, fault_id)
    _check(device, fault_id, "injecting a fault")
    return FaultHandle(device, fault, fault_id)


def counters(target: OnDevice) -> EmulatorCounters:
    """Return what the embedded controller has counted."""
    device = target._device
    device.check_open()
    native = ffi.new("struct ugds_emu_counters *")
    _check(device, lib.ugds_emu_counters(device.ptr, native), "reading its counters")
    return EmulatorCounters(
        iommu_faults=native.iommu_faults,
        protocol_errors=native.protocol_errors,
        commands=native.commands,
        stepped=native.stepped,
        admin_commands=native.admin_commands,
        interrupts=native.interrupts,
        interrupts_masked=native.interrupts_masked,
        kicks=native.kicks,
        aborts=native.aborts,
        doorbell_writes_seen=native.doorbell_writes_seen,
        flushes=native.flushes,
    )


def raise_event(
    target: OnDevice,
    *,
    type: int = 2,  # noqa: A002
    info: int = 0,
    log_page: int = 0x04,
) -> None:
    """Have the controller report an asynchronous event (``Controller.events()``)."""
    device = target._device
    device.check_open()
    for name, value, most in (
        ("type", type, 7),
        ("info", info, 255),
        ("log_page", log_page, 255),
    ):
        if not 0 <= value <= most:
            raise _bad(name, value, most)
    dw0 = type | info << 8 | log_page << 16
    _check(device, lib.ugds_emu_event(device.ptr, dw0), "raising an event")


def _namespace_id(target: OnDevice, nsid: int | None) -> int:
    found = getattr(target, "nsid", None) if nsid is None else nsid
    if not isinstance(found, int):
        raise OptionError("a controller has several namespaces: nsid is needed")
    return found


def resize(target: OnDevice, nbytes: int, *, nsid: int | None = None) -> None:
    """Give a namespace another size, and have the controller tell it by an event.

    ``target`` is the namespace, or a controller with ``nsid``. Open objects follow
    once the event was handled: :attr:`Namespace.size` changes. What is cut off a
    namespace in memory is gone; a file grows with its namespace and never shrinks.
    In memory a namespace can grow to 64 GiB.
    """
    device = target._device
    device.check_open()
    one = _namespace_id(target, nsid)
    code = _native(lambda: lib.ugds_emu_resize(device.ptr, one, nbytes), nbytes)
    _check(device, code, f"giving namespace {one} a size of {nbytes} bytes")


def detach(target: OnDevice, *, nsid: int | None = None) -> None:
    """Take a namespace away from its controller, with the event that tells it.

    Operations on it then fail with NamespaceGoneError, or with what the controller
    answers; :func:`attach` brings it back.
    """
    device = target._device
    device.check_open()
    one = _namespace_id(target, nsid)
    code = _native(lambda: lib.ugds_emu_attach(device.ptr, one, 0, 0), one)
    _check(device, code, f"detaching namespace {one}")


def attach(target: OnDevice, nbytes: int = 0, *, nsid: int | None = None) -> None:
    """Bring a detached namespace back, or make a new one of ``nbytes`` in memory."""
    device = target._device
    device.check_open()
    one = _namespace_id(target, nsid)
    code = _native(lambda: lib.ugds_emu_attach(device.ptr, one, nbytes, 1), nbytes)
    _check(device, code, f"attaching namespace {one}")


def _native(call: Callable[[], int], value: int) -> int:
    try:
        return call()
    except (OverflowError, TypeError) as exc:
        raise OptionError(f"{value!r}: {exc}") from exc


def _bad(name: str, value: int, most: int) -> ArgumentError:
    return OptionError(f"{name}={value} is outside 0 .. {most}")
