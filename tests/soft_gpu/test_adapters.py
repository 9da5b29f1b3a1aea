"""The C adapters of both vendors, loaded as a program loads them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from aiougds._ffi import ffi, lib
from aiougds._gpu import runtime
from soft_gpu.control import Missing, SoftGPU

if TYPE_CHECKING:
    from aiougds._ffi import CData

pytestmark = pytest.mark.soft_gpu

PAGE = 64 << 10


class Adapter:
    """The calls of ``ugds_gpu.h`` for one vendor."""

    def __init__(self, gpu: SoftGPU) -> None:
        self.gpu = gpu
        self.vendor = runtime.load("cuda" if gpu.vendor == "cuda" else "hip")
        self.code = ffi.new("int *")

    def allocate(self, nbytes: int, device: int = 0) -> CData:
        found = ffi.new("struct ugds_gpu_pointer *")
        rc = lib.ugds_gpu_alloc(self.vendor, device, nbytes, found, self.code)
        assert rc == 0, self.error()
        return found

    def error(self) -> str:
        name = lib.ugds_gpu_error_name(self.vendor, self.code[0])
        return ffi.string(name).decode()

    def free(self, memory: CData) -> None:
        assert lib.ugds_gpu_free(memory, self.code) == 0, self.error()

    def pointer(self, address: int) -> CData:
        found = ffi.new("struct ugds_gpu_pointer *")
        rc = lib.ugds_gpu_pointer(self.vendor, address, found, self.code)
        assert rc == 0, self.error()
        return found

    def bytes_of(self, buffer: bytearray) -> CData:
        return ffi.from_buffer(buffer)

    def stream_place(self, stream: int) -> tuple[int, int]:
        device, ctx = ffi.new("int32_t *"), ffi.new("uint64_t *")
        rc = lib.ugds_gpu_stream_place(self.vendor, stream, device, ctx, self.code)
        assert rc == 0, self.error()
        return device[0], ctx[0]

    def default_stream_refused(self) -> int:
        device, ctx = ffi.new("int32_t *"), ffi.new("uint64_t *")
        rc = lib.ugds_gpu_stream_place(self.vendor, 0, device, ctx, self.code)
        assert rc < 0
        return int(self.code[0])

    def capabilities(self, device: int = 0) -> int:
        bits = ffi.new("uint32_t *")
        assert lib.ugds_gpu_caps(self.vendor, device, bits, self.code) == 0
        return bits[0]


@pytest.fixture
def adapter(soft_gpu: SoftGPU) -> Iterator[Adapter]:
    return Adapter(soft_gpu)


def test_what_lies_at_an_address(adapter: Adapter) -> None:
    memory = adapter.allocate(3 * PAGE + 100)
    inside = adapter.pointer(memory.base + PAGE)
    assert (inside.base, inside.nbytes) == (memory.base, 3 * PAGE + 100)
    assert inside.kind == lib.UGDS_GPU_MEM_DEVICE
    assert (inside.vendor, inside.device) == (adapter.vendor, 0)
    assert inside.buffer_id == memory.buffer_id != 0
    host = ffi.new("char[]", 100)
    plain = adapter.pointer(int(ffi.cast("uintptr_t", host)))
    assert plain.kind == lib.UGDS_GPU_MEM_NONE
    adapter.free(memory)
    again = adapter.allocate(3 * PAGE + 100)
    assert again.base == memory.base
    assert again.buffer_id != memory.buffer_id
    adapter.free(again)


def test_memory_of_another_device_keeps_the_current_one(adapter: Adapter) -> None:
    memory = adapter.allocate(4096, device=1)
    assert adapter.pointer(memory.base).device == 1
    data, back = os.urandom(4096), bytearray(4096)
    code = adapter.code
    assert lib.ugds_gpu_copy_in(memory, memory.base, data, 4096, code) == 0
    assert adapter.gpu.peek(memory.base, 4096) == data
    assert (
        lib.ugds_gpu_copy_out(memory, ffi.from_buffer(back), memory.base, 4096, code)
        == 0
    )
    assert bytes(back) == data
    adapter.free(memory)
    # No context on the device that nobody asked for.
    assert adapter.gpu.contexts(1) == 1
    if adapter.gpu.vendor == "cuda":
        assert adapter.gpu.contexts(0) == 0


def test_a_whole_allocation_is_exported(adapter: Adapter) -> None:
    memory = adapter.allocate(2 << 20)
    fd = ffi.new("int *")
    code = adapter.code
    rc = lib.ugds_gpu_export(memory, memory.base, 1000, 0, fd, code)
    assert (rc, code[0]) == (-22, 1)
    assert lib.ugds_gpu_export(memory, memory.base, 2 << 20, 0, fd, code) == 0
    adapter.gpu.poke(memory.base, b"shared")
    with mmap.mmap(fd[0], 2 << 20) as view:
        assert view[:6] == b"shared"
    assert not os.get_inheritable(fd[0])
    os.close(fd[0])
    adapter.free(memory)


def test_capabilities_are_those_of_the_device(adapter: Adapter) -> None:
    assert adapter.capabilities() & lib.UGDS_GPU_CAN_MEMOPS
    assert adapter.capabilities() & lib.UGDS_GPU_CAN_DMABUF
    assert not adapter.capabilities() & lib.UGDS_GPU_NEEDS_FLUSH
    adapter.gpu.missing(Missing.MEMOPS | Missing.DMABUF | Missing.ORDERED_WRITES)
    assert not adapter.capabilities() & lib.UGDS_GPU_CAN_MEMOPS
    assert not adapter.capabilities() & lib.UGDS_GPU_CAN_DMABUF
    assert adapter.capabilities() & lib.UGDS_GPU_NEEDS_FLUSH


def test_no_room_is_enomem(adapter: Adapter) -> None:
    adapter.gpu.memory(4096)
    found = ffi.new("struct ugds_gpu_pointer *")
    rc = lib.ugds_gpu_alloc(adapter.vendor, 0, 1 << 20, found, adapter.code)
    assert (rc, adapter.code[0]) == (-12, 2)
    names = {"cuda": "CUDA_ERROR_OUT_OF_MEMORY", "hip": "hipErrorOutOfMemory"}
    assert adapter.error() == names[adapter.gpu.vendor]


def test_a_lost_device_is_told_apart(adapter: Adapter) -> None:
    memory = adapter.allocate(4096)
    adapter.gpu.lose(0, 719)
    back = ffi.new("char[]", 16)
    rc = lib.ugds_gpu_copy_out(memory, back, memory.base, 16, adapter.code)
    assert (rc, adapter.code[0]) == (-5, 719)
    assert lib.ugds_gpu_error_sticky(adapter.vendor, 719)
    assert not lib.ugds_gpu_error_sticky(adapter.vendor, 2)


def test_what_fails_leaves_no_last_error(soft_hip: SoftGPU) -> None:
    """A framework looks at it after its own launch, and would take it for its own."""
    adapter = Adapter(soft_hip)
    host = ffi.new("char[]", 100)
    adapter.pointer(int(ffi.cast("uintptr_t", host)))
    assert soft_hip.calls("hipPointerGetAttributes") == 1
    assert soft_hip.dll.hipPeekAtLastError() == 0
