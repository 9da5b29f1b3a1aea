"""Memory of a GPU as target and source of every transfer."""

from __future__ import annotations

import gc
import threading
from array import array

import pytest
from gpu.objects import MAKERS, CudaArray, DLPackArray, Tensor
from gpu.rig import GPU
from gpu.vendors import PAGE_64K, Cuda
from helpers.model import PAGE, pattern
from helpers.world import MIB, World, nothing_sent

from aiougds import (
    AlignmentError,
    GPUError,
    MemoryFreedError,
    MemoryLayoutError,
    RangeError,
    ReadOnlyError,
    WrongGPUError,
)

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}


@pytest.mark.parametrize("kind", MAKERS)
async def test_kinds_of_objects(world: World, gpu: GPU, kind: str) -> None:
    """Read into, written from, registered or pinned just in time; nothing around."""
    stored = pattern(2 * PAGE, 1)
    ptr = gpu.alloc(4 * PAGE)
    obj = gpu.made(kind, ptr + PAGE, 2 * PAGE)
    async with world.open(emu=SMALL) as ns:
        if kind == "bare pointer":  # runtimes in use are asked about those
            async with ns.register((ptr, PAGE, gpu.name)):
                pass
        await ns.write(stored, offset=0)
        assert await ns.read(obj, offset=0) == 2 * PAGE
        expected = b"\xee" * PAGE + stored + b"\xee" * PAGE
        assert gpu.get(ptr, 4 * PAGE) == expected
        assert ns.controller.statistics().jit_pins == 2
        gpu.put(ptr + PAGE, pattern(2 * PAGE, 2))
        async with ns.register(obj) as reg:
            assert reg.nbytes == 2 * PAGE
            assert reg.ptr == ptr + PAGE
            assert (reg.placement, reg.staged) == ("device", True)
            await ns.write(reg, offset=4 * PAGE)
            assert await ns.read(reg[512:1024], offset=0, jit=False) == 512
            assert await ns.compare(reg[1024:], offset=4 * PAGE + 1024)
        seen = bytearray(2 * PAGE)
        await ns.read(seen, offset=4 * PAGE)
        assert seen == pattern(2 * PAGE, 2)
        expected = pattern(2 * PAGE, 2)
        expected = expected[:512] + stored[:512] + expected[1024:]
        assert gpu.get(ptr + PAGE, 2 * PAGE) == expected
        assert ns.controller.capabilities.gpu_memory == "staged"


async def test_neighbours_in_one_page(world: World, gpu: GPU) -> None:
    """Each has its own bounds, to the byte; none is another's."""
    ptr = gpu.alloc(64 << 10)
    lengths = (512, 1000, 4, 4096, 516)
    starts = [512 * 7 * (i + 1) + 4 * i for i in range(len(lengths))]
    async with world.open(emu={"size": MIB, "lba": 512}) as ns:
        await ns.write(pattern(64 << 10, 3), offset=0)
        regs = [
            ns.register((ptr + start, length, gpu.name))
            for start, length in zip(starts, lengths, strict=True)
        ]
        expected = bytearray(b"\xee" * (64 << 10))
        for i, (reg, start) in enumerate(zip(regs, starts, strict=True)):
            whole = lengths[i] // 512 * 512
            with nothing_sent(ns), pytest.raises(RangeError):
                await ns.read(reg, offset=0, nbytes=whole + 512)
            if whole:
                await ns.read(reg[:whole], offset=512 * i)
                expected[start : start + whole] = pattern(64 << 10, 3)[
                    512 * i : 512 * i + whole
                ]
        assert gpu.get(ptr, 64 << 10) == expected
        for reg in regs:
            await reg.aclose()


