"""register(..., cached=True): allocations that stay registered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from gpu.objects import Tensor
from gpu.rig import GPU
from helpers.model import PAGE, pattern
from helpers.world import MIB, World

from aiougds import OptionError, RangeError, RegistrationCache, blocking

pytestmark = [pytest.mark.soft_gpu, pytest.mark.few]
SMALL: dict[str, object] = {"size": MIB, "lba": 512}


def known(ns: object) -> RegistrationCache:
    cache: RegistrationCache = ns.controller.registration_cache  # type: ignore[attr-defined]
    return cache


async def test_one_allocation_is_registered_once(world: World, gpu: GPU) -> None:
    segment = gpu.alloc(MIB)
    stored = pattern(16 * PAGE, 1)
    async with world.open(emu=SMALL) as ns:
        await ns.write(stored, offset=0)
        assert known(ns).entries == 0
        for i in range(16):
            tensor = Tensor(segment + 3 * i * PAGE, PAGE)
            async with ns.register(tensor, cached=True) as reg:
                assert reg.nbytes == PAGE
                assert ns.controller.statistics().mappings == 1
                await ns.read(reg, offset=i * PAGE)
        cache = known(ns)
        assert (cache.entries, cache.nbytes) == (1, MIB)
        assert (cache.hits, cache.misses) == (15, 1)
        for i in range(16):
            seen = gpu.get(segment + 3 * i * PAGE, 2 * PAGE)
            assert seen == stored[i * PAGE :][:PAGE] + b"\xee" * PAGE
        # So are reads of what is not registered: nothing is pinned for them.
        pins = ns.controller.statistics().jit_pins
        await ns.read(Tensor(segment + MIB - PAGE, PAGE), offset=0, jit=False)
        assert ns.controller.statistics().jit_pins == pins
        assert gpu.get(segment + MIB - PAGE, PAGE) == stored[:PAGE]
        await ns.controller.clear_registration_cache()
        assert known(ns).entries == 0
        assert ns.controller.statistics().mappings == len(ns.controller._device.pool)


async def test_freed_memory_is_noticed(world: World, gpu: GPU) -> None:
    """By its buffer id: the same address may be another allocation."""
    first = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns:
        await ns.write(pattern(PAGE, 2), offset=0)
        async with ns.register(Tensor(first, PAGE), cached=True):
            pass
        gpu.free(first)
        again = gpu.alloc(MIB)
        assert again == first
        async with ns.register(Tensor(again, PAGE), cached=True) as reg:
            await ns.read(reg, offset=0)
            assert gpu.get(again, PAGE) == pattern(PAGE, 2)
        cache = known(ns)
        assert (cache.entries, cache.stale, cache.misses) == (1, 1, 2)
        # What is freed is let go of with the next one that comes.
        other = gpu.alloc(MIB)
        gpu.free(again)
        async with ns.register(Tensor(other, PAGE), cached=True):
            assert known(ns).entries == 1
            assert known(ns).stale == 2
            assert ns.controller.statistics().mappings == 1
        await ns.controller.clear_registration_cache()


async def test_it_is_bounded(world: World, gpu: GPU) -> None:
    """The least recently used goes first; what looks into it stays as it is."""
    parts = [gpu.alloc(256 << 10, fill=i) for i in range(4)]
    async with world.open(
        emu=SMALL, gpu_cache_bytes=700_000, gpu_cache_entries=3
    ) as ns:
        await ns.write(pattern(PAGE, 3), offset=0)
        first = ns.register(Tensor(parts[0], PAGE), cached=True)
        async with ns.register(Tensor(parts[1], PAGE), cached=True):
            assert known(ns).entries == 2
        async with ns.register(Tensor(parts[0], PAGE), cached=True):
            assert known(ns).hits == 1
        async with ns.register(Tensor(parts[2], PAGE), cached=True):
            cache = known(ns)
            assert (cache.entries, cache.nbytes) == (2, 512 << 10)
            assert cache.evictions == 1
        async with ns.register(Tensor(parts[0], PAGE), cached=True):
            assert known(ns).hits == 2, "the other one was older"
        async with ns.register(Tensor(parts[3], PAGE), cached=True):
            pass
        async with ns.register(Tensor(parts[1], PAGE), cached=True):
            assert known(ns).evictions == 3
            await ns.read(first, offset=0)
        assert gpu.get(parts[0], PAGE) == pattern(PAGE, 3)
        await first.aclose()
        large = gpu.alloc(MIB)
        with pytest.raises(RangeError, match="gpu_cache_bytes=700000"):
            ns.register(Tensor(large, PAGE), cached=True)
        assert known(ns).entries == 2
        await ns.controller.clear_registration_cache()
        assert ns.controller.statistics().mappings == 0


async def test_many_small_ones(world: World, gpu: GPU) -> None:
    parts = [gpu.alloc(PAGE) for _ in range(8)]
    async with world.open(emu=SMALL, gpu_cache_entries=3) as ns:
        for ptr in parts:
            async with ns.register(Tensor(ptr, 512), cached=True):
                pass
        assert (known(ns).entries, known(ns).evictions) == (3, 5)
        assert (known(ns).max_entries, known(ns).max_bytes) == (3, 16 << 30)
        await ns.controller.clear_registration_cache()


async def test_closing_lets_go_of_it(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(MIB)
    async with world.open_controller(emu=SMALL) as ctrl:
        ns = ctrl.namespace()
        async with ns.register(Tensor(ptr, PAGE), cached=True):
            pass
        assert ctrl.registration_cache.entries == 1
        await ctrl.clear_registration_cache()
        async with ns.register(Tensor(ptr, PAGE), cached=True):
            pass
        await ns.aclose()
        await ctrl.clear_registration_cache()
    gpu.free(ptr)


async def test_a_second_controller_has_its_own(world: World, gpu: GPU) -> None:
    ptr = gpu.alloc(MIB)
    async with world.open(emu=SMALL) as ns, world.open(emu=SMALL) as other:
        async with ns.register(Tensor(ptr, PAGE), cached=True) as reg:
            await reg.map(other)
            assert known(ns).entries == known(other).entries == 1
        await other.controller.clear_registration_cache()
        await ns.read(Tensor(ptr, PAGE), offset=0, jit=False)
        pins = other.controller.statistics().jit_pins
        await other.read(Tensor(ptr, PAGE), offset=0)
        assert other.controller.statistics().jit_pins == pins + 1
        for each in (ns, other):
            await each.controller.clear_registration_cache()


async def test_host_memory_is_not_kept(world: World) -> None:
    async with world.open(emu=SMALL) as ns:
        with pytest.raises(OptionError, match="no GPU's"):
            ns.register(bytearray(PAGE), cached=True)


def test_threads_that_register_at_once(gpu: GPU) -> None:
    """Of a few allocations, with room for fewer: none is lost, none is left."""
    parts = [gpu.alloc(64 << 10, fill=i) for i in range(5)]

    with blocking.open("emu:?size=1MiB&lba=512", gpu_cache_entries=3) as ns:
        for i in range(5):
            ns.write(bytes([i]) * PAGE, offset=i * PAGE)

        def work(turn: int) -> None:
            for step in range(40):
                i = (turn + step * 3) % 5
                own = Tensor(parts[i] + turn * PAGE, PAGE)
                with ns.register(own, cached=True) as reg:
                    ns.read(reg, offset=i * PAGE)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        for i, ptr in enumerate(parts):
            assert gpu.get(ptr, 4 * PAGE) == bytes([i]) * (4 * PAGE)
        cache = ns.controller.registration_cache
        assert (cache.entries, cache.hits + cache.misses) == (3, 160)
        assert cache.misses == cache.evictions + 3
        assert ns.controller.statistics().mappings == 3
        ns.controller.clear_registration_cache()
        assert ns.controller.statistics().mappings == 0
