"""What lies beneath, for tools and benchmarks; it may change between versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds import _public  # noqa: F401 (what errors are called)
from aiougds._address import Address, EmuNamespace, EmuOptions, parse_emu, split_address
from aiougds._device_memory import cuda_memory
from aiougds._errors import UGDSError
from aiougds._ffi import ffi, lib
from aiougds._open import TRANSPORTS
from aiougds._registration import Registration
from aiougds._status import status_name

if TYPE_CHECKING:
    from aiougds._namespace import Namespace
    from aiougds._pinned import OnDevice, PinnedMemory

__all__ = [
    "ABI_VERSION",
    "Address",
    "ChannelInfo",
    "Cycles",
    "EmuNamespace",
    "EmuOptions",
    "bench_cycles",
    "channel_info",
    "emu_options",
    "parse_address",
    "register_cuda",
    "status_name",
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