async def test_odd_places_and_edges_are_copied(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(MIB)
    stored = pattern(512 << 10, 4)
    async with world.open(emu=SMALL) as ns:
        await ns.write(stored, offset=0)
        for at, nbytes, place in (
            (1, 3, 5),
            (511, 1026, 4),
            (100, 300_001, 1),
            (7, 300_000, 7),
        ):
            gpu.put(ptr, b"\xee" * MIB)
            obj = (ptr + place, nbytes, gpu.name)
            with nothing_sent(ns), pytest.raises(AlignmentError):
                await ns.read(obj, offset=at)
            assert await ns.read(obj, offset=at, edges="bounce") == nbytes
            seen = gpu.get(ptr, MIB)
            assert seen[place : place + nbytes] == stored[at : at + nbytes]
            assert set(seen[:place]) | set(seen[place + nbytes :]) == {0xEE}
        gpu.put(ptr + 3, stored[:1024])
        await ns.write((ptr + 3, 1024, gpu.name), offset=MIB // 2)
        seen = bytearray(1024)
        await ns.read(seen, offset=MIB // 2)
        assert seen == stored[:1024]


async def test_copies_of_ours_wait_for_no_default_stream(
    world: World, gpu: GPU
) -> None:
    """What runs on it has nothing to do with them."""
    ptr = gpu.alloc(PAGE)
    stored = pattern(PAGE, 6)
    async with world.open(emu=SMALL) as ns:
        await ns.write(stored, offset=0)
        gpu.soft.kernel(0)
        ended = []
        rescue = threading.Timer(5, lambda: ended.append(gpu.soft.end_kernels()))
        rescue.start()
        obj = (ptr + 1, 1000, gpu.name)
        assert await ns.read(obj, offset=7, edges="bounce") == 1000
        rescue.cancel()
        assert not ended, "it waited for the kernel"
        assert gpu.get(ptr, 1008) == b"\xee" + stored[7:1007] + b"\xee" * 7
        gpu.soft.end_kernels()


async def test_inside_a_live_registration(world: World, gpu: GPU) -> None:
    """It costs no mapping, has bounds of its own, and outlives the one around it."""
    ptr = gpu.alloc(MIB)
    stored = pattern(64 << 10, 5)
    async with world.open(emu=SMALL) as ns:
        await ns.write(stored, offset=0)
        whole = ns.register(Tensor(ptr, MIB))
        mappings = ns.controller.statistics().mappings
        part = ns.register(Tensor(ptr + 3 * PAGE, 2 * PAGE))
        again = ns.register(Tensor(ptr + 3 * PAGE, 2 * PAGE))
        assert ns.controller.statistics().mappings == mappings
        with nothing_sent(ns), pytest.raises(RangeError):
            await ns.read(part, offset=0, nbytes=3 * PAGE)
        await ns.read(part, offset=512)
        assert gpu.get(ptr + 3 * PAGE, 2 * PAGE) == stored[512 : 512 + 2 * PAGE]
        offsets = array("q", [0, 4096])
        await ns.read_many(part, offsets=offsets, nbytes=4096)
        assert gpu.get(ptr + 3 * PAGE, 2 * PAGE) == stored[: 2 * PAGE]
        with nothing_sent(ns), pytest.raises(RangeError):
            await ns.read_many(part, offsets=array("q", [0, 0, 0]), nbytes=4096)
        await whole.aclose()
        assert ns.controller.statistics().mappings == mappings
        await ns.read(part[PAGE:], offset=0)
        assert gpu.get(ptr + 4 * PAGE, PAGE) == stored[:PAGE]
        await part.aclose()
        await again.aclose()
        assert ns.controller.statistics().mappings == 0


async def test_views_are_found_by_address(world: World, gpu: GPU) -> None:
    """What is there now, not what was there when it was registered."""
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 6), offset=0)
        stale = ns.register((ptr, MIB, gpu.name))
        await ns.read(Tensor(ptr + PAGE, PAGE), offset=0, jit=False)
        assert gpu.get(ptr + PAGE, PAGE) == pattern(PAGE, 6)
        await ns.read_many([(Tensor(ptr + 2 * PAGE, PAGE), 0)])
        assert gpu.get(ptr + 2 * PAGE, PAGE) == pattern(PAGE, 6)
        gpu.free(ptr)
        fresh = gpu.alloc(MIB)
        assert fresh == ptr, "the address is used again"
        with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="not registered"):
            await ns.read(Tensor(fresh, PAGE), offset=0, jit=False)
        await ns.read(Tensor(fresh, PAGE), offset=0)
        assert gpu.get(fresh, 2 * PAGE) == pattern(PAGE, 6) + b"\xee" * PAGE
        async with ns.register(Tensor(fresh, PAGE)) as reg:
            await ns.read(reg, offset=0)
        await stale.aclose()


@pytest.mark.vendors("cuda")
async def test_allocations_that_were_mapped_in_pieces(world: World, gpu: GPU) -> None:
    """As of expandable segments: one tensor over several of them."""
    assert isinstance(gpu.api, Cuda)
    ptr, size, handles = gpu.api.map_pieces(3)
    stored = pattern(2 * PAGE, 7)
    async with world.open(emu=SMALL) as ns:
        await ns.write(stored, offset=0)
        tensor = Tensor(ptr + size - PAGE, 2 * PAGE)
        async with ns.register(tensor) as reg:
            await ns.read(reg, offset=0)
        assert gpu.get(ptr + size - PAGE, 2 * PAGE) == stored
        async with ns.register(tensor, cached=True) as reg:
            await ns.write(reg, offset=4 * PAGE)
        assert ns.controller.registration_cache.nbytes == 2 * size
        longer = Tensor(ptr + size - PAGE, size + 2 * PAGE)  # it has grown, say
        async with ns.register(longer, cached=True) as reg:
            await ns.read(reg[: 2 * PAGE], offset=0)
        cache = ns.controller.registration_cache
        assert (cache.entries, cache.nbytes, cache.stale) == (1, 3 * size, 1)
        await ns.controller.clear_registration_cache()
        past = Tensor(ptr + 3 * size - PAGE, 2 * PAGE)
        with pytest.raises(MemoryFreedError, match="reach past"):
            ns.register(past)
    gpu.api.unmap_pieces(ptr, size, handles)


