"""Registered memory: pinned once, sliced like bytes, used without look-ups."""

from __future__ import annotations

import contextlib
import mmap
import os
import warnings
from typing import TYPE_CHECKING, Protocol, Self

from aiougds._buffer import Memory, describe
from aiougds._completion import current_home
from aiougds._device import Mapping
from aiougds._errors import (
    ClosedError,
    MemoryLayoutError,
    MemoryTypeError,
    NotMappedError,
    RangeError,
    RegistrationBusyError,
)
from aiougds._ffi import address_of, ffi, lib
from aiougds._index import registered

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from aiougds._buffer import ForeignMemory
    from aiougds._device import Device


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

    def __init__(self, reg: Registration, start: int, nbytes: int) -> None:
        self._reg = reg
        self._start = start
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, key: slice) -> RegistrationSlice:
        start, nbytes = _byte_range(key, self.nbytes)
        return RegistrationSlice(self._reg, self._start + start, nbytes)

    @property
    def registration(self) -> Registration:
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


class Registration:
    """Memory that a controller reads and writes directly. Made by ``register()``.

    One registration holds a mapping for each controller it was mapped to
    (:meth:`map`). It keeps the object that it was made from alive until
    :meth:`aclose` has returned. Slices are by bytes, as of a ``bytes`` object.
    """

    __slots__ = (
        "__weakref__",
        "_device",
        "_handle",
        "_mappings",
        "_memory",
        "_reg",
        "_serial",
        "_start",
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
        # As of a slice of everything, so that the fast paths need not tell them apart.
        self._reg = self
        self._start = 0
        self.nbytes = memory.nbytes
        self._device: Device | None = None
        self._handle = 0
        self._wanted: Device | None = device
        if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
            self._map_now(device)
        self._serial = registered.add(memory.ptr, memory.nbytes, self)

    def _map_now(self, device: Device) -> None:
        if self._memory is None:
            raise ClosedError("the registration is closed; register the memory again")
        if id(device) not in self._mappings:
            device.sweep_limbo()
            mapping = Mapping(device, self._memory)
            self._mappings[id(device)] = mapping
            if self._device is None:
                self._device, self._handle = device, mapping.handle
        self._wanted = None

    async def _map(self, device: Device) -> None:
        if device.info().caps & lib.UGDS_CAP_MAP_INLINE:
            self._map_now(device)
        else:
            await current_home().off_loop(lambda: self._map_now(device))

    async def _ready(self) -> Self:
        if self._wanted is not None:
            await self._map(self._wanted)
        return self

    def __await__(self) -> Generator[object, object, Self]:
        return self._ready().__await__()

    async def __aenter__(self) -> Self:
        return await self._ready()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self.aclose()
        except RegistrationBusyError:
            self._abandon()
            raise

    async def map(self, target: OnDevice) -> None:
        """Make the memory reachable for another controller too.

        Awaits the pinning, off the loop where it needs a system call. Mapping twice
        is no error. Raises ClosedError after :meth:`aclose`.
        """
        device = target._device
        device.check_open()
        await self._map(device)

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
    def view(self) -> memoryview:
        """The bytes, without a copy; read-only where the memory is."""
        memory = self.memory
        if isinstance(memory.owner, mmap.mmap):
            return memoryview(memory.owner)
        owner = memory.owner
        # The pointer, and so the view, holds the owner: it may outlive this object.
        pointer = ffi.gc(ffi.cast("char *", memory.ptr), lambda _pointer: owner)
        view = memoryview(ffi.buffer(pointer, memory.nbytes)).cast("B")
        return view.toreadonly() if memory.readonly else view

    def __buffer__(self, flags: int, /) -> memoryview:
        return self.view

    @property
    def __array_interface__(self) -> dict[str, object]:
        """The bytes as a numpy array: ``numpy.asarray(reg)``."""
        memory = self.memory
        return {
            "version": 3,
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "data": (memory.ptr, memory.readonly),
        }

    @property
    def inflight(self) -> int:
        """Operations in flight on it, over all controllers."""
        return sum(mapping.inflight() for mapping in self._mappings.values())

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` has returned."""
        return self._memory is None

    def _release(self) -> bool:
        """Unmap everywhere if nothing is in flight."""
        if self.inflight:
            return False
        for key, mapping in list(self._mappings.items()):
            if not mapping.unmap():
                return False
            del self._mappings[key]
            if mapping.device is self._device:
                self._device = None
        self._forget()
        return True

    def _forget(self) -> None:
        memory, self._memory = self._memory, None
        self._device = self._wanted = None
        if memory is not None:
            registered.remove(memory.ptr, memory.nbytes, self._serial)

    def _abandon(self) -> None:
        for mapping in self._mappings.values():
            mapping.release()
        self._mappings.clear()
        self._forget()

    def _stuck(self) -> bool:
        return any(
            mapping.handle in mapping.device.stuck_handles()
            for mapping in self._mappings.values()
        )

    async def aclose(self, timeout_s: float | None = None) -> None:
        """Unmap the memory, and let go of the object it was made from.

        Waits for operations in flight, at most ``timeout_s`` (0: not at all), but
        never for quarantined ones. Raises RegistrationBusyError, and then nothing
        has changed. Cancelled, it stays registered.
        """
        if self._memory is None or self._release():
            return
        device = next(iter(self._mappings.values())).device
        if timeout_s == 0 or not await device.until(
            self._release, self._stuck, timeout_s
        ):
            raise RegistrationBusyError(
                f"{self.inflight} operations are in flight on {self!r}"
                + (
                    ", some given up but never answered by the device: "
                    "await controller.reset(), then close again"
                    if self._stuck()
                    else "; await them, or give aclose() more time"
                )
            )

    def __repr__(self) -> str:
        if self._memory is None:
            return f"<Registration of {self.nbytes} bytes, closed>"
        return (
            f"<Registration of {self.nbytes} bytes at {self._memory.ptr:#x}, "
            f"{len(self._mappings)} mappings, {self.inflight} in flight>"
        )

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None and self._mappings:
            if any(not mapping.device.ended for mapping in self._mappings.values()):
                warnings.warn(
                    f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self
                )
            # Left to the next sweep: a destructor does not talk to hardware.
            self._strays()

    def _strays(self) -> None:
        for mapping in self._mappings.values():
            mapping.leave()
        self._forget()


def register(obj: ForeignMemory, device: Device) -> Registration:
    """Register an object's memory with a controller."""
    device.check_open()
    if isinstance(obj, (Registration, RegistrationSlice)):
        raise MemoryTypeError(
            f"{obj!r} is registered already; use it as it is, or reg.map() it for "
            "another controller"
        )
    return Registration(describe(obj), device)


def allocate(nbytes: int, device: Device) -> Registration:
    """Register fresh page-aligned memory, zero-filled."""
    device.check_open()
    if isinstance(nbytes, bool) or not isinstance(nbytes, int):
        raise MemoryTypeError(f"nbytes={nbytes!r}: an integer is needed")
    if nbytes <= 0:
        raise RangeError(f"nbytes={nbytes}: at least one byte is needed")
    return Registration(fresh_memory(nbytes), device)


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
