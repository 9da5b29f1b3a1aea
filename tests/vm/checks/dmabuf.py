"""dma-bufs through the kernel helper's own calls: what is mapped, what is refused."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

from vm.guest import drv, peers
from vm.guest.check import check
from vm.guest.drv import Drv
from vm.guest.ground import Ground
from vm.guest.peer_ground import MIB, PAGE, bar_address, both, node, refused
from vm.guest.peers import Peer, udmabuf


@check()
def a_range_is_mapped_where_it_lies(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(3 * MIB, MIB) as fd:
        whole = own.map_dmabuf(fd, MIB)
        assert whole.nbytes == MIB
        assert whole.first_off == 0
        assert whole.page_size == PAGE
        assert whole.flags == drv.REVOCABLE, whole
        part = own.map_dmabuf(fd, 100, 5 * PAGE + 0x234)
        assert part.first_off == 0x234
        assert part.nbytes == PAGE
        across = own.map_dmabuf(fd, PAGE, 6 * PAGE + 8)
        assert across.first_off == 8
        assert across.nbytes == 2 * PAGE
        if not ground.iommu:
            base = bar_address(ground, "peer0") + 3 * MIB
            assert whole.extents == ((base, MIB),)
            assert part.extents == ((base + 5 * PAGE, PAGE),)
            assert across.extents == ((base + 6 * PAGE, 2 * PAGE),)
        assert own.state().mappings == 3
        for mapping in (part, whole, across):
            own.unmap(mapping.token)
            refused(errno.ENOENT, own.unmap, mapping.token)
        assert own.state().mappings == 0


@check()
def pieces_are_joined_and_kept_in_order(ground: Ground) -> None:
    with both(ground) as (own, peer):
        with peer.exported(0, MIB, piece=PAGE) as fd:
            mapping = own.map_dmabuf(fd, MIB)
            assert mapping.nbytes == MIB
            assert ground.iommu or len(mapping.extents) == 1
        with peer.exported(0, MIB, peers.REVERSED, 2 * PAGE) as fd:
            mapping = own.map_dmabuf(fd, MIB, room=3)
            assert mapping.nbytes == MIB
            if not ground.iommu:
                base = bar_address(ground, "peer0")
                last = base + MIB - 2 * PAGE
                wanted = [(last - n * 2 * PAGE, 2 * PAGE) for n in range(128)]
                assert list(mapping.extents) == wanted
                refused(
                    errno.ENOTUNIQ,
                    own.map_dmabuf,
                    fd,
                    MIB,
                    flags=drv.READ | drv.WRITE | drv.CONTIG,
                )
            # Inside a piece, across two, and to the end.
            for at, nbytes in ((PAGE, PAGE), (PAGE, 2 * PAGE), (MIB - 1, 1)):
                part = own.map_dmabuf(fd, nbytes, at)
                assert part.nbytes == -(-(at % PAGE + nbytes) // PAGE) * PAGE
                own.unmap(part.token)


@check()
def a_large_bar_is_not_truncated(ground: Ground) -> None:
    with both(ground) as (own, _), Peer(1) as big:
        assert big.nbytes == 8 << 30
        base = 0 if ground.iommu else bar_address(ground, "peer1")
        with big.exported(0, big.nbytes) as fd:
            mapping = own.map_dmabuf(fd, big.nbytes)
            assert mapping.nbytes == big.nbytes
            if not ground.iommu:
                assert mapping.extents == ((base, big.nbytes),)
            own.unmap(mapping.token)
        with big.exported(5 << 30, 3 << 30) as fd:
            high = own.map_dmabuf(fd, PAGE, (3 << 30) - PAGE)
            if not ground.iommu:
                assert high.extents == ((base + big.nbytes - PAGE, PAGE),)


@check()
def wrong_scatter_lists_are_refused(ground: Ground) -> None:
    with both(ground) as (own, peer):
        wrong = (
            (errno.EINVAL, peers.MISALIGNED, 0),
            (errno.EINVAL, peers.MISALIGNED | peers.REVERSED, PAGE),
            (errno.EINVAL, peers.RESIDUE | peers.REVERSED, 4 * PAGE),
            (errno.EFAULT, peers.SHORT, 0),
            (errno.EFAULT, peers.SHORT, 4 * PAGE),
            (errno.EBUSY, peers.PIN_FAILS, 0),
            (errno.EFAULT, peers.MAP_FAILS, 0),
            (errno.EFAULT, peers.MAP_FAILS | peers.STATIC, 0),
        )
        for code, how, piece in wrong:
            with peer.exported(0, MIB, how, piece) as fd:
                refused(code, own.map_dmabuf, fd, MIB)
                info = peer.info()
                assert info.idle, (how, info)
                assert own.state().mappings == 0
        # What was asked for lies before the part that is missing.
        with peer.exported(0, MIB, peers.SHORT) as fd:
            own.unmap(own.map_dmabuf(fd, MIB - PAGE).token)


@check()
def wrong_arguments_are_refused(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        gone = os.dup(fd)
        os.close(gone)
        for code, args in (
            (errno.EBADF, (gone, MIB)),
            (errno.EINVAL, (-1, MIB)),
            (errno.EINVAL, (own.fd, MIB)),
            (errno.EINVAL, (fd, 0)),
            (errno.EFAULT, (fd, MIB + 1)),
            (errno.EFAULT, (fd, MIB, 1)),
            (errno.EFAULT, (fd, PAGE, MIB)),
            (errno.EFAULT, (fd, PAGE, 1 << 63)),
        ):
            refused(code, own.map_dmabuf, *args)
        refused(errno.EINVAL, own.map_dmabuf, fd, MIB, flags=0)
        refused(errno.EINVAL, own.map, drv.DMABUF, MIB, fd=fd, vaddr=PAGE)
        assert own.state().mappings == 0
        assert peer.info().attachments == 0


@check()
def system_memory_is_told(ground: Ground) -> None:
    with both(ground) as (own, peer):
        for how in (peers.SYSTEM, peers.SYSTEM | peers.STATIC):
            with peer.exported(0, 16 * PAGE, how) as fd:
                mapping = own.map_dmabuf(fd, 16 * PAGE)
                assert mapping.flags & drv.SYSTEM
                assert mapping.nbytes == 16 * PAGE
                assert bool(mapping.flags & drv.REVOCABLE) is not (how & peers.STATIC)
                own.unmap(mapping.token)
                strict = drv.READ | drv.REQUIRE_PEER
                refused(errno.EXDEV, own.map_dmabuf, fd, PAGE, flags=strict)
                info = peer.info()
                assert info.idle, info
        with peer.exported(0, MIB) as fd:
            strict = drv.WRITE | drv.REQUIRE_PEER
            mapping = own.map_dmabuf(fd, MIB, flags=strict)
            assert not mapping.flags & drv.SYSTEM


@check()
def memory_of_udmabuf_is_system_memory(ground: Ground) -> None:
    if not os.path.exists("/dev/udmabuf"):
        return  # not in Debian's 6.1
    with both(ground) as (own, _), udmabuf(MIB) as (fd, _):
        mapping = own.map_dmabuf(fd, MIB)
        assert mapping.flags == drv.SYSTEM
        assert mapping.nbytes == MIB
        own.unmap(mapping.token)
        part = own.map_dmabuf(fd, 5000, 3)
        assert part.first_off == 3
        assert part.nbytes == 2 * PAGE


@check(limit_s=40)
def a_fence_is_awaited_for_a_bounded_time(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB, peers.FENCE) as fd:
        began = time.monotonic()
        refused(errno.ETIMEDOUT, own.map_dmabuf, fd, MIB)
        assert 4 < time.monotonic() - began < 15
        assert peer.info().idle
        assert own.state().mappings == 0
        timer = threading.Timer(1, peer.signal, (fd,))
        timer.start()
        own.unmap(own.map_dmabuf(fd, MIB).token)
        timer.join()


@check()
def a_wait_for_a_fence_can_be_killed(ground: Ground) -> None:
    path = node(ground, "nv0")
    with Peer(0) as peer, peer.exported(0, MIB, peers.FENCE) as fd:
        child = os.fork()
        if not child:
            try:
                Drv(path).map_dmabuf(fd, MIB)
            finally:
                os._exit(1)
        while not peer.info().maps:
            time.sleep(0.01)
        began = time.monotonic()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert time.monotonic() - began < 2
        info = peer.info()
        assert info.idle, info


@check()
def one_buffer_is_mapped_many_times(ground: Ground) -> None:
    with both(ground) as (own, peer), peer.exported(0, MIB) as fd:
        tokens = [own.map_dmabuf(fd, MIB).token for _ in range(20)]
        assert len(set(tokens)) == 20
        refused(errno.EEXIST, own.map_dmabuf, fd, PAGE, flags=drv.READ)
        for token in tokens[::2]:
            own.unmap(token)
        assert peer.info().attachments == 10
        assert own.state().mappings == 10
        with peer.exported(0, MIB) as other:
            # Another object, though the same memory: its pages are its own.
            own.unmap(own.map_dmabuf(other, MIB, flags=drv.READ).token)
        # The rest goes with the file.


@check()
def the_memory_stays_while_it_is_mapped(ground: Ground) -> None:
    with both(ground) as (own, peer):
        fd = peer.export(0, MIB)
        mapping = own.map_dmabuf(fd, MIB)
        os.close(fd)
        info = peer.info()
        assert (info.exports, info.maps) == (1, 1), info
        own.unmap(mapping.token)
        assert peer.info().exports == 0


@check()
def two_controllers_share_a_buffer(ground: Ground) -> None:
    with (
        both(ground) as (own, peer),
        peer.exported(0, MIB) as fd,
        Drv(node(ground, "nv1")) as other,
    ):
        one, two = own.map_dmabuf(fd, MIB), other.map_dmabuf(fd, MIB)
        assert one.nbytes == two.nbytes == MIB
        assert ground.iommu or one.extents == two.extents
        own.unmap(one.token)
        assert other.state().mappings == peer.info().attachments == 1
        other.reset(drv.START_DMA)
        own.reset(drv.START_DMA)
        own.map_dmabuf(fd, MIB)
        peer.revoke(fd)
        assert own.state().state == other.state().state == drv.REVOKED