async def test_memory_that_is_the_hosts_or_moves(world: World, gpu: GPU) -> None:
    pinned, managed = gpu.api.pinned(2 * PAGE), gpu.api.managed(PAGE)
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 8), offset=0)
        for obj in (CudaArray(pinned, PAGE), (pinned, PAGE, gpu.name), (pinned, PAGE)):
            gpu.put(pinned, bytes(2 * PAGE))
            async with ns.register(obj) as reg:
                assert (reg.placement, reg.staged) == ("host", False)
                await ns.read(reg, offset=0)
                assert bytes(reg.view) == pattern(PAGE, 8)
            assert gpu.get(pinned, 2 * PAGE) == pattern(PAGE, 8) + bytes(PAGE)
        for obj in (CudaArray(managed, PAGE), (managed, PAGE, 0), (managed, PAGE)):
            with nothing_sent(ns), pytest.raises(MemoryLayoutError, match="managed"):
                await ns.read(obj, offset=0)
    gpu.api.free(managed)
    gpu.api.free_pinned(pinned)


@pytest.mark.two_gpus
async def test_another_gpu_than_it_says(world: World, gpu: GPU) -> None:
    second = gpu.alloc(PAGE, device=1)
    dlpack = {"cuda": 2, "hip": 10}[gpu.name]
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 9), offset=0)
        for obj in (
            Tensor(second, PAGE, device=0),
            CudaArray(second, PAGE, device=0),
            DLPackArray(second, PAGE, (dlpack, 0)),
            (second, PAGE, f"{gpu.name}:0"),
            (second, PAGE, 0),
        ):
            with nothing_sent(ns), pytest.raises(WrongGPUError, match=f"{gpu.name}:1"):
                await ns.read(obj, offset=0)
        current = gpu.api.current()
        for obj in (
            Tensor(second, PAGE, device=1),
            Tensor(second, PAGE, device=None),
            CudaArray(second, PAGE),
            DLPackArray(second, PAGE, (dlpack, 1)),
            (second, PAGE, 1),
        ):
            gpu.put(second, bytes(PAGE))
            await ns.read(obj, offset=0)
            assert gpu.get(second, PAGE) == pattern(PAGE, 9)
        assert gpu.api.current() == current


@pytest.mark.software
async def test_no_context_is_made_elsewhere(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(PAGE)
    before = gpu.soft.contexts(1)
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, PAGE)) as reg:
        await ns.read(reg, offset=0)
        await ns.write(reg, offset=PAGE, stream=gpu.stream())
    assert gpu.soft.contexts(1) == before


