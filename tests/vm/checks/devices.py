"""The machine has the devices that were described, and they break as told.

The kernel's own driver looks at them: what it sees is not our doing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from vm.guest.check import check
from vm.guest.ground import Ground

BLOCK = Path("/sys/class/block")
KIB = 1 << 10
MIB = 1 << 20


def setting(disk: Path, name: str) -> int:
    return int((BLOCK / disk.name / "queue" / name).read_text())


def read(path: Path, offset: int, nbytes: int) -> bytes:
    """Read past the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, nbytes, offset)
    finally:
        os.close(fd)


def eventually(true: Callable[[], bool], timeout_s: float = 15) -> None:
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, f"not so within {timeout_s} s"
        time.sleep(0.05)  # another machine's state: nothing here can be waited on


def vectors(ground: Ground, name: str) -> int:
    """Return the size of the MSI-X table, from the capability in the header."""
    config = (ground.folder(name) / "config").read_bytes()
    at = config[0x34]
    while config[at] != 0x11:
        at = config[at + 1]
    return (int.from_bytes(config[at + 2 : at + 4], "little") & 0x7FF) + 1


@check(limit_s=60)
def the_kernel_takes_every_controller(ground: Ground) -> None:
    ground.run("modprobe", "nvme")
    for name, device in ground.plan["devices"].items():
        if device["driver"] == "nvme" and ground.driver(name) != "nvme":
            ground.bind(name, "nvme")


@check()
def blocks_have_their_size(ground: Ground) -> None:
    assert setting(ground.kernel_disk("nv0"), "logical_block_size") == 512
    assert setting(ground.kernel_disk("large"), "logical_block_size") == 4096


@check()
def every_disk_has_its_own_pattern(ground: Ground) -> None:
    for name in ("nv0", "large", "one"):
        disk = ground.kernel_disk(name)
        for offset in (0, 4096, 64 * MIB - 4096):
            wanted = ground.original(f"{name}-1", offset, 4096)
            assert read(disk, offset, 4096) == wanted, (name, offset)


@check()
def mdts_is_as_told(ground: Ground) -> None:
    """A controller's page is 4 KiB: 1 is two of them, 5 is 128 KiB."""
    assert setting(ground.kernel_disk("mdts1"), "max_hw_sectors_kb") == 8
    assert setting(ground.kernel_disk("mdts5"), "max_hw_sectors_kb") == 128


@check()
def queues_and_vectors_are_as_told(ground: Ground) -> None:
    """The kernel makes a pair for each of the two processors, and counts admin's."""
    counts = {
        name: int(next(ground.folder(name).glob("nvme/*/queue_count")).read_text())
        for name in ("nv0", "one")
    }
    assert counts == {"nv0": 3, "one": 2}
    assert vectors(ground, "nv0") == 65
    assert vectors(ground, "few") == 2


@check()
def namespaces_are_all_there(ground: Ground) -> None:
    found = ground.folder("several").glob("nvme/*/nvme*n*")
    assert len(list(found)) == 3


@check()
def a_subsystem_has_two_controllers(ground: Ground) -> None:
    names = {
        next(ground.folder(name).glob("nvme/*/subsysnqn")).read_text()
        for name in ("left", "right")
    }
    assert len(names) == 1


@check()
def metadata_is_formatted(ground: Ground) -> None:
    """What the kernel knows no use for has no size."""
    (space,) = ground.folder("meta").glob("nvme/*/nvme*n*")
    seen = space / "metadata_bytes"
    if seen.exists():  # from Linux 6.8 on
        assert int(seen.read_text()) == 8
    path = "/machine/peripheral/ns-meta-1"
    assert ground.qmp.execute("qom-get", path=path, property="ms") == 8


@check()
def controller_memory_is_there(ground: Ground) -> None:
    lines = (ground.folder("cmb") / "resource").read_text().splitlines()
    bars = [[int(word, 16) for word in line.split()[:2]] for line in lines[:6]]
    assert 16 * MIB in [last - first + 1 for first, last in bars]


@check(limit_s=40, allows=("I/O error", "critical medium error"))
def one_sector_is_bad(ground: Ground) -> None:
    disk = ground.kernel_disk("bad")
    sound = read(disk, 0, 4096)
    assert sound == ground.original("bad-1", 0, 4096)
    try:
        read(disk, 400 * 512, 4096)
    except OSError as error:
        found = error.errno
    else:
        found = 0
    assert found in (5, 61)  # EIO, ENODATA


@check(limit_s=40)
def a_disk_is_slow_once_told(ground: Ground) -> None:
    disk = ground.kernel_disk("slow")
    ground.qmp.throttle("slow-1", 4)
    began = time.monotonic()
    for n in range(8):
        read(disk, n * MIB, 512)
    slow = time.monotonic() - began
    ground.qmp.throttle("slow-1", 0)
    assert slow > 1


@check(limit_s=40)
def one_read_is_held(ground: Ground) -> None:
    disk = ground.kernel_disk("held")
    ground.qmp.hold_next("held-1")
    child = os.fork()
    if child == 0:
        read(disk, 32 * MIB, 4096)
        os._exit(0)
    eventually(lambda: "held" not in ground.qmp.human("qemu-io held-1 length"))
    time.sleep(1)
    waiting = os.waitpid(child, os.WNOHANG)[0] == 0
    ground.qmp.let_go("held-1")
    assert waiting
    assert os.waitpid(child, 0)[1] == 0


@check(limit_s=60)
def a_controller_is_unplugged_and_plugged_in(ground: Ground) -> None:
    disk = ground.kernel_disk("hot")
    ground.qmp.device_del("hot")
    ground.qmp.wait_event("DEVICE_DELETED")
    eventually(lambda: not disk.exists())
    ground.qmp.device_add(ground.device("hot"))
    eventually(lambda: ground.is_present("hot"))
    assert read(ground.kernel_disk("hot"), 0, 4096) == ground.original("hot-1", 0, 4096)


@check()
def a_peer_is_memory_seen_from_both_sides(ground: Ground) -> None:
    for name, size in (("peer0", 256 * MIB), ("peer1", 8 << 30)):
        folder = ground.folder(name)
        assert (folder / "resource2").stat().st_size == size
        with ground.far_side(name).open("r+b", buffering=0) as file:
            for offset in (0, size - 4096):
                file.seek(offset)
                file.write(b"%016d" % offset)
        (folder / "enable").write_text("1")
        for offset in (0, size - 4096):
            assert ground.bar(name)[offset : offset + 16] == b"%016d" % offset
            ground.bar(name)[offset + 16 : offset + 32] = b"%016x" % offset
            with ground.far_side(name).open("rb", buffering=0) as file:
                file.seek(offset + 16)
                assert file.read(16) == b"%016x" % offset
