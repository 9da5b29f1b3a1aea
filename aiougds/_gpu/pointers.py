"""What a GPU runtime knows of memory: whose an address is, allocations, dma-bufs."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds._errors import CapabilityError, MemoryFreedError
from aiougds._ffi import ffi, lib
from aiougds._gpu.errors import NAMES, gpu_error
from aiougds._gpu.runtime import is_loaded, load

if TYPE_CHECKING:
    from aiougds._ffi import CData
    from aiougds._gpu.streams import Runtime

DEVICE: Final = lib.UGDS_GPU_MEM_DEVICE
HOST: Final = lib.UGDS_GPU_MEM_HOST
MANAGED: Final = lib.UGDS_GPU_MEM_MANAGED
BOTH: Final[tuple[Runtime, ...]] = ("cuda", "hip")
PAGE_BYTES: Final = 64 << 10  # what NVIDIA's GPUs map to the bus
HOST_PAGE_BYTES: Final = mmap.PAGESIZE  # what runtimes export is of whole ones


class Pointer(NamedTuple):
    """An address as its runtime knows it."""

    vendor: int
    device: int
    ctx: int
    kind: int
    base: int  # of the allocation that it lies in
    nbytes: int
    buffer_id: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """What no other allocation has, now or later."""
        return self.vendor, self.base, self.buffer_id

    @property
    def end(self) -> int:
        """Behind the last byte of the allocation."""
        return self.base + self.nbytes

    @property
    def runtime(self) -> str:
        """``cuda`` or ``hip``."""
        return NAMES[self.vendor]

    @property
    def place(self) -> str:
        """The GPU, as torch would name it."""
        return f"{self.runtime}:{self.device}"

    def native(self) -> CData:
        """Return it as C takes it."""
        native = ffi.new("struct ugds_gpu_pointer *")
        native.vendor, native.device, native.ctx = self.vendor, self.device, self.ctx
        native.kind, native.base, native.nbytes = self.kind, self.base, self.nbytes
        native.buffer_id = self.buffer_id
        return native


def _from_native(native: CData) -> Pointer:
    return Pointer(
        native.vendor,
        native.device,
        native.ctx,
        native.kind,
        native.base,
        native.nbytes,
        native.buffer_id,
    )


def look_up(vendor: int, addr: int) -> Pointer | None:
    """Return what the runtime knows of an address; None: it is not its own."""
    native, code = ffi.new("struct ugds_gpu_pointer *"), ffi.new("int *")
    result = lib.ugds_gpu_pointer(vendor, addr, native, code)
    if result < 0:
        raise gpu_error(vendor, code[0], f"the pointer {addr:#x}", -result)
    return None if native.kind == lib.UGDS_GPU_MEM_NONE else _from_native(native)


def any_loaded() -> bool:
    """Whether a runtime is in use."""
    return any(is_loaded(name) for name in BOTH)


def usable(runtimes: tuple[Runtime, ...]) -> list[int]:
    """Return the vendors of those that can be loaded; raise why when none can."""
    refusal: CapabilityError | None = None
    vendors: list[int] = []
    for runtime in runtimes:
        try:
            vendors.append(load(runtime))
        except CapabilityError as error:
            refusal = refusal or error
    if refusal is not None and not vendors:
        raise refusal
    return vendors


def whose(addr: int, runtimes: tuple[Runtime, ...]) -> Pointer | None:
    """Ask runtimes in turn; None: nobody knows it.

    One that a runtime knows is asked of no other, which need not even be loaded.
    """
    if len(runtimes) > 1 and is_loaded(runtimes[0]):
        found = look_up(load(runtimes[0]), addr)
        if found is not None:
            return found
    for vendor in usable(runtimes):
        found = look_up(vendor, addr)
        if found is not None:
            return found
    return None


def of_loaded(addr: int) -> Pointer | None:
    """Ask the runtimes that are in use already."""
    return whose(addr, tuple(name for name in BOTH if is_loaded(name)))


def pieces(first: Pointer, addr: int, nbytes: int) -> tuple[Pointer, ...]:
    """Return the allocations that a range lies in: more than one if it was mapped so.

    Raises MemoryFreedError when it reaches past them.
    """
    found = [first]
    while found[-1].end < addr + nbytes:
        following = look_up(first.vendor, found[-1].end)
        if following is None or following.kind != DEVICE or not following.nbytes:
            raise MemoryFreedError(
                f"{nbytes} bytes at {addr:#x} reach past their allocation, which ends "
                f"at {found[-1].end:#x}: the memory behind was freed or never there"
            )
        found.append(following)
    return tuple(found)


def allocate(runtimes: tuple[Runtime, ...], device: int, nbytes: int) -> Pointer:
    """Return fresh memory of the first runtime that is there, in pages of its own.

    Its content is whatever was there.
    """
    vendor = usable(runtimes)[0]
    nbytes = -(-nbytes // PAGE_BYTES) * PAGE_BYTES
    native, code = ffi.new("struct ugds_gpu_pointer *"), ffi.new("int *")
    result = lib.ugds_gpu_alloc(vendor, device, nbytes, native, code)
    if result < 0:
        what = f"{nbytes} bytes of {NAMES[vendor]}:{device} cannot be had"
        raise gpu_error(vendor, code[0], what, -result)
    return _from_native(native)


def free(pointer: Pointer) -> None:
    """Give an allocation back; with a lost context it is gone already."""
    lib.ugds_gpu_free(pointer.native(), ffi.new("int *"))


def export(found: tuple[Pointer, ...], addr: int, nbytes: int) -> tuple[int, int]:
    """Return a dma-buf's descriptor and where in it the range begins.

    Of its 64 KiB pages where the runtime gives those, else of pages of the host, else
    of its whole allocation.
    """
    first, last = found[0].base, found[-1].end
    native, fd, code = found[0].native(), ffi.new("int *"), ffi.new("int *")
    result = -1
    for page in (PAGE_BYTES, HOST_PAGE_BYTES, 0):
        start, end = first, last
        if page:
            start = addr // page * page
            end = -(-(addr + nbytes) // page) * page
            if start < first or end > last:
                continue
        result = lib.ugds_gpu_export(native, start, end - start, 0, fd, code)
        if result >= 0:
            return int(fd[0]), addr - start
    what = (
        f"{nbytes} bytes at {addr:#x} of {found[0].place}, in an allocation of "
        f"{last - first}, cannot be exported (what can is whole pages of the host)"
    )
    raise gpu_error(found[0].vendor, code[0], what, -result)


def copy_out(pointer: Pointer, to: CData, addr: int, nbytes: int) -> None:
    """Copy from a GPU; it has ended when this returns."""
    code = ffi.new("int *")
    result = lib.ugds_gpu_copy_out(pointer.native(), to, addr, nbytes, code)
    if result < 0:
        what = f"{nbytes} bytes at {addr:#x} of {pointer.place} cannot be read"
        raise gpu_error(pointer.vendor, code[0], what, -result)


def copy_in(pointer: Pointer, addr: int, source: CData, nbytes: int) -> None:
    """Copy to a GPU; it has ended when this returns."""
    code = ffi.new("int *")
    result = lib.ugds_gpu_copy_in(pointer.native(), addr, source, nbytes, code)
    if result < 0:
        what = f"{nbytes} bytes at {addr:#x} of {pointer.place} cannot be written"
        raise gpu_error(pointer.vendor, code[0], what, -result)
