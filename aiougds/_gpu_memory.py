"""Memory of a GPU: whose it is, that it is still there, and how it is made reachable.

What an object claims is asked of the runtimes. Pinned host memory of theirs is host
memory like any other; managed memory is refused. Memory inside a live registration is
made reachable by it, at no cost; else the transport maps it, by its address where it
can and by a dma-buf where not.
"""

from __future__ import annotations

import os
from errno import EOPNOTSUPP
from typing import TYPE_CHECKING, Final, Protocol

from aiougds._buffer import Claim, Memory, describe, gpu_of, managed
from aiougds._device_memory import Descriptor, DeviceMemory
from aiougds._errors import (
    GPUError,
    MemoryFreedError,
    MemoryLayoutError,
    WrongGPUError,
)
from aiougds._ffi import lib
from aiougds._gpu import pointers
from aiougds._index import registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiougds._buffer import Where
    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._gpu.pointers import Pointer
    from aiougds._pinned import PinnedMemory

_KINDS: Final = {
    lib.UGDS_GPU_CUDA: lib.UGDS_FOREIGN_CUDA,
    lib.UGDS_GPU_HIP: lib.UGDS_FOREIGN_HIP,
}


class Segments(Protocol):
    """Allocations of frameworks that stay registered; see ``_gpu_cache``."""

    def hold(self, device: Device, memory: GPUMemory) -> None:
        """Have the allocation around some memory registered."""
        ...


class GPUMemory(DeviceMemory):
    """Device memory that its runtime knows."""

    __slots__ = ("_segments", "found", "stream")

    found_by_address = True
    copyable = True

    def __init__(
        self,
        found: tuple[Pointer, ...],
        ptr: int,
        nbytes: int,
        owner: object,
        *,
        readonly: bool = False,
        target_refusal: str = "",
        stream: int | None = None,
        segments: Callable[[Device], Segments] | None = None,
    ) -> None:
        super().__init__(_KINDS[found[0].vendor], nbytes, addr=ptr)
        self.owner = owner
        self.readonly = readonly
        self.target_refusal = target_refusal
        self.place = (found[0].vendor, found[0].device, found[0].ctx)
        self.found = found  # the allocations that it lies in; one, unless mapped so
        self.stream = stream
        self._segments = segments

    @property
    def what(self) -> str:
        return f"{self.nbytes} bytes at {self.ptr:#x} of {self.found[0].place}"

    def part(self, start: int, nbytes: int) -> GPUMemory:
        return GPUMemory(
            self.found,
            self.ptr + start,
            nbytes,
            self.owner,
            readonly=self.readonly,
            target_refusal=self.target_refusal,
            stream=self.stream,
        )

    def cached(self, segments: Callable[[Device], Segments]) -> GPUMemory:
        """Return the same, to be registered with the whole of its allocation.

        ``segments`` answers the cache of a controller.
        """
        made = self.part(0, self.nbytes)
        made._segments = segments
        return made

    def whole(self) -> GPUMemory:
        """Return its allocation. Nothing of it is kept from being freed."""
        base, end = self.found[0].base, self.found[-1].end
        return GPUMemory(self.found, base, end - base, None)

    # ---- is it there? ----

    def is_there(self) -> bool:
        """Whether its allocations are those that they were when it was found."""
        try:
            self.check_there()
        except (GPUError, MemoryFreedError):  # of a lost context nothing is there
            return False
        return True

    def check_there(self) -> None:
        """Raise when it was freed, or what is there now is another's.

        What was mapped in pieces may have grown.
        """
        for piece in self.found:
            now = pointers.look_up(piece.vendor, piece.base)
            if now is None:
                raise MemoryFreedError(f"{self.what}: it was freed")
            if now.identity != piece.identity or now.nbytes < piece.nbytes:
                raise MemoryFreedError(
                    f"{self.what}: it was freed, and the address is another "
                    "allocation's now"
                )

    def lies_in(self, other: Memory) -> bool:
        """Whether it is a part of some memory, of the same allocations."""
        if not isinstance(other, GPUMemory):
            return False
        if (
            not other.ptr
            <= self.ptr
            <= self.ptr + self.nbytes
            <= (other.ptr + other.nbytes)
        ):
            return False
        theirs = [piece.identity for piece in other.found]
        return all(piece.identity in theirs for piece in self.found)

    # ---- reachable for a controller ----

    def is_quick_for(self, device: Device) -> bool:
        """Whether its GPU is known there: the first time, staging may be made."""
        return self.place in device.gpus

    def map(self, device: Device, ret_handle: CData) -> tuple[int, int]:
        self.check_there()
        if self._segments is not None:
            self._segments(device).hold(device, self)
        shared = self._map_within(device, ret_handle)
        if shared is not None:
            return 0, shared
        code, traits = super().map(device, ret_handle)
        if code == -EOPNOTSUPP:  # the transport has no way to the address itself
            fd, offset = self.export()
            code, traits = self._map_dmabuf(device, fd, offset, ret_handle)
        if code == 0:
            device.gpus.add(self.place)
        return code, traits

    def _map_within(self, device: Device, ret_handle: CData) -> int | None:
        """Look into a mapping that is there; its traits, or None: there is none."""
        readonly = lib.UGDS_MEM_READONLY if self.readonly or self.target_refusal else 0
        for holder in live_holders(self):
            for mapping in holder.mappings_on(device):
                code = lib.ugds_map_within(
                    device.ptr,
                    mapping.handle,
                    self.ptr - mapping.memory.ptr,
                    self.nbytes,
                    readonly,
                    ret_handle,
                )
                if code == 0:
                    return mapping.traits
        return None

    def _map_dmabuf(
        self, device: Device, fd: int, offset: int, ret_handle: CData
    ) -> tuple[int, int]:
        try:
            buf = DeviceMemory(
                lib.UGDS_FOREIGN_DMABUF,
                self.nbytes,
                fd=Descriptor(fd),
                offset=offset,
                peer=device.options.require_direct,
            )
        finally:
            os.close(fd)
        buf.readonly, buf.target_refusal = self.readonly, self.target_refusal
        buf.place = self.place
        try:
            return buf.map(device, ret_handle)
        finally:
            buf.let_go()

    def export(self) -> tuple[int, int]:
        """Return a dma-buf's descriptor, and where in it the memory begins."""
        self.check_there()
        return pointers.export(self.found, self.ptr, self.nbytes)

    # ---- copies, for the edges of byte ranges ----

    def copy_out(self, to: CData, start: int, nbytes: int) -> None:
        pointers.copy_out(self.found[0], to, self.ptr + start, nbytes)

    def copy_in(self, start: int, source: CData, nbytes: int) -> None:
        pointers.copy_in(self.found[0], self.ptr + start, source, nbytes)

    def no_view(self, what: str) -> MemoryLayoutError:
        return MemoryLayoutError(
            f"{what}: {self.what} cannot be addressed by the host; use it where it "
            "lies (torch.from_dlpack(reg), cupy.asarray(reg))"
        )


