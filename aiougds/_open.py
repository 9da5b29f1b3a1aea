"""Opening controllers: one factory, awaitable and an async context manager.

A transport is one line of :data:`TRANSPORTS`.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import zlib
from errno import ENOMEM
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, Unpack

from aiougds._address import (
    KMOD_LINKS,
    KMOD_PREFIX,
    Address,
    parse_emu,
    parse_kmod,
    split_address,
)
from aiougds._coalescing import coalescing
from aiougds._completion import current_home
from aiougds._controller import Controller
from aiougds._device import Device, end_lingering
from aiougds._errors import CapabilityError, MemoryLimitError, OptionError
from aiougds._explain import open_error
from aiougds._ffi import NULL, ffi, lib, text
from aiougds._gpu.runtime import load_what_is_in_use
from aiougds._lies import HOW, PAGES
from aiougds._namespace import Namespace
from aiougds._options import PRIORITIES, OpenKeywords, OpenOptions, open_options
from aiougds._polling import PollingExecutor
from aiougds._segment import make, none
from aiougds._unmappable import memlock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

    from aiougds._address import EmuOptions
    from aiougds._ffi import CData
    from aiougds._segment import Segment

    Opener = Callable[[Address, OpenOptions, Segment], CData]


class Opened(Protocol):
    """What can be left."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
        /,
    ) -> None: ...


T = TypeVar("T", bound=Opened)
_log: Final = logging.getLogger("aiougds.open")
EMU_SWITCHES: Final = {
    "create": lib.UGDS_EMU_CREATE,
    "readonly": lib.UGDS_EMU_READONLY,
    "direct": lib.UGDS_EMU_DIRECT,
    "nodata": lib.UGDS_EMU_NODATA,
    "vwc": lib.UGDS_EMU_VWC,
    "wrr": lib.UGDS_EMU_WRR,
    "shadow": lib.UGDS_EMU_DBBUF,
    "step": lib.UGDS_EMU_STEP,
    "awake": lib.UGDS_EMU_AWAKE,
}
EMU_NUMBERS: Final = (
    "mdts", "dstrd", "mpsmin", "mpsmax", "to", "aerl", "acl", "mqes", "awupf", "queues",
    "vectors", "threads", "channels", "window", "latency_ns", "latency_per_kib_ns",
    "jitter_ns", "seed", "volatile_bytes",
)  # fmt: skip


def open_params(options: OpenOptions, segment: Segment) -> CData:
    """Return the options as C wants them."""
    p = ffi.new("struct ugds_open_params *")
    p.flags = (
        (lib.UGDS_OPEN_READONLY if options.readonly else 0)
        | (0 if options.shadow_doorbells else lib.UGDS_OPEN_NO_SHADOW)
        | (0 if options.hugepages else lib.UGDS_OPEN_NO_HUGEPAGE)
        | (lib.UGDS_OPEN_WRR if options.arbitration == "wrr" else 0)
        | (0 if options.statistics else lib.UGDS_OPEN_NO_TALLIES)
        | (lib.UGDS_OPEN_WRR_AUTO if options.arbitration == "auto" else 0)
        | (lib.UGDS_OPEN_FIFO if options.scheduling == "fifo" else 0)
        | (lib.UGDS_OPEN_SEGMENT if segment.fd >= 0 else 0)
    )
    p.segment_fd = segment.fd
    p.io_queues = options.queues
    spare = options.queues // 4
    p.batch_queues = spare if options.batch_queues is None else options.batch_queues
    p.depth = options.depth
    p.batch_depth = options.batch_depth
    p.max_transfer = options.max_transfer
    p.vectors = options.vectors or 0
    p.qprio = PRIORITIES.index(options.queue_priority)
    p.arb_burst = 7
    p.wrr_weights = 7 | 15 << 8 | 31 << 16
    p.retries = options.retries
    if options.coalesce_commands > 1:  # both as Interrupt Coalescing has them
        units = max(1, math.ceil(options.coalesce_us / 100))
        p.coalesce = options.coalesce_commands - 1 | units << 8
    if options.executor is not None:
        if not isinstance(options.executor, PollingExecutor):
            raise OptionError(
                f"executor={options.executor!r}: a PollingExecutor is needed"
            )
        p.executor = options.executor._checked()
    p.chunk = options.chunk
    p.bulk_bytes = options.bulk_inflight
    p.background_bytes = options.background_inflight
    p.spin_ns = int(options.spin_us * 1e3)
    p.hang_io_ns = int(options.hang_timeout_s * 1e9)
    p.hang_admin_ns = int(options.admin_timeout_s * 1e9)
    p.cancel_grace_ns = int(options.cancel_grace_s * 1e9)
    return p


