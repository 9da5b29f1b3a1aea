"""Pinned memory and its slices: what awaitable and blocking registrations share."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
import warnings
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from aiougds._buffer import Memory
from aiougds._completion import current_home
from aiougds._device_memory import placement
from aiougds._errors import (
    ClosedError,
    MemoryLayoutError,
    MemoryTypeError,
    NotMappedError,
    RegistrationBusyError,
    UGDSError,
)
from aiougds._ffi import address_of, ffi, lib
from aiougds._index import registered
from aiougds._lent import Lent
from aiougds._mapping import Mapping

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._device_memory import Placement


class OnDevice(Protocol):
    """A controller or namespace."""

    @property
    def _device(self) -> Device: ...


def _byte_range(key: object, nbytes: int) -> tuple[int, int]:
    if not isinstance(key, slice):
        raise MemoryTypeError(
            f"registered memory is sliced by bytes, as in reg[0:4096], not by {key!r}"
        )
    try:
        start, stop, step = key.indices(nbytes)
    except TypeError:
        raise MemoryTypeError(f"slice bounds are integers, not {key!r}") from None
    if step != 1:
        raise MemoryLayoutError(
            f"a slice with step {step} is not contiguous; use step 1 and several slices"
        )
    return start, max(0, stop - start)


class RegistrationSlice:
    """Bytes ``[start, start + nbytes)`` of a registration; costs one small object."""

    __slots__ = ("_reg", "_start", "nbytes")

    def __init__(self, reg: PinnedMemory, start: int, nbytes: int) -> None:
        self._reg = reg
        self._start = start
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, key: slice) -> RegistrationSlice:
        start, nbytes = _byte_range(key, self.nbytes)
        return RegistrationSlice(self._reg, self._start + start, nbytes)

    @property
    def registration(self) -> PinnedMemory:
        """The whole of it."""
        return self._reg

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy."""
        return self._reg.view[self._start : self._start + self.nbytes]

    def mappings_on(self, device: Device) -> list[Mapping]:
        """Return the mapping that an operation on it keeps busy."""
        return self._reg.mappings_on(device)

    def __repr__(self) -> str:
        end = self._start + self.nbytes
        return f"<RegistrationSlice [{self._start}:{end}] of {self._reg!r}>"