class _Allocation:
    """Memory of a GPU that ends with the last reference to it."""

    __slots__ = ("_pid", "_pointer")

    def __init__(self, pointer: Pointer) -> None:
        self._pointer = pointer
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._pid:  # no runtime works in a fork's child
            pointers.free(self._pointer)


def fresh_gpu_memory(nbytes: int, device: object) -> GPUMemory:
    """Return memory of a GPU of our own. Its content is whatever was there."""
    where = gpu_of(device)
    pointer = pointers.allocate(where.runtimes, where.device or 0, nbytes)
    return GPUMemory((pointer,), pointer.base, nbytes, _Allocation(pointer))


def live_holders(memory: Memory) -> list[PinnedMemory]:
    """Return registrations that hold some memory: the same, not just its address."""
    if not memory.nbytes or not memory.found_by_address:
        return []
    holders = registered.holders(memory.ptr, memory.nbytes)
    if isinstance(memory, GPUMemory):
        return [reg for reg in holders if _holds(reg, memory)]
    return holders


def _holds(reg: PinnedMemory, memory: GPUMemory) -> bool:
    held = reg._memory  # None: closed meanwhile
    return held is not None and memory.lies_in(held)


def runtime_to_load(obj: object) -> Callable[[], object] | None:
    """Return what loads the runtime of an object, and may block; None: it is there."""
    if pointers.any_loaded():
        return None
    memory = describe(obj)
    if not isinstance(memory, Claim) or not memory.nbytes:
        return None
    runtimes = memory.where.runtimes
    return lambda: pointers.usable(runtimes)


def memory_of(obj: object) -> Memory:
    """Return the memory of an object, of the host or of a GPU, or raise why not."""
    memory = describe(obj)
    if isinstance(memory, Claim):
        return _found(memory)
    if memory.owner is obj and memory.nbytes and type(obj) is tuple:
        # A bare pointer says nothing: a runtime in use may know that it is its own.
        try:
            pointer = pointers.of_loaded(memory.ptr)
        except GPUError:  # a lost context is no reason to refuse host memory
            pointer = None
        if pointer is not None and pointer.kind != pointers.HOST:
            return _as_found(memory, pointer, f"{memory.nbytes} bytes", None)
    return memory


def _found(claim: Claim) -> Memory:
    if not claim.nbytes:
        return Memory(0, 0, claim.owner, readonly=claim.readonly)
    pointer = pointers.whose(claim.ptr, claim.where.runtimes)
    if pointer is None:
        raise MemoryFreedError(
            f"{claim.what}: no GPU runtime knows the pointer {claim.ptr:#x}: its "
            "memory was freed, or it is no GPU's"
        )
    _check_device(claim.what, claim.where, pointer)
    return _as_found(claim, pointer, claim.what, claim.stream)


def _check_device(what: str, where: Where, pointer: Pointer) -> None:
    if pointer.kind != pointers.DEVICE:
        return
    if where.device is not None and where.device != pointer.device:
        raise WrongGPUError(
            f"{what} says {where.said}, but its memory lies on {pointer.place}; give "
            "the device that it was allocated on"
        )


def _as_found(
    memory: Memory, pointer: Pointer, what: str, stream: int | None
) -> Memory:
    if pointer.kind == pointers.MANAGED:
        raise managed(what)
    if pointer.kind == pointers.HOST:
        return Memory(
            memory.ptr,
            memory.nbytes,
            memory.owner,
            readonly=memory.readonly,
            target_refusal=memory.target_refusal,
        )
    return GPUMemory(
        pointers.pieces(pointer, memory.ptr, memory.nbytes),
        memory.ptr,
        memory.nbytes,
        memory.owner,
        readonly=memory.readonly,
        target_refusal=memory.target_refusal,
        stream=stream,
    )
