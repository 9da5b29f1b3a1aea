"""Registered memory: pinned once, sliced like bytes, used without look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from aiougds._device_memory import dmabuf_memory
from aiougds._errors import (
    ArgumentTypeError,
    MemoryTypeError,
    OptionError,
    RangeError,
    RegistrationBusyError,
)
from aiougds._export import Exporting
from aiougds._gpu_cache import segments_of
from aiougds._gpu_memory import GPUMemory, fresh_gpu_memory, memory_of
from aiougds._pinned import PinnedMemory, RegistrationSlice, fresh_memory

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from aiougds._buffer import ForeignMemory, GPUDevice
    from aiougds._device import Device
    from aiougds._pinned import OnDevice

P = TypeVar("P", bound=PinnedMemory)


class Registration(PinnedMemory):
    """Memory that a controller reads and writes directly. Made by ``register()``.

    One registration holds a mapping for each controller it was mapped to
    (:meth:`map`). It keeps the object that it was made from alive until
    :meth:`aclose` has returned. Slices are by bytes, as of a ``bytes`` object.
    """

    __slots__ = ()

    def __await__(self) -> Generator[object, None, Self]:
        return self.ready().__await__()

    async def __aenter__(self) -> Self:
        return await self.ready()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self.aclose()
        except RegistrationBusyError:
            await self.abandon_off_loop()
            raise

    async def map(self, target: OnDevice) -> None:
        """Make the memory reachable for another controller too.

        Awaits the pinning, off the loop where it needs a system call. Mapping twice
        is no error. Cancelled, it waits for the pinning, which stays. Raises
        ClosedError after :meth:`aclose`.
        """
        await self.map_on(target._device)

    def export_dmabuf(self) -> Exporting:
        """Export its memory as a dma-buf; ``await`` it, or ``async with`` it.

        Of a GPU, and of what was registered as a dma-buf. Close the :class:`Export`
        before the registration, which is busy until then. Raises CapabilityError where
        the memory or its GPU cannot be exported, MemoryFreedError, GPUError. What it is
        for: uGDS paper, 2.3.
        """
        return Exporting(self)

    async def aclose(self, timeout_s: float | None = None) -> None:
        """Unmap the memory, and let go of the object it was made from.

        Waits for operations in flight, at most ``timeout_s`` (0: not at all), but
        never for quarantined ones. Raises RegistrationBusyError, and then nothing
        has changed. Cancelled while it waits for them, it stays registered; unmapping,
        off the loop where that needs a system call, goes on to its end.

        Leaving ``async with`` is the same without a deadline, and raises
        RegistrationBusyError after an operation on it that timed out and is not
        answered yet; it is unmapped then as soon as the device lets go.
        """
        await self.close_when_idle(timeout_s)


def register(
    kind: type[P], obj: ForeignMemory, device: Device, *, cached: bool = False
) -> P:
    """Register an object's memory with a controller."""
    device.check_open()
    if isinstance(obj, (PinnedMemory, RegistrationSlice)):
        raise MemoryTypeError(
            f"{obj!r} is registered already; use it as it is, or map() it for another "
            "controller"
        )
    memory = memory_of(obj)
    if cached:
        if not isinstance(memory, GPUMemory):
            raise OptionError(
                "cached=True: the memory is no GPU's, and only allocations of GPUs are "
                "kept registered; leave it out"
            )
        memory = memory.cached(segments_of)
    return kind(memory, device)


def register_dmabuf(
    kind: type[P],
    fd: int,
    offset: int,
    nbytes: int | None,
    device: Device,
    *,
    require_peer: bool,
) -> P:
    """Register a range of a dma-buf with a controller."""
    device.check_open()
    return kind(dmabuf_memory(fd, offset, nbytes, require_peer=require_peer), device)


def allocate(
    kind: type[P], nbytes: int, device: Device, gpu: GPUDevice | None = None
) -> P:
    """Register fresh page-aligned memory, zero-filled; or memory of a GPU."""
    device.check_open()
    if isinstance(nbytes, bool) or not isinstance(nbytes, int):
        raise ArgumentTypeError(f"nbytes={nbytes!r}: an integer is needed")
    if nbytes <= 0:
        raise RangeError(f"nbytes={nbytes}: at least one byte is needed")
    if gpu is not None:
        return kind(fresh_gpu_memory(nbytes, gpu), device)
    return kind(fresh_memory(nbytes), device)