async def test_what_cannot_be_used(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(2 * PAGE)
    freed = gpu.alloc(PAGE)
    gpu.free(freed)
    async with world.open(emu=SMALL) as ns:
        for obj, kind, words in (
            (Tensor(freed, PAGE), MemoryFreedError, "freed"),
            ((freed, PAGE, gpu.name), MemoryFreedError, "freed"),
            ((ptr, 4 * PAGE, gpu.name), MemoryFreedError, "reach past"),
            (Tensor(ptr, PAGE, contiguous=False), MemoryLayoutError, "contiguous"),
        ):
            with nothing_sent(ns), pytest.raises(kind, match=words):
                await ns.read(obj, offset=0)
            with nothing_sent(ns), pytest.raises(kind, match=words):
                ns.register(obj)
        assert await ns.read(Tensor(0, 0), offset=0) == 0
        assert await ns.write(Tensor(0, 0), offset=0) == 0
        with pytest.raises(MemoryLayoutError, match="no bytes"):
            ns.register(Tensor(0, 0))
        async with ns.register(Tensor(ptr, PAGE)) as reg:
            with pytest.raises(MemoryLayoutError, match="from_dlpack"):
                _ = reg.view
        assert ns.controller.statistics().mappings == 0


async def test_what_requires_grad_is_a_source_only(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(2 * PAGE)
    grad = Tensor(ptr, PAGE, requires_grad=True)
    async with world.open(emu=SMALL) as ns:
        await ns.write(grad, offset=0)
        with nothing_sent(ns), pytest.raises(ReadOnlyError, match=r"\.detach\(\)"):
            await ns.read(grad, offset=0)
        with nothing_sent(ns), pytest.raises(ReadOnlyError):
            await ns.read(CudaArray(ptr, PAGE, readonly=True), offset=0)
        for around in (False, True):
            whole = ns.register(Tensor(ptr, 2 * PAGE)) if around else None
            async with ns.register(grad) as reg:
                await ns.write(reg, offset=0)
                for _ in range(2):
                    with nothing_sent(ns), pytest.raises(ReadOnlyError):
                        await ns.read(reg, offset=0)
                with nothing_sent(ns), pytest.raises(ReadOnlyError):
                    await ns.read_many([(reg, 0)])
            if whole is not None:
                await whole.aclose()
        assert gpu.get(ptr, PAGE) == b"\xee" * PAGE


async def test_freed_between_two_steps(world: World, gpu: GPU) -> None:
    """A registration for a second controller looks whether it is there."""
    ptr = gpu.alloc(PAGE)
    async with world.open(emu=SMALL) as ns, world.open(emu=SMALL) as other:
        reg = ns.register((ptr, PAGE, gpu.name))
        gpu.free(ptr)
        with pytest.raises(MemoryFreedError, match="was freed"):
            await reg.map(other)
        fresh = gpu.alloc(PAGE)
        assert fresh == ptr
        with pytest.raises(MemoryFreedError, match="another allocation"):
            await reg.map(other)
        await reg.aclose()


async def test_many_at_once(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(256 * PAGE)
    stored = pattern(128 * PAGE, 10)
    async with world.open(emu=SMALL) as ns, ns.register(Tensor(ptr, 256 * PAGE)) as reg:
        await ns.write(stored, offset=0)
        pairs = [(reg[2 * i * PAGE :][:PAGE], i * PAGE) for i in range(128)]
        assert await ns.read_many(pairs) == [PAGE] * 128
        seen = gpu.get(ptr, 256 * PAGE)
        for i in range(128):
            assert seen[2 * i * PAGE :][:PAGE] == stored[i * PAGE :][:PAGE]
            assert seen[(2 * i + 1) * PAGE :][:PAGE] == b"\xee" * PAGE
        gpu.put(ptr, stored[::-1] * 2)
        into = array("q", range(0, 128 * PAGE, PAGE))
        await ns.write_many(reg, offsets=into, nbytes=PAGE)
        async with ns.allocate(128 * PAGE) as host:
            await ns.read(host, offset=0)
            assert bytes(host.view) == stored[::-1]
        gpu.put(ptr, bytes(256 * PAGE))
        async with ns.as_completed(pairs) as ended:
            results = {index: result async for index, result in ended}
        assert results == dict.fromkeys(range(128), PAGE)
        assert gpu.get(ptr, PAGE) == stored[::-1][:PAGE]


async def test_two_controllers(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(2 * PAGE)
    async with (
        world.open(emu=SMALL) as ns,
        world.open(emu=SMALL) as other,
        ns.register(Tensor(ptr, 2 * PAGE)) as reg,
    ):
        await reg.map(other)
        await ns.write(pattern(PAGE, 11), offset=0)
        await ns.read(reg[PAGE:], offset=0)
        await other.write(reg[PAGE:], offset=0)
        await other.read(reg[:PAGE], offset=0)
        assert gpu.get(ptr, 2 * PAGE) == 2 * pattern(PAGE, 11)


@pytest.mark.software
async def test_memory_of_our_own(world: World, gpu: GPU) -> None:
    """It lives as long as what is made of it."""
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(5000 // 512 * 512, 12), offset=0)
        free = gpu.soft.used()
        reg = ns.allocate(5000, device=f"{gpu.name}:0")
        ptr = reg.ptr
        assert reg.nbytes == 5000
        await ns.read(reg[:4608], offset=0)
        assert gpu.get(ptr, 4608) == pattern(4608, 12)
        assert reg.__dlpack_device__() == ({"cuda": 2, "hip": 10}[gpu.name], 0)
        capsule = reg.__dlpack__(stream=1)
        interface = reg.__cuda_array_interface__
        assert interface["data"] == (ptr, False)
        assert interface["shape"] == (5000,)
        inside = ns.register((ptr + 512, 512, gpu.name))
        await inside.aclose()
        await reg.aclose()
        del reg
        gc.collect()
        assert gpu.get(ptr, 4608) == pattern(4608, 12), "the capsule has it"
        del capsule
        gc.collect()
        assert gpu.soft.used() == free
        reg = ns.allocate(4096, device=f"{gpu.name}:1")
        assert gpu.soft.used(1) == PAGE_64K
        _ = reg.__cuda_array_interface__
        await reg.aclose()
        gc.collect()
        assert gpu.soft.used(1) == PAGE_64K, "whoever made an array of it holds it"
        del reg
        gc.collect()
        assert gpu.soft.used(1) == 0
        for bad, kind in ((f"{gpu.name}:99", GPUError), (99, GPUError)):
            with pytest.raises(kind):
                ns.allocate(4096, device=bad)
