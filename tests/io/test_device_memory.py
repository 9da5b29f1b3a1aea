"""Memory that the host cannot address: what is refused, where there is no way to it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    CapabilityError,
    DeviceRemovedError,
    MemoryLayoutError,
    MemoryLimitError,
    MemoryRevokedError,
    Namespace,
    OperationTimeoutError,
    RangeError,
    UGDSError,
    lowlevel,
)
from aiougds._buffer import Memory
from aiougds._device_memory import dmabuf_memory
from aiougds._unmappable import map_error


@pytest.fixture
def file() -> Iterator[int]:
    """A descriptor with a size, as a dma-buf has."""
    fd = os.memfd_create("memory")
    os.ftruncate(fd, MIB)
    yield fd
    os.close(fd)


@pytest.mark.few
async def test_the_embedded_controller_has_no_way_to_it(
    world: World, file: int
) -> None:
    async with world.open() as ns:
        with nothing_sent(ns):
            with pytest.raises(CapabilityError, match="4096 bytes from byte 8192 on"):
                ns.register_dmabuf(file, 8192, 4096)
            with pytest.raises(CapabilityError, match="aiougds check"):
                ns.register_dmabuf(file, require_peer=True)
            if isinstance(ns, Namespace):
                with pytest.raises(CapabilityError, match="at 0x7f0000010000"):
                    lowlevel.register_cuda(ns, 0x7F0000010000, 65536)
        assert ns.controller.statistics().mappings == 0


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
