"""CUDA memory through the helper, with a stand-in of NVIDIA's driver."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from vm.guest import drv
from vm.guest.check import check
from vm.guest.drv import Drv
from vm.guest.ground import Ground
from vm.guest.peer_ground import MIB, bar_address, both, error_of, node, refused
from vm.guest.peers import Nvp2p, Peer

GPU_PAGE = 65536
NEW, OLD, NOGPL = "nvp2p", "nvp2p_old", "nvp2p_nogpl"
CAPS = drv.CAP_CUDA | drv.CAP_CUDA_PERSISTENT


@contextmanager
def driver(ground: Ground, name: str, *parameters: str) -> Generator[Nvp2p]:
    """Have a stand-in loaded; nothing may be left of it afterwards."""
    peerbar = next(m for m in ground.plan["modules"] if "peerbar.ko" in m["path"])
    path = Path(peerbar["path"]).with_name(f"{name}.ko")
    ground.load({"path": str(path), "parameters": list(parameters)})
    try:
        with Nvp2p() as nv:
            yield nv
            info = nv.info()
            assert (info.tables, info.mappings) == (0, 0), info
    finally:
        ground.run("rmmod", name)


@check()
def no_driver_is_no_cuda_memory(ground: Ground) -> None:
    with both(ground) as (own, peer):
        assert not own.caps() & CAPS
        refused(errno.EOPNOTSUPP, own.map_cuda, peer.va, MIB)
        assert own.state().mappings == 0


@check()
def exports_that_are_not_for_gpl_modules_are_none(ground: Ground) -> None:
    with driver(ground, NOGPL), both(ground) as (own, peer):
        assert not own.caps() & CAPS
        refused(errno.EOPNOTSUPP, own.map_cuda, peer.va, MIB)


def shapes(ground: Ground, own: Drv, va: int, flag: int) -> None:
    """Map ranges of every alignment: whole pages of the GPU hold them."""
    base = bar_address(ground, "peer0")
    for at, nbytes in (
        *((0, 1), (0, GPU_PAGE), (0, 8 * MIB), (0x1234, 100), (GPU_PAGE - 1, 2)),
        *((512, GPU_PAGE), (MIB + 4096, 3 * MIB + 512), (256 * MIB - 1, 1)),
    ):
        mapping = own.map_cuda(va + at, nbytes)
        first, end = at // GPU_PAGE, -(-(at + nbytes) // GPU_PAGE)
        assert mapping.flags == flag, (at, nbytes, mapping)
        assert mapping.first_off == at % GPU_PAGE
        assert mapping.page_size == GPU_PAGE
        assert mapping.nbytes == (end - first) * GPU_PAGE
        if not ground.iommu:
            assert mapping.extents == ((base + first * GPU_PAGE, mapping.nbytes),)
        own.unmap(mapping.token)


@check()
def persistent_pages_stay_when_they_are_freed(ground: Ground) -> None:
    with driver(ground, NEW) as nv, both(ground) as (own, peer):
        assert own.caps() & CAPS == CAPS
        shapes(ground, own, peer.va, drv.PERSISTENT)
        own.reset(drv.START_DMA)
        mapping = own.map_cuda(peer.va, MIB)
        info = nv.info()
        assert (info.tables, info.persistent, info.mappings) == (1, 1, 1), info
        assert nv.free(peer.va, MIB) == 0
        assert own.state().state == drv.DMA
        own.unmap(mapping.token)
        for _ in range(5):
            own.map_cuda(peer.va + 512, MIB)
        # These go with the file.


def freed(ground: Ground, own: Drv, nv: Nvp2p, va: int) -> None:
    """Free pages that can't persist while they are mapped."""
    shapes(ground, own, va, drv.REVOCABLE)
    own.reset(drv.START_DMA)
    mapping, other = own.map_cuda(va, MIB), own.map_cuda(va + 2 * MIB, MIB)
    info = nv.info()
    assert (info.tables, info.persistent) == (2, 0), info
    assert nv.free(va + MIB - 1, 1) == 1
    state = own.state()
    assert (state.state, state.mappings, state.revoked) == (drv.REVOKED, 2, 1)
    refused(errno.EIO, own.map_cuda, va, MIB)
    own.reset(drv.FUNCTION)
    refused(errno.ESTALE, own.extents, mapping.token, 0, 1)
    own.unmap(mapping.token)
    assert own.extents(other.token, 0, 1)
    own.unmap(other.token)
    own.unmap(own.map_cuda(va, MIB).token)
    # And one that is freed, and goes with the file.
    own.map_cuda(va, 3 * MIB)
    assert nv.free(va, MIB) == 1


