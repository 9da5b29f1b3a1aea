"""Memory of callers: where it is registered, its last bytes, its checksum."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from aiougds._errors import CapabilityError
from aiougds._ffi import ffi
from aiougds._index import registered as registrations
from aiougds._pinned import PinnedMemory, RegistrationSlice
from aiougds._transfer import locate
from aiougds.store._checksum import INLINE_BYTES, compute, seed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from typing_extensions import Buffer

    from aiougds._device import Device
    from aiougds._home import Home
    from aiougds._namespace import Namespace
    from aiougds._registration import Registration
    from aiougds.store._checksum import Compute


def registered(
    device: Device, buf: object, op: int
) -> PinnedMemory | RegistrationSlice | None:
    """Return the registered memory that the object is, or lies in; else None."""
    if isinstance(buf, (RegistrationSlice, PinnedMemory)):
        return buf
    place = locate(device, buf, op)
    if isinstance(place.keep, PinnedMemory):
        return RegistrationSlice(place.keep, place.buf_off, place.nbytes)
    return None


@asynccontextmanager
async def for_a_call(ns: Namespace, buf: object) -> AsyncGenerator[Registration]:
    """Register memory for one operation.

    What the device may still touch afterwards stays mapped until it is done, and the
    operation's own failure is what is raised.
    """
    # typed: register refuses what it cannot take
    reg = ns.register(buf)  # type: ignore[arg-type]
    if reg.memory.found_by_address:
        # It goes when this call ends: nobody else is to find and use it.
        registrations.remove(reg.memory.ptr, reg.nbytes, reg._serial)
    await reg
    try:
        yield reg
    finally:
        await reg.abandon_off_loop()


def is_aligned(memory: PinnedMemory | RegistrationSlice) -> bool:
    """Whether a device can reach it without a copy (PRP entries, 4 bytes)."""
    return not (memory._reg.memory.ptr + memory._start) & 3


async def copy_out(
    home: Home, source: PinnedMemory | RegistrationSlice, start: int, into: memoryview
) -> None:
    """Copy bytes of a caller's memory into ours."""
    memory, nbytes = source._reg.memory, len(into)
    start += source._start
    target = ffi.from_buffer(into)
    if memory.host:
        ffi.memmove(target, ffi.cast("char *", memory.ptr + start), nbytes)
    else:
        pointer = ffi.cast("char *", target)
        await home.off_loop(lambda: memory.copy_out(pointer, start, nbytes))


async def copy_in(
    home: Home, target: PinnedMemory | RegistrationSlice, start: int, source: memoryview
) -> None:
    """Copy bytes of ours into a caller's memory."""
    memory, nbytes = target._reg.memory, len(source)
    start += target._start
    if memory.host:
        ffi.memmove(ffi.cast("char *", memory.ptr + start), source, nbytes)
    else:
        pointer = ffi.cast("char *", ffi.from_buffer(source))
        await home.off_loop(lambda: memory.copy_in(start, pointer, nbytes))


class Summed(NamedTuple):
    """A chunk in a caller's memory, whose checksum is wanted."""

    kind: int
    key: bytes
    gen: int
    memory: PinnedMemory | RegistrationSlice
    nbytes: int


def check_summable(memory: PinnedMemory | RegistrationSlice) -> None:
    """Raise CapabilityError for memory that the processor does not read."""
    if not memory._reg.memory.host:
        raise CapabilityError(
            "memory of a GPU has no checksum: the host would have to copy it; open "
            "the store with checksum=None, or put from host memory"
        )


async def checksums(home: Home, chunks: list[Summed]) -> list[int]:
    """Return their checksums; of many bytes, in a thread."""
    todo: list[tuple[Compute, int, Buffer]] = []
    for kind, key, gen, memory, nbytes in chunks:
        check_summable(memory)
        address = memory._reg.memory.ptr + memory._start
        data = ffi.buffer(ffi.cast("char *", address), nbytes)
        todo.append((compute(kind), seed(key, gen), data))

    def work() -> list[int]:
        return [function(data, first) for function, first, data in todo]

    if sum(chunk.nbytes for chunk in chunks) <= INLINE_BYTES:
        return work()
    return await home.off_loop(work)