def _lies(p: CData, emu: EmuOptions) -> None:
    p.cap, p.csts = emu.cap, emu.csts
    if emu.vs is not None:
        p.flags |= lib.UGDS_EMU_FAKE_VS
        p.vs = emu.vs
    for i, delay in enumerate(emu.crdt):
        p.crdt[i] = delay
    for page, how, number in emu.garble:
        entry = p.garble[PAGES.index(page)]
        entry.how, entry.arg = HOW.index(how) + 1, number
    if emu.hostile is not None:
        p.hostile_seed, p.hostile = emu.hostile


def _emu_params(emu: EmuOptions, *, readonly: bool) -> tuple[CData, object]:
    p = ffi.new("struct ugds_emu_params *")
    path = NULL if emu.path is None else ffi.new("char[]", os.fsencode(emu.path))
    p.path = path
    for name, flag in EMU_SWITCHES.items():
        if getattr(emu, name):
            p.flags |= flag
    if not emu.coalescing:
        p.flags |= lib.UGDS_EMU_NO_COALESCE
    if readonly:
        p.flags |= lib.UGDS_EMU_READONLY
    for name in EMU_NUMBERS:
        setattr(p, name, getattr(emu, name))
    _lies(p, emu)
    real = os.path.realpath(emu.path) if emu.path else f"memory {os.getpid()}"
    p.serial = f"UGDS{zlib.crc32(os.fsencode(real)):08X}".encode()
    p.model = b"aiougds embedded controller"
    p.nr_ns = len(emu.namespaces)
    for i, space in enumerate(emu.namespaces):
        p.ns[i].nsid = space.nsid
        p.ns[i].lba_bytes = space.lba_bytes
        p.ns[i].metadata_bytes = space.metadata_bytes
        p.ns[i].nbytes = space.nbytes
    return p, path  # the path is borrowed by the struct


def _indirect(address: str, transport: str) -> CapabilityError:
    return CapabilityError(
        f"{address}: require_direct=True, but {transport} moves data with the CPU; "
        "open a device, or leave require_direct out"
    )


def _never_looks(address: str) -> CapabilityError:
    return CapabilityError(
        f"{address}: completion='inline' with spin_us=0 never looks for a completion; "
        "give spin_us"
    )


def open_emu(address: Address, options: OpenOptions, segment: Segment) -> CData:
    """Start an embedded controller and bring it up."""
    # What can be said without it is said before its file is made.
    if options.require_direct:
        raise _indirect(address.text, "emu")
    if options.completion == "inline" and not options.spin_us:
        raise _never_looks(address.text)
    emu = parse_emu(address, readonly=options.readonly)
    params, _path = _emu_params(emu, readonly=options.readonly)
    ret, err = ffi.new("struct ugds_ctrl **"), ffi.new("struct ugds_error *")
    code = lib.ugds_open_emu(params, open_params(options, segment), ret, err)
    if code < 0:
        words = text(err.text) or os.strerror(-code)
        raise open_error(code, f"{address.text}: {words}", err.status)
    controller: CData = ret[0]
    return controller


def open_kmod(address: Address, options: OpenOptions, segment: Segment) -> CData:
    """Take a controller of the kernel helper and bring it up."""
    path = ffi.new("char[]", os.fsencode(parse_kmod(address)))
    ret, err = ffi.new("struct ugds_ctrl **"), ffi.new("struct ugds_error *")
    code = lib.ugds_open_kmod(path, open_params(options, segment), ret, err)
    if code == -ENOMEM:
        raise MemoryLimitError(f"{address.text}: {text(err.text)}: {memlock()}")
    if code < 0:
        words = text(err.text) or os.strerror(-code)
        raise open_error(code, f"{address.text}: {words}", err.status)
    controller: CData = ret[0]
    return controller


def _later(what: str) -> Opener:
    def refuse(address: Address, options: OpenOptions, segment: Segment) -> CData:
        raise CapabilityError(
            f"{address.text}: {what} comes with a later version of aiougds; this one "
            "has the kernel helper (/dev/ugds_drv0) and the embedded controller: "
            "'emu:PATH' over a file, 'emu:' in memory"
        )

    return refuse


TRANSPORTS: Final[dict[str, Opener]] = {
    "emu:": open_emu,
    "vfio:": _later("VFIO"),
    KMOD_PREFIX: open_kmod,
    KMOD_LINKS: open_kmod,
}
BUILT_IN: Final = frozenset(TRANSPORTS)


