"""What a namespace offers about memory: registering, allocating."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds._registration import (
    Registration,
    allocate,
    register,
    register_dmabuf,
)
from aiougds._window import NamespaceWindow

if TYPE_CHECKING:
    from aiougds._buffer import ForeignMemory, GPUDevice


class NamespaceMemory(NamespaceWindow):
    """Memory for the transfers of a namespace."""

    __slots__ = ()

    def register(self, buf: ForeignMemory, *, cached: bool = False) -> Registration:
        """Make an object's memory reachable for the controller; ``async with`` it.

        Takes numpy arrays, torch tensors, arrays of CuPy and Numba, buffers of
        cuda.core, DLPack, anything with the buffer protocol, ``(ptr, nbytes)`` and
        ``(ptr, nbytes, device)``: contiguous, on the host or a GPU. Where pinning needs
        a system call, ``await`` the result or enter it before use.

        GPU memory inside a live registration is registered without pinning anything.
        With ``cached``, the whole allocation around it stays registered afterwards
        (``gpu_cache_bytes`` of :func:`aiougds.open`), until it is freed, makes room for
        others, or ``controller.clear_registration_cache()``.

        Raises MemoryLayoutError for memory that is not contiguous or managed,
        WrongGPUError and MemoryFreedError for what a runtime knows otherwise, and
        CapabilityError where no runtime, or no way to its memory, is there. What a
        registration is: uGDS paper, 2.3.
        """
        return register(Registration, buf, self._ready(), cached=cached)

    def register_dmabuf(
        self,
        fd: int,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        require_peer: bool = False,
    ) -> Registration:
        """Make a dma-buf, such as GPU memory, reachable for the controller.

        Its bytes ``[offset, offset + nbytes)``; None: up to its end. ``fd`` may be
        closed afterwards. It is read and written by slices like other registered
        memory, but has no ``view``. With ``require_peer`` memory that turns out to lie
        in system memory is refused (MemoryLayoutError); else ``placement`` says so.
        CapabilityError where there is no way to it (on the embedded controller: what
        cannot be mapped into memory). Everything else is as of :meth:`register`.
        """
        return register_dmabuf(
            Registration, fd, offset, nbytes, self._ready(), require_peer=require_peer
        )

    def allocate(self, nbytes: int, *, device: GPUDevice | None = None) -> Registration:
        """Return ``nbytes`` of fresh, zeroed, page-aligned registered memory.

        With ``device`` it is memory of a GPU (``"cuda:0"``, ``"hip:1"``, a torch
        device, a number), of which nothing is zeroed. Others use it in place:
        ``torch.from_dlpack(reg)``, ``cupy.asarray(reg)``, ``reg.ptr``. It is freed once
        it is closed and nothing made of it is left. Raises GPUMemoryError where the GPU
        has no room, CapabilityError where no runtime is there.
        """
        return allocate(Registration, nbytes, self._ready(), device)
