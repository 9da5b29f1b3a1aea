"""Memory of other libraries, without importing them."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.facade import Facade
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    CapabilityError,
    MemoryFreedError,
    MemoryLayoutError,
    MemoryTypeError,
    OptionError,
    ReadOnlyError,
    _dlpack,
)


class Tensor:
    """What torch's tensors look like from outside."""

    def __init__(
        self,
        nbytes: int,
        *,
        device: str = "cpu",
        contiguous: bool = True,
        requires_grad: bool = False,
    ) -> None:
        self.memory = (ctypes.c_char * nbytes)()
        self.device = SimpleNamespace(type=device)
        self.requires_grad = requires_grad
        self.is_leaf = requires_grad
        self._contiguous = contiguous

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)

    def is_contiguous(self) -> bool:
        return self._contiguous

    def numel(self) -> int:
        return len(self.memory) // 2

    def element_size(self) -> int:
        return 2

    def untyped_storage(self) -> object:
        return self.memory

    @property
    def __array_interface__(self) -> dict[str, object]:
        raise RuntimeError("torch raises it for tensors that require grad")


class OnlyDLPack:
    """An array that speaks nothing but DLPack."""

    def __init__(self, inner: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.inner = inner
        self.device = device

    def __dlpack__(self, *, stream: int | None = None) -> object:
        assert (stream == -1) is (self.device[0] == 2)
        return self.inner.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def raw(memory: object) -> bytes:
    if isinstance(memory, Tensor):
        return bytes(memory.memory)
    if isinstance(memory, OnlyDLPack):
        return memory.inner.tobytes()
    return memoryview(memory).tobytes("A")  # type: ignore[arg-type]


MAKERS: dict[str, Callable[[], object]] = {
    "bytearray": lambda: bytearray(2 * PAGE),
    "memoryview": lambda: memoryview(bytearray(3 * PAGE))[PAGE:],
    "memoryview of doubles": lambda: memoryview(bytearray(2 * PAGE)).cast("d"),
    "memoryview of rows": lambda: memoryview(bytearray(2 * PAGE)).cast("B", (2, PAGE)),
    "array": lambda: array("q", bytes(2 * PAGE)),
    "mmap": lambda: mmap.mmap(-1, 2 * PAGE),
    "ctypes": lambda: (ctypes.c_uint32 * (2 * PAGE // 4))(),
    "numpy": lambda: np.zeros(2 * PAGE, np.uint8),
    "numpy float32 rows": lambda: np.zeros((2, PAGE // 4), np.float32),
    "numpy Fortran": lambda: np.zeros((2, PAGE // 8), np.float64, order="F"),
    "numpy of no dimension": lambda: np.zeros((), f"V{2 * PAGE}"),
    "tensor": lambda: Tensor(2 * PAGE),
    "DLPack": lambda: OnlyDLPack(np.zeros(2 * PAGE // 2, np.float16)),
    "DLPack rows": lambda: OnlyDLPack(np.zeros((4, PAGE // 2), np.int8)),
}


@pytest.mark.few
@pytest.mark.parametrize("kind", MAKERS)
async def test_kinds_of_memory(world: World, kind: str) -> None:
    """Read into, written from, registered or pinned just in time."""
    stored = pattern(2 * PAGE, 1)
    async with world.open(emu={"lba": 512, "size": MIB}) as ns:
        await ns.write(stored, offset=0)
        memory = MAKERS[kind]()
        assert await ns.read(memory, offset=0) == 2 * PAGE
        assert raw(memory) == stored
        async with ns.register(memory) as reg:
            assert reg.nbytes == 2 * PAGE
            await ns.write(reg, offset=4 * PAGE)
            assert await ns.read(reg[512:1024], offset=0, jit=False) == 512
            assert raw(memory)[512:1024] == stored[:512]
            assert ns.controller.statistics().mappings == 1 + len(
                ns.controller._device.pool
            )
        seen = bytearray(2 * PAGE)
        await ns.read(seen, offset=4 * PAGE)
        assert seen == stored
        if isinstance(memory, mmap.mmap):
            memory.close()


async def test_pointer_and_length(world: World) -> None:
    memory = np.zeros(3 * PAGE, np.uint8)
    pair = (memory.ctypes.data, 2 * PAGE)
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(2 * PAGE, 2), offset=0)
        assert await ns.read(pair, offset=0) == 2 * PAGE
        assert memory.tobytes() == pattern(2 * PAGE, 2) + bytes(PAGE)
        async with ns.register(pair) as reg:
            assert await ns.read(reg[PAGE:], offset=0) == PAGE
        for bad, kind in (
            ((1, 2, 3, 4), MemoryTypeError),
            ((1, 2, "tpu"), OptionError),
            ((1, 2, "cuda:x"), OptionError),
            ((1, 2, True), OptionError),
            (("a", 4), MemoryTypeError),
            ((1.0, 4), MemoryTypeError),
            ((True, 4096), MemoryTypeError),
            ((0, 4096), MemoryLayoutError),
            ((-4096, 4096), MemoryLayoutError),
            ((4096, -1), MemoryLayoutError),
            (((1 << 64) - 10, 4096), MemoryLayoutError),
        ):
            with nothing_sent(ns), pytest.raises(kind):
                await ns.read(bad, offset=0)


async def test_a_file_mapped_into_memory(world: World, tmp_path: Path) -> None:
    path = tmp_path / "target"
    path.write_bytes(bytes(4 * PAGE))
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(4 * PAGE, 3), offset=0)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            async with ns.register(memory) as reg:
                await ns.read(reg, offset=0)
            memory.flush()
        with path.open("rb") as file:
            readonly = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            with nothing_sent(ns), pytest.raises(ReadOnlyError):
                await ns.read(readonly, offset=0)
            assert await ns.write(readonly, offset=0) == 4 * PAGE
            readonly.close()
    assert path.read_bytes() == pattern(4 * PAGE, 3)


async def test_tensors_that_cannot_be_used(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        for tensor, words in (
            (Tensor(PAGE, device="xpu"), "lives on device 'xpu'.*CUDA and of HIP"),
            (Tensor(PAGE, device="meta"), "meta.*no memory"),
            (Tensor(PAGE, contiguous=False), r"not contiguous; use \.contiguous"),
        ):
            with nothing_sent(ns), pytest.raises(MemoryLayoutError, match=words):
                await ns.read(tensor, offset=0)
            with nothing_sent(ns), pytest.raises(MemoryLayoutError, match=words):
                ns.register(tensor)


async def test_a_tensor_that_requires_grad_is_a_source_only(world: World) -> None:
    tensor = Tensor(PAGE, requires_grad=True)
    ctypes.memmove(tensor.memory, pattern(PAGE, 4), PAGE)
    async with world.open(emu={"size": MIB}) as ns:
        assert await ns.write(tensor, offset=0) == PAGE
        with nothing_sent(ns), pytest.raises(ReadOnlyError, match=r"\.detach\(\)"):
            await ns.read(tensor, offset=0)
        async with ns.register(tensor) as reg:
            with nothing_sent(ns), pytest.raises(ReadOnlyError, match=r"detach|grad"):
                await ns.read(reg, offset=0)
            assert await ns.compare(reg, offset=0) == PAGE


# Without a runtime; or with one, which knows that it has no such memory.
NO_GPU_MEMORY = (CapabilityError, MemoryFreedError)
NO_GPU_WORDS = "pip install aiougds|driver|runtime"


async def test_gpu_arrays_that_no_runtime_knows(world: World) -> None:
    cupy = SimpleNamespace(
        __cuda_array_interface__={
            "data": (1 << 46, False),
            "shape": (PAGE,),
            "typestr": "|u1",
            "version": 3,
        }
    )
    async with world.open(emu={"size": MIB}) as ns:
        for obj in (
            cupy,
            Tensor(PAGE, device="cuda"),
            OnlyDLPack(np.zeros(PAGE, np.uint8), device=(2, 0)),
            (1 << 46, PAGE, "cuda:0"),
            (1 << 46, PAGE, "hip"),
            (1 << 46, PAGE, 0),
            (1 << 46, PAGE, SimpleNamespace(type="cuda", index=0)),
        ):
            with nothing_sent(ns), pytest.raises(NO_GPU_MEMORY, match=NO_GPU_WORDS):
                await ns.read(obj, offset=0)
            with nothing_sent(ns), pytest.raises(NO_GPU_MEMORY, match=NO_GPU_WORDS):
                ns.register(obj)
        for bad, kind, words in (
            ((1 << 46, PAGE, "cpu"), None, ""),
            (OnlyDLPack(np.zeros(8, np.uint8), (13, 0)), MemoryLayoutError, "managed"),
            (OnlyDLPack(np.zeros(8, np.uint8), (7, 0)), MemoryLayoutError, "device 7"),
        ):
            if kind is not None:
                with nothing_sent(ns), pytest.raises(kind, match=words):
                    await ns.read(bad, offset=0)


async def test_gpu_arrays_that_say_what_cannot_be(world: World) -> None:
    plain = {"data": (1 << 46, False), "shape": (4, 512), "typestr": "<f4"}
    async with world.open(emu={"size": MIB}) as ns:
        for change, words in (
            ({"strides": (4, 16)}, None),
            ({"strides": (4096, 4)}, "not contiguous"),
            ({"strides": (2048, 8)}, "not contiguous"),
            ({"mask": object()}, "mask"),
            ({"typestr": "f"}, "typestr"),
            ({"data": 4096}, "without data"),
        ):
            obj = SimpleNamespace(__cuda_array_interface__=plain | change)
            kinds = NO_GPU_MEMORY if words is None else MemoryLayoutError
            with nothing_sent(ns), pytest.raises(kinds, match=words):
                await ns.read(obj, offset=0)

        class Grad:
            @property
            def __cuda_array_interface__(self) -> object:
                raise RuntimeError("Use var.detach().__cuda_array_interface__")

        with nothing_sent(ns), pytest.raises(MemoryLayoutError, match=r"\.detach\(\)"):
            await ns.read(Grad(), offset=0)
        with nothing_sent(ns), pytest.raises(OptionError, match="cached=True"):
            ns.register(bytearray(8), cached=True)
        nothing = SimpleNamespace(
            __cuda_array_interface__={
                "data": (0, False),
                "shape": (0, 3),
                "typestr": "<f4",
            }
        )
        with nothing_sent(ns):
            assert await ns.read(nothing, offset=0) == 0
        with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="no bytes"):
            ns.register(nothing)


async def test_dlpack_that_cannot_be_used(world: World) -> None:
    strided = np.zeros((8, PAGE), np.uint8)[:, :512]
    async with world.open(emu={"size": MIB}) as ns:
        with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="not contiguous"):
            await ns.read(OnlyDLPack(strided), offset=0)
        with (
            nothing_sent(ns),
            pytest.raises(MemoryLayoutError, match="no DLPack tensor"),
        ):
            await ns.read(OnlyDLPack(np.array(["text"])), offset=0)


async def test_registered_memory_is_an_array(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(PAGE, 5), offset=0)
        async with ns.allocate(PAGE) as reg:
            await ns.read(reg, offset=0)
            seen = np.asarray(reg)
            assert seen.nbytes == PAGE
            assert seen.tobytes() == pattern(PAGE, 5)
            seen[0] ^= 1
            assert reg.view[0] == pattern(PAGE, 5)[0] ^ 1
            assert reg.ptr == seen.ctypes.data
            assert not hasattr(reg, "__cuda_array_interface__")


async def test_registered_memory_is_lent_as_dlpack(world: World) -> None:
    """Without a copy; it lives as long as what is made of it."""
    async with world.open(emu={"size": MIB}) as ns:
        await ns.write(pattern(PAGE, 6), offset=0)
        reg = ns.allocate(PAGE)
        await ns.read(reg, offset=0)
        lent = np.from_dlpack(reg.inner if isinstance(reg, Facade) else reg)
        assert len(_dlpack._lent) == 1
        await reg.aclose()
        del reg
        assert lent.tobytes() == pattern(PAGE, 6)
        del lent
        assert not _dlpack._lent
        async with ns.allocate(PAGE) as reg:
            capsule = reg.__dlpack__()
            assert len(_dlpack._lent) == 1
            del capsule  # never consumed
            assert not _dlpack._lent
            assert reg.__dlpack_device__() == (1, 0)
            with pytest.raises(BufferError, match="without a copy"):
                reg.__dlpack__(copy=True)
            with pytest.raises(BufferError, match="not on"):
                reg.__dlpack__(dl_device=(2, 0))
        async with ns.register(bytes(PAGE)) as reg:
            with pytest.raises(BufferError, match="read-only"):
                reg.__dlpack__()
