"""Memory of a dma-buf that is taken away while it is mapped."""

from __future__ import annotations

import errno
import os
import select
import threading

from vm.guest import drv
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import MIB, PAGE, both, error_of, refused


def drained(event: int) -> bool:
    return bool(select.select([event], [], [], 0)[0]) and bool(os.eventfd_read(event))


@check()
def revoked_memory_is_cut_off(ground: Ground) -> None:
    event = os.eventfd(0, os.EFD_CLOEXEC)
    with (
        both(ground) as (own, peer),
        peer.exported(0, MIB) as fd,
        peer.exported(MIB, MIB) as kept,
    ):
        own.state(event)
        own.reset(drv.START_DMA)
        assert drained(event)
        mapping, other = own.map_dmabuf(fd, MIB), own.map_dmabuf(kept, MIB)
        peer.revoke(fd)
        assert drained(event)
        state = own.state()
        assert (state.state, state.mappings, state.revoked) == (drv.REVOKED, 2, 1)
        # The exporter has the mapping back, the other one is untouched.
        assert peer.info().maps == 1
        refused(errno.EIO, own.map_dmabuf, kept, MIB)
        refused(errno.EIO, own.reset, drv.START_DMA)
        own.reset(drv.FUNCTION)
        assert own.state().state == 0
        assert drained(event)
        own.reset(drv.START_DMA)
        refused(errno.ESTALE, own.extents, mapping.token, 0, 1)
        assert own.extents(other.token, 0, 1)
        own.unmap(mapping.token)
        state = own.state()
        assert (state.state, state.mappings, state.revoked) == (drv.DMA, 1, 0)
        # It had only moved.
        assert own.map_dmabuf(fd, MIB).nbytes == MIB
    os.close(event)


@check()
def revoked_memory_goes_with_the_file(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        for _ in range(3):
            own.map_dmabuf(fd, MIB)
        peer.revoke(fd, gone=True)
        assert own.state().revoked == 3
        assert peer.info().maps == 0
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        assert own.state().state == 0
        own.unmap(own.map_dmabuf(fd, MIB).token)


@check()
def an_exporter_that_went_gives_no_more(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        mapping = own.map_dmabuf(fd, MIB)
        peer.gone()
        assert own.state().revoked == 1
        own.unmap(mapping.token)
        own.reset(drv.DISABLE)
        assert own.state().state == 0
        refused(errno.EFAULT, own.map_dmabuf, fd, MIB)


@check()
def a_peer_is_unbound_while_its_memory_is_mapped(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        own.reset(drv.START_DMA)
        mapping = own.map_dmabuf(fd, MIB)
        ground.release("peer0")
        assert own.state().state == drv.REVOKED
        own.unmap(mapping.token)
        refused(errno.EIO, own.map_dmabuf, fd, MIB)
    ground.bind("peer0", "peerbar")


@check(limit_s=60)
def mapping_and_revoking_race(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB, piece=PAGE) as fd:
        stop = threading.Event()

        def revoke() -> None:
            while not stop.is_set():
                peer.revoke(fd)

        def map_and_unmap() -> None:
            own.unmap(own.map_dmabuf(fd, MIB).token)

        thread = threading.Thread(target=revoke)
        thread.start()
        mapped = 0
        try:
            for _ in range(300):
                code = error_of(map_and_unmap)
                assert code in {0, errno.EIO, errno.EFAULT}, code
                mapped += not code
                if own.state().state & drv.REVOKED:
                    own.reset(drv.DISABLE)
        finally:
            stop.set()
            thread.join()
        assert mapped
        state = own.state()
        assert (state.mappings, state.revoked) == (0, 0), state
