"""Memory that one controller can reach, until the device is done with it."""

from __future__ import annotations

from errno import EBUSY
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiougds._device_memory import DeviceMemory
from aiougds._ffi import ffi, lib
from aiougds._unmappable import map_error

if TYPE_CHECKING:
    from aiougds._buffer import Memory
    from aiougds._device import Device
    from aiougds._ffi import CData


class Mapping:
    """Memory that one controller can reach."""

    __slots__ = ("device", "handle", "memory", "traits")

    def __init__(self, device: Device, memory: Memory) -> None:
        ret = ffi.new("uint64_t *")
        self.traits = 0
        if isinstance(memory, DeviceMemory):
            code, self.traits = memory.map(device, ret)
        else:
            no_target = memory.readonly or memory.target_refusal
            flags = lib.UGDS_MEM_READONLY if no_target else 0
            pointer = ffi.cast("void *", memory.ptr)
            code = lib.ugds_map(device.ptr, pointer, memory.nbytes, flags, ret)
        if code < 0:
            raise device.refusal() or map_error(device.address, memory, code)
        self.device = device
        self.memory = memory
        self.handle = int(ret[0])

    def mappings_on(self, device: Device) -> list[Mapping]:
        """Return itself: what an operation that used it keeps busy."""
        return [self]

    def inflight(self) -> int:
        """Return operations in flight; 0 when it is no longer mapped."""
        if self.device.ended:
            return 0
        return max(0, lib.ugds_map_inflight(self.device.ptr, self.handle))

    def unmap(self) -> bool:
        """Unmap it; False, and nothing changed, while operations are in flight."""
        if self.device.ended:
            return True
        return lib.ugds_unmap(self.device.ptr, self.handle) != -EBUSY

    def release(self) -> None:
        """Unmap it now, or as soon as the device is done with it."""
        if not self.unmap():
            self.leave()

    def leave(self) -> None:
        """Have the next sweep unmap it."""
        self.device.limbo.append(Stray(self, None, unmap=True))


class Keeps(Protocol):
    """What an operation holds on to, for the day when it is given up."""

    def mappings_on(self, device: Device) -> list[Mapping]: ...


class Stray(NamedTuple):
    """A mapping in limbo, what it keeps alive, and whether to unmap it at the end."""

    mapping: Mapping
    keep: object
    unmap: bool

    def over(self) -> bool:
        """Whether the device is done with it."""
        return self.mapping.unmap() if self.unmap else not self.mapping.inflight()


class LostWindow(NamedTuple):
    """A C window whose namespace object was collected before its operations ended.

    They were given up: whoever awaits one keeps the object.
    """

    device: Device
    ptr: CData

    def over(self) -> bool:
        """Close it, unless operations use it still."""
        with self.device.lock:  # the controller may be closed by another thread
            return self.device.ended or not lib.ugds_ns_close(self.ptr)
