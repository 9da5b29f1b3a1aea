"""A controller is made to read where nothing is mapped, with no driver at all.

QEMU lets that pass, so the IOMMU's word for it is what every other check relies on.
"""

from __future__ import annotations

import ctypes
import time

from vm.guest.check import check
from vm.guest.ground import Ground

# Registers of the controller, and where its first doorbell is.
CC, CSTS, AQA, ASQ, ACQ, DOORBELL = 0x14, 0x1C, 0x24, 0x28, 0x30, 0x1000
ENABLE = 6 << 16 | 4 << 20 | 1  # entries of 64 and 16 bytes
NOWHERE = 0x5A5A5000
COMMAND, BUS_MASTER = 4, 6


def let_it_read(ground: Ground, address: int) -> None:
    """Start the controller with an admin queue at ``address``, and ring its bell."""
    folder = ground.folder("nv0")
    (folder / "enable").write_text("1")
    with (folder / "config").open("r+b", buffering=0) as config:
        config.seek(COMMAND)
        config.write(bytes([BUS_MASTER, 0]))
    registers = ground.bar("nv0", 0)

    def register(offset: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_buffer(registers, offset)

    def until_ready(wanted: int) -> None:
        until = time.monotonic() + 10
        while register(CSTS).value & 1 != wanted:
            assert time.monotonic() < until, f"CSTS.RDY does not become {wanted}"

    # The firmware has looked for a disk to boot from, and leaves it running.
    register(CC).value = 0
    until_ready(0)
    register(AQA).value = 31 << 16 | 31
    for base, where in ((ASQ, address), (ACQ, address + 4096)):
        register(base).value = where
        register(base + 4).value = 0
    register(CC).value = ENABLE
    until_ready(1)
    register(DOORBELL).value = 1
    until = time.monotonic() + 10
    while not any("DMAR" in message.text for message in ground.messages()):
        assert time.monotonic() < until, "the kernel was not told of a fault"
    register(CC).value = 0


@check()
def reads_where_nothing_is_mapped(ground: Ground) -> None:
    let_it_read(ground, NOWHERE)


@check(allows=("DMAR: .*",))
def reads_there_and_may(ground: Ground) -> None:
    let_it_read(ground, NOWHERE)
