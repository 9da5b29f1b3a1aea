"""What a guest is made of, said in a few words and frozen.

``Machine(controllers=(Controller("nv0", blocks=(Blocks(lba=4096),)),))`` is a machine
with one NVMe controller of 4096-byte blocks. The serial number of a controller is its
QEMU id, and the name by which a check finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30
SECTOR = 512


@dataclass(frozen=True, slots=True)
class MediaError:
    """Reads, writes or flushes that touch a sector fail with ``errno``."""

    sector: int
    on: str = "read"
    errno: int = 5


@dataclass(frozen=True, slots=True)
class Blocks:
    """One namespace. Its image holds a pattern per sector, unless it has none.

    ``stored=False``: no image; reads give zeros and writes are dropped (for speed).
    ``suspend=True``: single I/Os can be held and let go (``qemu-io NODE "break .."``).
    ``throttle=True``: the throttle group ``tg-NODE`` limits it once told to.
    A node is named ``SERIAL-NSID``, as in ``nv0-1``.
    """

    lba: int = 512
    metadata: int = 0
    protection: int = 0
    mib: int = 64
    stored: bool = True
    errors: tuple[MediaError, ...] = ()
    suspend: bool = False
    throttle: bool = False


@dataclass(frozen=True, slots=True)
class Controller:
    """One NVMe controller; ``mdts`` counts as the device does, 0 is no limit.

    ``vectors`` is the size of its MSI-X table, by default one for each queue and the
    admin queue. ``port=True`` puts it behind a root port, from which it can be
    unplugged. Controllers that name the same ``subsystem`` belong to it, and have its
    name as serial number.
    """

    serial: str = "nv0"
    blocks: tuple[Blocks, ...] = (Blocks(),)
    mdts: int = 7
    queues: int = 64
    vectors: int | None = None
    cmb_mib: int = 0
    port: bool = False
    subsystem: str | None = None
    ioeventfd: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """An ivshmem device: memory behind a BAR, which stands for that of a GPU."""

    name: str = "peer0"
    mib: int = 256
    port: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A guest's hardware. It always has two processors.

    With one, or with QEMU's threads in one, QEMU's own shadow doorbells get lost.
    """

    controllers: tuple[Controller, ...] = (Controller(),)
    peers: tuple[Peer, ...] = ()
    iommu: bool = False
    memory_mib: int = 1024
    kernel_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [item.serial for item in self.controllers]
        names += [item.name for item in self.peers]
        if len(names) != len(set(names)):
            raise ValueError(f"two devices of a machine have one name: {names}")
        if len(names) > MAX_DEVICES:
            raise ValueError(f"{len(names)} devices: the limit is {MAX_DEVICES}")


# Slots of the root bus from FIRST_SLOT on are those of the machine's own devices.
FIRST_SLOT = 0x0A
MAX_DEVICES = 0x1F - FIRST_SLOT


def slot(machine: Machine, name: str) -> int:
    """Return the slot of the root bus at which a device, or its port, is found."""
    names = [item.serial for item in machine.controllers]
    names += [item.name for item in machine.peers]
    return FIRST_SLOT + names.index(name)