@check()
def an_older_driver_revokes_what_is_freed(ground: Ground) -> None:
    with driver(ground, OLD) as nv, both(ground) as (own, peer):
        assert own.caps() & CAPS == drv.CAP_CUDA
        freed(ground, own, nv, peer.va)


@check()
def a_gpu_without_persistent_pages_revokes_what_is_freed(ground: Ground) -> None:
    with driver(ground, NEW, "persistent=0") as nv, both(ground) as (own, peer):
        freed(ground, own, nv, peer.va)


@check()
def scattered_pages_are_kept_in_order(ground: Ground) -> None:
    for name in (NEW, OLD):
        with driver(ground, name, "swizzle=1"), both(ground) as (own, peer):
            mapping = own.map_cuda(peer.va, MIB)
            assert mapping.nbytes == MIB
            if not ground.iommu:
                base = bar_address(ground, "peer0")
                pages = [base + (n ^ 1) * GPU_PAGE for n in range(16)]
                listed = [(first, GPU_PAGE) for first in pages]
                assert joined(listed) == list(mapping.extents)


def joined(pieces: list[drv.Extent]) -> list[drv.Extent]:
    found: list[drv.Extent] = []
    for first, nbytes in pieces:
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + nbytes)
        else:
            found.append((first, nbytes))
    return found


@check()
def unknown_versions_are_refused(ground: Ground) -> None:
    for name in (NEW, OLD):
        for parameter, code in (
            ("table_version=0x30000", errno.EOPNOTSUPP),
            ("table_version=0x10001", errno.EOPNOTSUPP),
            ("table_version=0x10002", 0),
            ("table_version=0x20007", 0),
        ):
            with driver(ground, name, parameter), both(ground) as (own, peer):
                assert error_of(own.map_cuda, peer.va, MIB) == code, parameter
    # Without a mapping of its own the driver is asked for pages only, so they serve.
    with driver(ground, NEW, "mapping_version=0x30003"), both(ground) as (own, peer):
        assert own.map_cuda(peer.va, MIB).flags == drv.REVOCABLE


@check()
def what_is_no_memory_of_a_gpu_is_refused(ground: Ground) -> None:
    for name in (NEW, OLD):
        with driver(ground, name), both(ground) as (own, peer):
            for va in (4096, peer.va - 1, peer.va + peer.nbytes, (1 << 64) - 2 * MIB):
                refused(errno.EFAULT, own.map_cuda, va, MIB)
            refused(errno.EFAULT, own.map_cuda, peer.va, peer.nbytes + 1)
            refused(errno.EINVAL, own.map_cuda, peer.va, 0)
            own.map_cuda(peer.va, MIB)
            refused(errno.EEXIST, own.map_cuda, peer.va, 1, flags=drv.READ)
            # In a page of the GPU that is mapped, though not in what was asked for.
            refused(errno.EEXIST, own.map_cuda, peer.va + MIB - 1, 1, flags=drv.WRITE)


def while_it_is_freed(nv: Nvp2p, va: int, work: Callable[[], None]) -> None:
    stop = threading.Event()

    def free() -> None:
        while not stop.is_set():
            nv.free(va, MIB)

    thread = threading.Thread(target=free)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()


def race(own: Drv, nv: Nvp2p, va: int, times: int) -> None:
    """Map and unmap pages that another thread frees all the time."""
    outcomes: list[int] = []

    def map_and_unmap() -> None:
        own.unmap(own.map_cuda(va, MIB).token)

    def work() -> None:
        for _ in range(times):
            outcomes.append(error_of(map_and_unmap))
            if own.state().state & drv.REVOKED:
                own.reset(drv.DISABLE)

    while_it_is_freed(nv, va, work)
    assert set(outcomes) <= {0, errno.EFAULT, errno.EIO}, set(outcomes)
    state = own.state()
    assert (state.mappings, state.revoked) == (0, 0), state
    assert nv.info().callbacks_ever


@check(limit_s=60)
def freeing_and_mapping_race(ground: Ground) -> None:
    with driver(ground, OLD) as nv, both(ground) as (own, peer):
        race(own, nv, peer.va, 500)


@check(limit_s=60)
def pages_are_freed_while_they_are_got(ground: Ground) -> None:
    with driver(ground, OLD, "linger_ms=20") as nv, both(ground) as (own, peer):
        race(own, nv, peer.va, 30)


@check(limit_s=60)
def a_process_ends_while_its_pages_are_freed(ground: Ground) -> None:
    path = node(ground, "nv0")
    with Peer(0) as peer:
        va = peer.va
    with driver(ground, OLD) as nv:

        def work() -> None:
            for _ in range(20):
                with Drv(path) as own:
                    for _ in range(4):
                        error_of(own.map_cuda, va, MIB)

        while_it_is_freed(nv, va, work)
