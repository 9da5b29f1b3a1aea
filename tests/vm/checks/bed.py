"""The guest is what it was said to be."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiougds
from vm.guest.check import check
from vm.guest.ground import Ground

MIB = 1 << 20


@check()
def two_processors(ground: Ground) -> None:
    assert os.cpu_count() == 2


@check()
def the_kernel_asked_for(ground: Ground) -> None:
    assert os.uname().release == ground.plan["release"]


@check()
def the_host_is_seen_and_not_written(ground: Ground) -> None:
    probe = Path(__file__).with_name("made-in-the-guest")
    probe.write_text("copy-on-write")
    assert probe.read_text() == "copy-on-write"


@check()
async def the_package_reads_its_embedded_controller(ground: Ground) -> None:
    async with aiougds.open("emu:?size=1MiB") as ns:
        buffer = bytearray(b"\xff" * 4096)
        async with ns.register(buffer) as reg:
            assert await ns.read(reg, offset=0) == 4096
    assert buffer == bytes(4096)


def read_block(path: Path, offset: int, nbytes: int) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, nbytes, offset)
    finally:
        os.close(fd)


@check(limit_s=30)
def the_kernel_reads_the_pattern(ground: Ground) -> None:
    ground.run("modprobe", "nvme")
    ground.bind("nv0", "nvme")
    path = ground.kernel_disk("nv0")
    for offset in (0, 512, MIB - 512, 64 * MIB - 4096):
        assert read_block(path, offset, 4096 if offset % MIB else 512) == (
            ground.original("nv0-1", offset, 4096 if offset % MIB else 512)
        ), offset
    ground.release("nv0")


@check()
async def the_monitor_answers(ground: Ground) -> None:
    await asyncio.sleep(0)
    assert "nv0" in ground.qmp.human("info pci")
