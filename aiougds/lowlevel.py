"""What lies beneath, for tools, benchmarks and transports of your own.

It may change between versions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

from aiougds import _public as _public  # what errors are called
from aiougds._address import Address, EmuNamespace, EmuOptions, parse_emu, split_address
from aiougds._device_memory import cuda_memory
from aiougds._errors import AddressError, OpenError, UGDSError
from aiougds._explain import open_error
from aiougds._ffi import ffi, lib, text
from aiougds._open import BUILT_IN, TRANSPORTS, open_params
from aiougds._registration import Registration
from aiougds._status import status_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._ffi import CData
    from aiougds._namespace import Namespace
    from aiougds._options import OpenOptions
    from aiougds._pinned import OnDevice, PinnedMemory
    from aiougds._segment import Segment

__all__ = [
    "ABI_VERSION",
    "Address",
    "ChannelInfo",
    "Cycles",
    "EmuNamespace",
    "EmuOptions",
    "add_transport",
    "bench_cycles",
    "channel_info",
    "emu_options",
    "parse_address",
    "register_cuda",
    "remove_transport",
    "status_name",
    "transport_header",
]

ABI_VERSION: Final = lib.UGDS_ABI_VERSION


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """The channel of this loop or thread."""

    owns_queue: bool
    """Whether it has queue pairs of its own; otherwise the executor serves it."""
    inflight: int
    """Operations in flight."""
    fd: int
    """Its eventfd, watched by the loop."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """Time-stamp counter ticks inside submit and reap calls."""

    submit_ticks: int
    """In calls that submit."""
    reap_ticks: int
    """In calls that reap."""
    commands: int
    """How many were sent."""
    ticks_per_s: int
    """Frequency of the counter."""

    @property
    def ns_per_command(self) -> float:
        """Nanoseconds of the submitting thread for one command."""
        ticks = self.submit_ticks + self.reap_ticks
        return ticks * 1e9 / self.ticks_per_s / max(1, self.commands)


def parse_address(address: str) -> Address:
    """Take an address apart, or raise AddressError.

    >>> parse_address("emu:data.bin?readonly=1")  # doctest: +ELLIPSIS
    Address(text='emu:data.bin?readonly=1', scheme='emu:', path='data.bin', ...)
    """
    return split_address(address, tuple(TRANSPORTS))


def emu_options(address: str) -> EmuOptions:
    """Return what an ``emu:`` address asks for, checked and with defaults.

    >>> emu_options("emu:?size=4MiB&latency=80us").latency_ns
    80000
    """
    return parse_emu(split_address(address, ("emu:",)))


def channel_info(target: OnDevice) -> ChannelInfo:
    """Return what this loop or thread has; it leases a queue pair if it had none."""
    channel = target._device.channel()
    return ChannelInfo(
        owns_queue=bool(lib.ugds_chan_owns_queue(channel.ptr)),
        inflight=lib.ugds_chan_inflight(channel.ptr),
        fd=channel.fd,
    )


def register_cuda(ns: Namespace, pointer: int, nbytes: int) -> Registration:
    """Register CUDA device memory by its address ``pointer``; ``async with`` it.

    Through nvidia_p2p of the kernel driver; any byte range, its 64 KiB pages are
    pinned. CapabilityError where that cannot be had (``aiougds check`` says why).
    """
    device = ns._device
    device.check_open()
    return Registration(cuda_memory(pointer, nbytes), device)


def bench_cycles(
    ns: Namespace, reg: PinnedMemory, *, depth: int, commands: int
) -> Cycles:
    """Run 4 KiB reads with C calls only, and count ticks in them. Blocks the loop.

    So many ``commands``, at most ``depth`` at a time.
    """
    device = ns._device
    ret = ffi.new("struct ugds_cycles *")
    code = lib.ugds_bench_cycles(
        device.channel().ptr,
        ns._ptr,
        reg.handle_on(device),
        reg.nbytes,
        depth,
        commands,
        ret,
    )
    if code < 0:
        raise device.refusal() or UGDSError("the benchmark could not run", errno=-code)
    return Cycles(ret.submit_ticks, ret.reap_ticks, ret.commands, ret.ticks_per_s)


# ---- transports of your own ----


def transport_header() -> str:
    """Return ``ugds_transport.h``, which a transport is compiled against."""
    folder = resources.files("aiougds").joinpath("include")
    return folder.joinpath("ugds_transport.h").read_text(encoding="ascii")


def add_transport(scheme: str, make: Callable[[Address], int]) -> None:
    """Have ``open`` use a transport of your own for addresses of that scheme.

    ``scheme`` ends with a colon, as in ``"ramdisk:"``. ``make`` is called for each
    opening, in a thread: it looks at the address's path and options, and returns the
    address of a ``struct ugds_transport`` that a C library of yours has made. The
    struct is copied; what its ``t`` points to is yours until ``close()`` is called.
    Exceptions of ``make`` are those of ``open``.

    Raises AddressError when the scheme is malformed, or one of the package's own.
    Another transport of yours with that scheme is replaced.
    """
    good = re.fullmatch(r"[a-z][a-z0-9+.-]*:", str(scheme))
    if not good or scheme in BUILT_IN:
        raise AddressError(
            f"{scheme!r} is no scheme for a transport of your own: it begins with a "
            f"lower-case letter, ends with a colon, and is none of {sorted(BUILT_IN)}"
        )

    def opener(address: Address, options: OpenOptions, segment: Segment) -> CData:
        made: object = make(address)
        if not isinstance(made, int) or not made:
            raise OpenError(
                f"{address.text}: its transport made {made!r}, and the address of a "
                "struct ugds_transport is needed"
            )
        ret, err = ffi.new("struct ugds_ctrl **"), ffi.new("struct ugds_error *")
        transport = ffi.cast("void *", made)
        params = open_params(options, segment)
        code = lib.ugds_open_transport(transport, params, ret, err)
        if code < 0:
            words = text(err.text) or os.strerror(-code)
            raise open_error(code, f"{address.text}: {words}", err.status)
        controller: CData = ret[0]
        return controller

    TRANSPORTS[scheme] = opener


def remove_transport(scheme: str) -> None:
    """Forget your transport of ``scheme``; what is open stays so.

    Raises AddressError when none of that scheme was added.
    """
    if scheme in BUILT_IN or TRANSPORTS.pop(scheme, None) is None:
        raise AddressError(f"{scheme!r} is no transport that was added")