def _check_promises(device: Device) -> None:
    """Refuse what was opened when it is not what was insisted on."""
    options, info = device.options, device.info()
    if options.require_direct and not info.caps & lib.UGDS_CAP_DIRECT:
        raise _indirect(device.address, text(info.transport))
    if options.completion == "interrupt" and not info.vectors:
        raise CapabilityError(
            f"{device.address}: completion='interrupt', but there is no interrupt "
            "vector; use 'poll' or 'inline'"
        )
    if options.completion == "inline" and not info.spin_ns:
        raise _never_looks(device.address)


def _segment(options: OpenOptions) -> Segment:
    if not options.statistics:
        return none("statistics=False")
    return make() if options.statistics_segment else none("statistics_segment=False")


def _describe(device: Device) -> None:
    """Say in the segment what it is about."""
    info = device.info()
    device.segment.settle(info.segment_err)
    device.segment.describe(
        {
            "address": device.address,
            "command": " ".join(sys.argv)[:1024],
            "executor_queue": info.io_queues,
            "firmware": text(info.firmware),
            "mode": device.options.mode,
            "model": text(info.model),
            "pci_address": text(info.bus),
            "serial": text(info.serial),
            "transport": text(info.transport),
            "vectors": info.vectors,
        }
    )


def bring_up(address: str, keywords: OpenKeywords) -> Device:
    """Open a controller. Blocks for milliseconds: call it off the loop."""
    options = open_options(keywords)
    parts = split_address(address, tuple(TRANSPORTS))
    load_what_is_in_use()
    end_lingering()
    segment = _segment(options)
    try:
        ptr = TRANSPORTS[parts.scheme](parts, options, segment)
    except BaseException:
        segment.remove()
        raise
    device = Device(address, ptr, options, segment)
    _describe(device)
    refused = coalescing(device).reason
    if refused:
        _log.warning("%s: interrupts are not coalesced: %s", device.address, refused)
    try:
        _check_promises(device)
    except CapabilityError:
        device.end_now()
        raise
    return device


async def _controller(address: str, keywords: OpenKeywords) -> Controller:
    home = current_home()
    return Controller(
        await home.off_loop(lambda: bring_up(address, keywords), Device.end_now)
    )


async def _namespace(
    address: str, nsid: int | None, keywords: OpenKeywords
) -> Namespace:
    controller = await _controller(address, keywords)
    try:
        return Namespace(controller, controller._choose(nsid), owner=True)
    except BaseException:
        await controller.aclose()
        raise


class Opening(Generic[T]):
    """What ``open`` returns: await it, or enter it with ``async with``."""

    __slots__ = ("_start", "_value")

    def __init__(self, start: Callable[[], Coroutine[object, None, T]]) -> None:
        self._start: Callable[[], Coroutine[object, None, T]] = start
        self._value: T | None = None

    def __repr__(self) -> str:
        return f"<Opening, {'not entered' if self._value is None else 'entered'}>"

    def __await__(self) -> Generator[object, None, T]:
        work: Generator[object, None, T] = self._start().__await__()
        return work

    async def __aenter__(self) -> T:
        self._value = await self._start()
        return self._value

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        value, self._value = self._value, None
        if value is not None:
            await value.__aexit__(exc_type, exc, tb)


def open(  # noqa: A001
    address: str, *, nsid: int | None = None, **options: Unpack[OpenKeywords]
) -> Opening[Namespace]:
    """Open a namespace, with a controller of its own, at an address.

    ``emu:PATH`` is an NVMe controller in software over a file (``?size=1GiB`` makes
    it), ``emu:`` one in memory, ``/dev/ugds_drvN`` a device that the kernel helper
    holds. ``nsid`` None takes the lowest namespace that can be used. The keyword
    arguments are the fields of :class:`OpenOptions`.

    ``await`` it for a :class:`Namespace` to close yourself, or use ``async with``.
    Bring-up (NVMe base, clause 3.5.1) runs in a thread; cancelled, it is undone.
    Raises AddressError and OptionError for what is wrong with the arguments, OpenError
    and its kinds for what is there (AddressNotFoundError, AddressPermissionError,
    AddressIsDirectoryError, AddressInUseError with the holder's name), CapabilityError
    when something insisted on cannot be had.
    """
    return Opening(lambda: _namespace(address, nsid, options))


def open_controller(
    address: str, **options: Unpack[OpenKeywords]
) -> Opening[Controller]:
    """Open a controller; its namespaces come from :meth:`Controller.namespace`.

    Everything else is as of :func:`open`.
    """
    return Opening(lambda: _controller(address, options))
