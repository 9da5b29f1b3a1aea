"""Processes that are killed while the device writes to their memory."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiougds
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.leaks import nothing_left
from vm.guest.peer_ground import node

HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")
PAGE, MIB = 4096, 1 << 20
ROUNDS_IN_PYTHON = 6


@contextmanager
def hugepages(count: int) -> Generator[None]:
    HUGEPAGES.write_text(str(count))
    assert int(HUGEPAGES.read_text()) == count
    try:
        yield
    finally:
        HUGEPAGES.write_text("0")


def killed(ground: Ground, rounds: int) -> None:
    """Kill so many processes, one after another, at random points of their load.

    Half of them with the drive as fast as it is, half with one whose commands would
    outlast their process by far if nobody stopped it.
    """
    program, path = ground.program("kill_load"), node(ground, "nv0")
    # Half of the pools is of hugepages; the engine has others for its rings.
    with hugepages(16), nothing_left():
        for per_second in (0, 2000):
            seed = str(random.randrange(1 << 32))
            print(f"kill_load: {per_second} a second, seed {seed}", flush=True)
            ground.qmp.throttle("nv0-1", per_second)
            try:
                command = (program, path, str(rounds // 2), seed)
                print(ground.run(*command, timeout_s=200), flush=True)
            finally:
                ground.qmp.throttle("nv0-1", 0)


@check(limit_s=120)
def forty_processes_are_killed_under_load(ground: Ground) -> None:
    killed(ground, 40)


async def load(path: str, ready: int) -> None:
    """Read in every way until the end."""
    async with aiougds.open(path) as ns, ns.allocate(2 * MIB) as reg:
        own = bytearray(MIB)

        async def single(i: int) -> None:
            at = i * (MIB // 16)
            while True:
                await ns.read(reg[at : at + MIB // 16], offset=at)

        async def pinned() -> None:
            while True:
                await ns.read(own, offset=0)

        async def many() -> None:
            items = [(reg[MIB + i * PAGE :][:PAGE], i * PAGE) for i in range(128)]
            while True:
                await ns.read_many(items)
                os.write(ready, b"R")

        async with asyncio.TaskGroup() as group:
            for i in range(16):
                group.create_task(single(i))
            group.create_task(pinned())
            group.create_task(many())


def kill_one(path: str) -> None:
    end, ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            asyncio.run(load(path, ready))
        finally:
            os._exit(1)
    os.close(ready)
    try:
        assert os.read(end, 1) == b"R"
        time.sleep(random.random() * 0.05)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(end)
    assert os.WIFSIGNALED(status), status


@check(limit_s=60)
def programs_in_python_are_killed_under_load(ground: Ground) -> None:
    path = node(ground, "nv0")
    with nothing_left():
        for _ in range(ROUNDS_IN_PYTHON):
            kill_one(path)


@check(limit_s=40)
def the_kernel_takes_what_a_killed_process_had(ground: Ground) -> None:
    ground.run("modprobe", "nvme")
    for _ in range(2):
        kill_one(node(ground, "nv0"))
        ground.bind("nv0", "nvme")
        disk = os.open(ground.kernel_disk("nv0"), os.O_RDONLY)
        try:
            for at in (0, MIB):
                wanted = ground.original("nv0-1", at, PAGE)
                assert os.pread(disk, PAGE, at) == wanted
        finally:
            os.close(disk)
        ground.bind("nv0", "ugds_drv")
