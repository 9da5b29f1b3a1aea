"""Memory that the host cannot address: what is refused, where there is no way to it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    CapabilityError,
    ClosedError,
    DeviceRemovedError,
    MemoryLayoutError,
    MemoryLimitError,
    MemoryRevokedError,
    Namespace,
    OperationTimeoutError,
    RangeError,
    UGDSError,
    _device_memory,
    lowlevel,
)
from aiougds._buffer import Memory
from aiougds._device_memory import dmabuf_memory
from aiougds._ffi import ffi, lib
from aiougds._unmappable import map_error

if TYPE_CHECKING:
    from aiougds._ffi import CData


@pytest.fixture
def file() -> Iterator[int]:
    """A descriptor with a size, as a dma-buf has."""
    fd = os.memfd_create("memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, MIB)
    yield fd
    os.close(fd)


@pytest.fixture
def sealed(file: int) -> int:
    """The same, of memory that nobody can take away from under a mapping."""
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return file


@pytest.mark.few
async def test_what_the_embedded_controller_has_no_way_to(
    world: World, file: int, tmp_path: Path
) -> None:
    async with world.open() as ns:
        with nothing_sent(ns):
            with pytest.raises(MemoryLayoutError, match="4096 bytes from byte 8192 on"):
                ns.register_dmabuf(file, 8192, 4096)
            with pytest.raises(MemoryLayoutError, match="F_SEAL_SHRINK"):
                ns.register_dmabuf(file)  # it could be cut short: that would end us
            plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
            os.ftruncate(plain, MIB)
            with pytest.raises(MemoryLayoutError, match="no dma-buf"):
                ns.register_dmabuf(plain)
            os.close(plain)
            if isinstance(ns, Namespace):
                # Without a runtime; or with one, which knows no such memory.
                kinds = (CapabilityError, MemoryLayoutError)
                with pytest.raises(kinds, match="at 0x7f0000010000"):
                    lowlevel.register_cuda(ns, 0x7F0000010000, 65536)
        assert ns.controller.statistics().mappings == 0


@pytest.mark.few
@pytest.mark.parametrize("offset", [0, 4, 8192 + 512, 4096 + 4092])
async def test_what_can_be_mapped_is_memory(
    world: World, sealed: int, offset: int
) -> None:
    """A memory file stands for a dma-buf: it is read and written where it lies."""
    nbytes = 5 * 4096
    content = os.urandom(nbytes)
    async with world.open() as ns:
        async with ns.allocate(4096) as warm:
            await ns.read(warm, offset=0)
        before = descriptors()
        with pytest.raises(MemoryLayoutError, match="require_peer=True"):
            ns.register_dmabuf(sealed, require_peer=True)
        os.pwrite(sealed, b"\xee" * MIB, 0)
        os.pwrite(sealed, content, offset)
        async with ns.register_dmabuf(sealed, offset, nbytes) as reg:
            assert reg.placement == "system"
            assert await ns.write(reg, offset=0) == nbytes
            os.pwrite(sealed, bytes(nbytes), offset)
            assert await ns.read(reg[4096:], offset=4096) == nbytes - 4096
        assert descriptors() == before
    there = os.pread(sealed, MIB, 0)
    assert there[offset : offset + nbytes] == bytes(4096) + content[4096:]
    assert set(there[:offset] + there[offset + nbytes :]) <= {0xEE}


@pytest.mark.few
async def test_ranges_and_descriptors(world: World, file: int) -> None:
    async with world.open() as ns:
        for args, error, words in (
            ((file, MIB, None), RangeError, "dma-buf of 1048576 bytes"),
            ((file, 0, MIB + 1), RangeError, "1048577 bytes from byte 0 on"),
            ((file, 0, 0), RangeError, "0 bytes"),
            ((file, -1, 1), RangeError, "offset=-1"),
            ((file, "0", 1), ArgumentTypeError, "offset='0'"),
            ((1 << 20, 0, 1), MemoryLayoutError, "no open descriptor"),
            (("file", 0, 1), ArgumentTypeError, "fd='file'"),
        ):
            with pytest.raises(error, match=words):
                ns.register_dmabuf(*args)
        read, write = os.pipe()
        with pytest.raises(MemoryLayoutError, match="no dma-buf"):
            ns.register_dmabuf(read, 0, 1)
        os.close(read)
        os.close(write)


def test_the_descriptor_may_be_closed(file: int) -> None:
    before = set(os.listdir("/proc/self/fd"))
    memory = dmabuf_memory(file, 0, None, require_peer=False)
    assert memory.nbytes == MIB
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    del memory
    assert set(os.listdir("/proc/self/fd")) == before


class Exporter:
    """The native library, with a way to dma-bufs: memory of ours stands for them."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, MIB)
        self.mapped: list[int] = []  # descriptors, all open at the time
        self.code = 0

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)

    def ugds_map_foreign(self, ctrl: object, native: CData, ret_handle: object) -> int:
        assert os.fstat(native.fd).st_size == MIB
        self.mapped.append(native.fd)
        if self.code:
            return self.code
        native.ret_traits = lib.UGDS_TRAIT_REVOCABLE
        memory = ffi.from_buffer(self.memory)
        return lib.ugds_map(ctrl, memory, native.nbytes, 0, ret_handle)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    made = Exporter()
    monkeypatch.setattr(_device_memory, "lib", made)
    return made


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.few
async def test_descriptors_end_with_the_registration(
    world: World, file: int, exporter: Exporter
) -> None:
    """Not with its last reference: it is mapped without, and may be mapped again."""
    async with world.open() as ns, world.open() as other:
        async with ns.allocate(4096) as warm:
            await warm.map(other)
            await ns.read(warm, offset=0)
            await other.read(warm, offset=0)
        before = descriptors()
        async with ns.register_dmabuf(file) as reg:
            assert len(descriptors() - before) == 1
            await reg.map(other)
            assert exporter.mapped[1:] == exporter.mapped[:1]
            assert reg.revocable
            exporter.memory[4096:8192] = b"x" * 4096
            assert await other.read(reg[4096:8192], offset=0) == 4096
            assert exporter.memory[4096:8192] == bytes(4096)
            held = reg.memory
        assert descriptors() == before
        assert held.nbytes == MIB
        with pytest.raises(ClosedError):
            await reg.map(other)


