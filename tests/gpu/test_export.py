"""Registered memory as a dma-buf, and dma-bufs of the GPU as registered memory."""

from __future__ import annotations

import mmap
import os

import pytest
from gpu.objects import Tensor
from gpu.rig import GPU
from helpers.facade import Facade
from helpers.model import PAGE, pattern
from helpers.world import MIB, World

from aiougds import (
    CapabilityError,
    ClosedError,
    GPUError,
    MemoryFreedError,
    RegistrationBusyError,
)

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}


@pytest.mark.software
async def test_an_export_is_the_memory(world: World, gpu: GPU) -> None:
    """At its offset; it keeps the registration busy, and closes with exec."""
    ptr = gpu.alloc(256 << 10)
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 1), offset=0)
        reg = ns.register(Tensor(ptr + 66_000, PAGE))
        async with reg.export_dmabuf() as export:
            assert export.nbytes == PAGE
            assert export.offset == 66_000 % 65536
            assert not os.get_inheritable(export.fd)
            assert export.fileno() == export.fd
            await ns.read(reg, offset=0)
            size = os.lseek(export.fd, 0, os.SEEK_END)
            assert size % mmap.PAGESIZE == 0
            with pytest.raises(RegistrationBusyError, match="1 dma-bufs"):
                await reg.aclose()
            with pytest.raises(RegistrationBusyError):
                await reg.aclose(timeout_s=0)
            assert not reg.closed
            async with ns.register_dmabuf(
                export.fd, export.offset, export.nbytes
            ) as same:
                gpu.put(ptr + 66_000, pattern(PAGE, 2))
                await ns.write(same, offset=PAGE)
                await ns.read(same[512:], offset=0)
        expected = pattern(PAGE, 2)[:512] + pattern(PAGE, 1)[: PAGE - 512]
        assert gpu.get(ptr + 66_000, PAGE) == expected
        async with ns.allocate(PAGE) as host:
            await ns.read(host, offset=PAGE)
            assert bytes(host.view) == pattern(PAGE, 2)
        with pytest.raises(ClosedError):
            _ = export.fd
        export.close()
        await reg.aclose()


async def test_leaving_with_an_open_export(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        exports = []
        reg = ns.register(Tensor(ptr, PAGE))

        async def left_open() -> None:
            async with reg:
                opened = reg.export_dmabuf()
                exports.append(opened if isinstance(opened, Facade) else await opened)

        with pytest.raises(RegistrationBusyError, match="export_dmabuf"):
            await left_open()
        assert reg.closed
        assert ns.controller.statistics().mappings == 0
        os.fstat(exports[0].fd)
        exports[0].close()
        exports[0].close()


@pytest.mark.software
async def test_what_cannot_be_exported(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(PAGE)
    exporter = {
        "cuda": "cuMemGetHandleForAddressRange",
        "hip": "hipMemGetHandleForAddressRange",
    }[gpu.name]
    async with world.open(emu=SMALL) as ns:
        async with ns.allocate(PAGE) as host:
            with pytest.raises(CapabilityError, match="host memory"):
                async with host.export_dmabuf():
                    pass
        async with ns.register((ptr, PAGE, gpu.name)) as reg:
            gpu.soft.fail(exporter, 801, count=0)
            with pytest.raises(GPUError, match="cannot be exported") as caught:
                async with reg.export_dmabuf():
                    pass
            assert (caught.value.runtime, caught.value.code) == (gpu.name, 801)
            assert "NOT_SUPPORTED" in caught.value.name.upper().replace(
                "NOTSUPPORTED", "NOT_SUPPORTED"
            )
            gpu.soft.fail(exporter, 0, count=0)
            gpu.free(ptr)
            with pytest.raises(MemoryFreedError):
                async with reg.export_dmabuf():
                    pass


@pytest.mark.software
async def test_a_whole_allocation_where_pages_are_refused(
    world: World, gpu: GPU
) -> None:
    """As for tensors at the end of an allocation of no whole pages."""
    ptr = gpu.alloc(3 * PAGE + 100)
    async with world.open(emu=SMALL) as ns:
        reg = ns.register(Tensor(ptr + 512, PAGE))
        async with reg.export_dmabuf() as export:
            assert export.offset == 512
            with mmap.mmap(export.fd, 2 * PAGE) as view:
                view[512] = 7
        await reg.aclose()
        assert gpu.get(ptr + 512, 2) == b"\x07\xee"


@pytest.mark.gpu
async def test_an_export_of_a_card(world: World, gpu: GPU) -> None:
    """It cannot be mapped by a processor, so this controller cannot reach it."""
    ptr = gpu.alloc(3 * 65536)
    async with world.open(emu=SMALL) as ns:
        reg = ns.register(Tensor(ptr + 66_000, PAGE))
        async with reg.export_dmabuf() as export:
            assert (export.offset % 65536, export.nbytes) == (66_000 % 65536, PAGE)
            assert os.lseek(export.fd, 0, os.SEEK_END) % 65536 == 0
            assert not os.get_inheritable(export.fd)
            assert os.readlink(f"/proc/self/fd/{export.fd}").startswith("/dmabuf:")
            with pytest.raises(RegistrationBusyError, match="1 dma-bufs"):
                await reg.aclose(timeout_s=0)
            with pytest.raises(CapabilityError, match="of a dma-buf"):
                async with ns.register_dmabuf(export.fd, export.offset, PAGE):
                    pass
        await reg.aclose()
