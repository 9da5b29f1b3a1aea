"""Registered memory as a dma-buf, for other devices and processes."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Final, Self

from aiougds._completion import current_home
from aiougds._device_memory import DeviceMemory
from aiougds._errors import CapabilityError, ClosedError
from aiougds._gpu_memory import GPUMemory

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from aiougds._buffer import Memory
    from aiougds._pinned import PinnedMemory


class Export:
    """A dma-buf of registered memory. Made by ``export_dmabuf()``; close it.

    The bytes are ``[offset, offset + nbytes)`` of it. Around them it may hold others:
    of a GPU the 64 KiB pages, or the whole allocation, so give it to nobody who must
    not see those. The descriptor is closed on exec; pass it on with ``SCM_RIGHTS`` or
    ``os.dup()``. While it is open, closing its registration is refused
    (RegistrationBusyError).
    """

    __slots__ = ("_fd", "_keep", "_reg", "nbytes", "offset")

    def __init__(self, reg: PinnedMemory, fd: int, offset: int) -> None:
        self.nbytes: Final = reg.nbytes
        """Bytes of the registration."""
        self.offset: Final = offset
        """Of the first one in the dma-buf."""
        self._fd = fd
        self._keep: Memory | None = reg.memory
        self._reg: PinnedMemory | None = reg
        reg._exports.append(fd)

    @property
    def fd(self) -> int:
        """The descriptor. ClosedError after :meth:`close`."""
        if self._reg is None:
            raise ClosedError("the export is closed; export the registration again")
        return self._fd

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.fd

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._reg is None

    def close(self) -> None:
        """Close the descriptor. What was made of it elsewhere stays. Again is fine."""
        reg, self._reg = self._reg, None
        self._keep = None
        if reg is not None:
            reg._exports.remove(self._fd)
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._reg is None else f"fd {self._fd}"
        return f"<Export of {self.nbytes} bytes from {self.offset} on, {state}>"

    def __del__(self) -> None:
        if getattr(self, "_reg", None) is not None:
            warnings.warn(
                f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self
            )
            self.close()


def export(reg: PinnedMemory) -> Export:
    """Export it. May block."""
    memory = reg.memory
    if not isinstance(memory, DeviceMemory):
        raise CapabilityError(
            "export_dmabuf: host memory is no dma-buf; share it by the file or memfd "
            "that it is mapped from"
        )
    fd, offset = memory.export()
    try:
        return Export(reg, fd, offset)
    except BaseException:  # closed by another thread meanwhile
        os.close(fd)
        raise


class Exporting:
    """What ``export_dmabuf`` returns: await it, or enter it with ``async with``."""

    __slots__ = ("_export", "_reg")

    def __init__(self, reg: PinnedMemory) -> None:
        self._reg = reg
        self._export: Export | None = None

    def __repr__(self) -> str:
        export = "not entered" if self._export is None else repr(self._export)
        return f"<Exporting {self._reg!r}, {export}>"

    async def _start(self) -> Export:
        reg = self._reg
        if isinstance(reg.memory, GPUMemory):
            return await current_home().off_loop(lambda: export(reg), Export.close)
        return export(reg)

    def __await__(self) -> Generator[object, None, Export]:
        return self._start().__await__()

    async def __aenter__(self) -> Export:
        self._export = await self._start()
        return self._export

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._export is not None:
            self._export.close()