@pytest.mark.few
async def test_descriptors_of_what_is_refused_are_closed(
    world: World, file: int, exporter: Exporter
) -> None:
    async with world.open() as ns:
        before = descriptors()
        exporter.code = -errno.EBUSY
        with pytest.raises(MemoryLayoutError) as refused:  # it holds the frames
            ns.register_dmabuf(file)
        with pytest.raises(RangeError) as outside:
            ns.register_dmabuf(file, MIB)
        assert descriptors() == before
        del refused, outside


def test_a_descriptor_that_is_in_use_is_closed_behind_that(file: int) -> None:
    before = descriptors()
    memory = dmabuf_memory(file, 0, None, require_peer=False)
    assert isinstance(memory.owner, _device_memory.Descriptor)
    with memory.owner as number:
        memory.let_go()
        assert os.fstat(number).st_size == MIB
        with pytest.raises(ClosedError), memory.owner:
            pass
    assert descriptors() == before


def test_why_memory_cannot_be_mapped(file: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    spoken = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    host = Memory(0x10000, 4096, None)
    buf = dmabuf_memory(file, 0, None, require_peer=True)
    known: list[tuple[Memory, int, type[UGDSError], str]] = [
        (host, errno.ENOMEM, MemoryLimitError, f"is {spoken}.*ulimit -l"),
        (host, errno.ENOSPC, MemoryLimitError, "as many mappings"),
        (host, errno.E2BIG, MemoryLimitError, "register it in parts"),
        (host, errno.EFAULT, MemoryLayoutError, "4096 bytes at 0x10000 cannot"),
        (host, errno.EEXIST, MemoryLayoutError, "in another manner"),
        (host, errno.ENODEV, DeviceRemovedError, "removed or unbound"),
        (host, errno.EIO, MemoryRevokedError, "await controller.reset"),
        (buf, errno.EXDEV, MemoryLayoutError, "require_peer=True was given"),
        (buf, errno.ETIMEDOUT, OperationTimeoutError, "fence of the dma-buf"),
        (buf, errno.EOPNOTSUPP, CapabilityError, "of a dma-buf cannot"),
        (host, errno.EDOM, UGDSError, os.strerror(errno.EDOM)),
    ]
    for memory, number, kind, words in known:
        error = map_error("/dev/ugds_drv0", memory, -number)
        with pytest.raises(kind, match=words) as caught:
            raise error
        assert caught.value.errno == number


async def test_it_is_not_bounced(world: World, file: int) -> None:
    """A registration as it would be on a transport that has a way to it."""
    if world.loop == "blocking":
        return
    async with world.open(emu={"lba": 512}) as ns, ns.allocate(4096) as reg:
        reg._memory, host = dmabuf_memory(file, 0, 4096, require_peer=False), reg.memory
        try:
            for look in ("view", "__array_interface__"):
                with pytest.raises(MemoryLayoutError, match="cannot be addressed"):
                    getattr(reg, look)
            assert "of a device" in repr(reg)
            assert reg.placement == "device"
            with nothing_sent(ns):
                for where, offset in ((reg[2:514], 0), (reg[0:512], 1)):
                    with pytest.raises(AlignmentError, match="is not bounced"):
                        await ns.read(where, offset=offset, edges="bounce")
        finally:
            reg._memory = host
