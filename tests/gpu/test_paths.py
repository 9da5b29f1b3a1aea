"""By address, or by a dma-buf: what a transport is asked to map."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest
from gpu.objects import Tensor
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World

from aiougds import GPUError, ReadOnlyError, _device_memory
from aiougds._ffi import ffi, lib

if TYPE_CHECKING:
    from aiougds._ffi import CData

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}


class Asked(NamedTuple):
    kind: int
    addr: int
    offset: int
    nbytes: int
    flags: int


class Transport:
    """One that knows dma-bufs only; memory of a file stands for the bus."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.views: list[mmap.mmap] = []

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)

    def ugds_map_foreign(self, ctrl: CData, native: CData, ret_handle: CData) -> int:
        self.asked.append(
            Asked(native.kind, native.addr, native.offset, native.nbytes, native.flags)
        )
        if native.kind != lib.UGDS_FOREIGN_DMABUF:
            return -errno.EOPNOTSUPP
        view = mmap.mmap(native.fd, os.lseek(native.fd, 0, os.SEEK_END))
        self.views.append(view)
        readonly = native.flags & lib.UGDS_FOREIGN_READONLY
        flags = lib.UGDS_MEM_READONLY if readonly else 0
        memory = ffi.from_buffer(view) + native.offset
        return lib.ugds_map(ctrl, memory, native.nbytes, flags, ret_handle)


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    made = Transport()
    monkeypatch.setattr(_device_memory, "lib", made)
    yield made
    made.views.clear()


@pytest.mark.software
async def test_a_dmabuf_where_there_is_no_other_way(
    world: World, gpu: GPU, transport: Transport
) -> None:
    """Of the pages around it; the descriptor is ours, and closed."""
    ptr = gpu.alloc(256 << 10)
    kind = {"cuda": lib.UGDS_FOREIGN_CUDA, "hip": lib.UGDS_FOREIGN_HIP}[gpu.name]
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 1), offset=0)
        async with ns.register(Tensor(ptr + 66_048, PAGE)) as reg:
            assert transport.asked == [
                Asked(kind, ptr + 66_048, 0, PAGE, 0),
                Asked(lib.UGDS_FOREIGN_DMABUF, 0, 512, PAGE, 0),
            ]
            await ns.read(reg, offset=0)
            assert gpu.get(ptr + 66_048, PAGE) == pattern(PAGE, 1)
            assert gpu.get(ptr + 65_536, 512) == b"\xee" * 512
            inside = ns.register(Tensor(ptr + 67_072, 512))
            assert len(transport.asked) == 2, "inside a live registration"
            await inside.aclose()
        before = len(os.listdir("/proc/self/fd"))
        views = len(transport.views)  # which hold a duplicate each
        for _ in range(3):
            await ns.read(Tensor(ptr + 66_048, PAGE), offset=0)
        assert len(transport.asked) == 8
        assert len(os.listdir("/proc/self/fd")) - before == (
            len(transport.views) - views
        )
        grad = Tensor(ptr + 66_048, PAGE, requires_grad=True)
        async with ns.register(grad) as reg:
            assert transport.asked[-1].flags == lib.UGDS_FOREIGN_READONLY
            with pytest.raises(ReadOnlyError):
                await ns.read(reg, offset=0)
            await ns.write(reg, offset=0)


@pytest.mark.software
async def test_no_way_at_all(world: World, gpu: GPU, transport: Transport) -> None:
    ptr = gpu.alloc(64 << 10)
    export = {
        "cuda": "cuMemGetHandleForAddressRange",
        "hip": "hipMemGetHandleForAddressRange",
    }
    gpu.soft.fail(export[gpu.name], 801, count=0)
    async with world.open(emu=SMALL) as ns:
        with pytest.raises(GPUError, match="does not offer it") as caught:
            ns.register(Tensor(ptr, PAGE))
        assert caught.value.errno == errno.EOPNOTSUPP
        assert ns.controller.statistics().mappings == 0


class Watched:
    """The native library, and who maps."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)

    def ugds_map_foreign(self, ctrl: CData, native: CData, ret_handle: CData) -> int:
        self.threads.append(threading.get_ident())
        return lib.ugds_map_foreign(ctrl, native, ret_handle)


@pytest.mark.two_gpus
async def test_the_first_of_a_gpu_is_mapped_off_the_loop(
    world: World, gpu: GPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging may have to be made; from then on it takes no thread."""
    watched = Watched()
    monkeypatch.setattr(_device_memory, "lib", watched)
    ptr, other = gpu.alloc(PAGE), gpu.alloc(PAGE, device=1)
    async with world.open(emu=SMALL) as ns:
        for target in (ptr, ptr, other, other, ptr):
            await ns.read(Tensor(target, PAGE, device=None), offset=0)
    here = threading.get_ident()
    seen = [thread == here for thread in watched.threads]
    alone = world.loop == "blocking"  # a thread that may block
    assert seen == [alone, True, alone, True, True]