class PinnedMemory(Lent):
    """Memory with a mapping for each controller that it was mapped to."""

    __slots__ = (
        "__weakref__",
        "_device",
        "_exports",
        "_handle",
        "_mappings",
        "_memory",
        "_serial",
        "_wanted",
        "nbytes",
    )

    def __init__(self, memory: Memory, device: Device) -> None:
        if not memory.nbytes:
            raise MemoryLayoutError(
                "there are no bytes to register: the memory is empty"
            )
        self._memory: Memory | None = memory
        self._mappings: dict[int, Mapping] = {}
        self._exports: list[int] = []  # descriptors of dma-bufs that are open
        self.nbytes = memory.nbytes
        self._device: Device | None = None
        self._handle = 0
        self._wanted: Device | None = device
        if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
            try:
                self._map_now(device)
            except BaseException:
                memory.let_go()
                raise
        self._serial = (
            registered.add(memory.ptr, memory.nbytes, self)
            if memory.found_by_address
            else 0
        )

    asked_for: ClassVar[bool] = True
    """Whether somebody registered it, who is told where it is not mapped."""

    # As of a slice of everything, so that nobody need tell them apart.

    @property
    def _reg(self) -> PinnedMemory:
        return self

    @property
    def _start(self) -> int:
        return 0

    def _map_now(self, device: Device) -> None:
        if self._memory is None:
            raise ClosedError("the registration is closed; register the memory again")
        if id(device) not in self._mappings:
            device.sweep_limbo()
            mapping = Mapping(device, self._memory)
            self._mappings[id(device)] = mapping
            if self._device is None:
                self._device, self._handle = device, mapping.handle
            if self._memory is None:  # closed by another thread meanwhile
                self._device = None
                self._unmap_rest()
                raise ClosedError("the registration was closed meanwhile")
        self._wanted = None

    def handle_on(self, device: Device) -> int:
        """Return the mapping's handle for a controller, or raise NotMappedError."""
        mapping = self._mappings.get(id(device))
        if mapping is not None:
            return mapping.handle
        if self._memory is None:
            raise ClosedError("the registration is closed; register the memory again")
        raise NotMappedError(
            f"the registration has no mapping for {device.address}; "
            "await registration.map(...) with its controller or namespace first"
        )

    def mappings_on(self, device: Device) -> list[Mapping]:
        """Return the mapping that an operation on it keeps busy."""
        mapping = self._mappings.get(id(device))
        return [] if mapping is None else [mapping]

    def _all(self) -> list[Mapping]:
        # At once: another thread may map or unmap it.
        return list(self._mappings.values())

    @property
    def memory(self) -> Memory:
        """Where it is. Raises ClosedError when it is closed."""
        if self._memory is None:
            raise ClosedError("the registration is closed; register the memory again")
        return self._memory

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, key: slice) -> RegistrationSlice:
        start, nbytes = _byte_range(key, self.nbytes)
        return RegistrationSlice(self, start, nbytes)

    @property
    def placement(self) -> Placement:
        """``host``; else ``device``, or ``system`` where a dma-buf lies in memory."""
        traits = [mapping.traits for mapping in self._all()]
        return placement(self.memory, traits[0] if traits else 0)

    @property
    def staged(self) -> bool:
        """Whether its bytes go through pinned host memory (the embedded controller)."""
        return any(mapping.traits & lib.UGDS_TRAIT_STAGED for mapping in self._all())

    @property
    def revocable(self) -> bool:
        """Whether its owner may take it away (see MemoryRevokedError)."""
        return any(mapping.traits & lib.UGDS_TRAIT_REVOCABLE for mapping in self._all())

    @property
    def inflight(self) -> int:
        """Operations in flight on it, over all controllers."""
        return sum(mapping.inflight() for mapping in self._all())

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` has returned."""
        return self._memory is None

    def _release(self) -> bool:
        """Unmap everywhere if nothing is in flight."""
        if self.inflight or self._exports:
            return False
        gone: list[Mapping] = []
        for mapping in self._all():
            if not mapping.unmap():
                # Another thread was quicker: what is refused leaves all as it was.
                for other in gone:
                    self._map_again(other.device)
                return False
            gone.append(mapping)
            self._mappings.pop(id(mapping.device), None)
        self._forget()
        self._unmap_rest()
        return True

    def _unmap_rest(self) -> None:
        """After _forget(): what another thread mapped meanwhile."""
        for mapping in self._all():
            mapping.release()
        self._mappings.clear()

    def _map_again(self, device: Device) -> None:
        with contextlib.suppress(UGDSError):  # it was closed meanwhile
            mapping = self._mappings[id(device)] = Mapping(device, self.memory)
            if device is self._device:
                self._handle = mapping.handle

    def _forget(self) -> None:
        memory, self._memory = self._memory, None
        self._device = self._wanted = None
        if memory is None:
            return
        memory.let_go()
        if memory.found_by_address:
            registered.remove(memory.ptr, memory.nbytes, self._serial)

    def abandon(self) -> None:
        """Let go of it: it is unmapped as soon as the device is done with it."""
        self._forget()
        self._unmap_rest()

    def is_stuck(self) -> bool:
        """Whether a given-up operation may still touch it."""
        return any(
            mapping.handle in mapping.device.stuck_handles() for mapping in self._all()
        )

    def close_error(self) -> RegistrationBusyError:
        """Return why it cannot be closed now."""
        if self._exports and not self.inflight:
            return RegistrationBusyError(
                f"{len(self._exports)} dma-bufs of {self!r} are open; close what "
                "export_dmabuf() returned first"
            )
        stuck = self.is_stuck()
        return RegistrationBusyError(
            f"{self.inflight} operations are in flight on {self!r}"
            + (
                ", some given up but never answered by the device: reset the "
                "controller, then close it again"
                if stuck
                else "; wait for them, or give it more time to close"
            )
        )

    def _is_inline(self) -> bool:
        """Whether unmapping it takes no system call worth a thread."""
        return all(
            mapping.device.ended or mapping.device.info().caps & lib.UGDS_CAP_MAP_INLINE
            for mapping in self._all()
        )

    async def _release_off_loop(self) -> bool:
        """As _release(), in a thread where it may take as long as pinning did."""
        if self._is_inline():
            return self._release()
        if self.inflight or self._exports:
            return False
        return await current_home().off_loop(self._release)

    async def close_when_idle(self, timeout_s: float | None) -> None:
        """Unmap it everywhere; wait for operations, but never for quarantined ones."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while self._memory is not None and not await self._release_off_loop():
            left = None if end is None else max(0.0, end - time.monotonic())
            devices = [mapping.device for mapping in self._all()]
            if self._exports and not self.inflight:
                raise self.close_error()
            if not devices:  # another thread is about to have closed it
                await current_home().breathe()
            elif timeout_s == 0 or not await devices[0].until(
                self._is_let_go, self.is_stuck, left
            ):
                raise self.close_error()

    def _is_let_go(self) -> bool:
        """Whether nothing is in flight on it; what stalls ends, as nobody decides."""
        if self.inflight:
            for mapping in self._all():
                mapping.device.streams.fail_stalls(self)
        return not self.inflight

    async def abandon_off_loop(self) -> None:
        """Let go of it: it is unmapped as soon as the device is done with it."""
        if self._is_inline():
            self.abandon()
        else:
            await current_home().off_loop(self.abandon)

    async def map_on(self, device: Device) -> None:
        """Map it for a controller; off the loop where that takes a system call."""
        device.check_open()
        if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
            self._map_now(device)
        else:
            await current_home().off_loop(lambda: self._map_now(device))

    async def ready(self) -> Self:
        """Make the mapping that was asked for, if it is not there yet.

        Refused or cancelled, the registration is closed.
        """
        if self._wanted is not None:
            try:
                await self.map_on(self._wanted)
            except BaseException:
                await self.abandon_off_loop()
                raise
        return self

    def __repr__(self) -> str:
        if self._memory is None:
            return f"<Registration of {self.nbytes} bytes, closed>"
        memory = self._memory
        where = f"at {memory.ptr:#x}" if memory.found_by_address else "of a device"
        return (
            f"<Registration of {self.nbytes} bytes {where}, "
            f"{len(self._mappings)} mappings, {self.inflight} in flight>"
        )

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None and self._mappings:
            if any(not mapping.device.ended for mapping in self._all()):
                warnings.warn(
                    f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self
                )
            # Left to the next sweep: a destructor does not talk to hardware.
            self._strays()

    def _strays(self) -> None:
        for mapping in self._all():
            mapping.leave()
        self._forget()


def fresh_memory(nbytes: int) -> Memory:
    """Return private, page-aligned memory; in huge pages where that may help."""
    try:
        owner = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as exc:
        raise MemoryLayoutError(
            f"{nbytes} bytes of memory cannot be had: {exc}"
        ) from exc
    if nbytes >= 2 << 20:
        with contextlib.suppress(OSError):  # a kernel without transparent ones
            owner.madvise(mmap.MADV_HUGEPAGE)
    return Memory(address_of(ffi.from_buffer(owner)), nbytes, owner)


os.register_at_fork(after_in_child=registered.forget)
