"""Commands and programs of the pages that want root and a drive, as they stand there.

The only thing that is changed is which drive it is: its address and serial number.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path

from documents.pages import ROOT, Block, the_one
from documents.shell import steps

import aiougds
from vm.guest import userspace
from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.peer_ground import node
from vm.guest.peers import Peer

HERE = "vm/checks/documented.py"
ADDRESS, SERIAL = "0000:65:00.0", "S5XXNA0R123456"
MIB = 1 << 20


def ours(ground: Ground, command: str) -> str:
    """The same, for the drive that is here."""
    return command.replace(ADDRESS, ground.address("nv0")).replace(SERIAL, "nv0")


def run(ground: Ground, command: str) -> subprocess.CompletedProcess[str]:
    """Run it in the checkout, with our programs in PATH."""
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["sh", "-e", "-c", ours(ground, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"},
        timeout=100,
    )


@check(limit_s=400)
def from_a_new_drive_to_a_program(ground: Ground) -> None:
    """A machine with udev, and a module that modprobe finds."""
    ground.run("rmmod", "ugds_drv")
    ground.run("modprobe", "nvme")
    ground.bind("nv0", "nvme")
    ground.kernel_disk("nv0")
    ground.run("/lib/systemd/systemd-udevd", "--daemon")
    userspace.install(ground.plan["modules"])
    block = the_one("docs/how-to/sysadmin.md", HERE, "groupadd")
    said: dict[str, str] = {}
    for command, _ in steps(block):
        done = run(ground, command)
        # It looks before the module is there, and says so.
        fine = (0, 1) if command.startswith("aiougds check") else (0,)
        assert done.returncode in fine, (command, done)
        said[command.partition("#")[0].strip()] = done.stdout
        ground.run("udevadm", "settle")
        has = "ugds_drv" if command.rstrip().endswith("--yes") else "nvme"
        assert ground.driver("nv0") == has or command.startswith("aiougds info")
    assert "fail  module" in said["aiougds check"]
    assert ground.address("nv0") in said["aiougds list"]
    (told,) = (text for words, text in said.items() if words.startswith("aiougds info"))
    assert "live" in told


@check(limit_s=100)
def a_drive_is_moved_by_three_writes(ground: Ground) -> None:
    ground.bind("nv0", "nvme")
    block = the_one("docs/how-to/sysadmin.md", HERE, "driver_override")
    done = run(ground, block.source)
    assert done.returncode == 0, done
    assert ground.driver("nv0") == "ugds_drv"


async def execute(block: Block, **names: object) -> None:
    """Run a part of a program, with ``await`` where it stands."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block.source, block.name, "exec", flags=flags, dont_inherit=True)
    result = types.FunctionType(code, names)()
    assert inspect.isawaitable(result)
    await result


@check(limit_s=60)
async def blocks_go_into_a_peers_memory_and_nowhere_else(ground: Ground) -> None:
    block = the_one("docs/reference/transports.md", HERE)
    with Peer(0) as peer, peer.memory(0, MIB) as far:
        far[:] = bytes(MIB)
        with peer.exported(0, MIB) as fd:
            async with aiougds.open(node(ground, "nv0")) as ns:
                await execute(block, ns=ns, fd=fd)
        read = ground.original("nv0-1", 0, 65536)
        assert far[:] == read + bytes(MIB - len(read))
