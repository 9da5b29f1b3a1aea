"""``aiougds list``: what is told of each function, and nothing that is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import CommandLine
from helpers.machine import MIB, Kernel, Machine

from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._host.functions import find, functions


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "root")


def test_json_has_stable_names(
    aiougds: CommandLine, machine: Machine, tmp_path: Path
) -> None:
    machine.nvme(sizes=(64 * MIB, 32 * MIB), group=12)
    machine.partition("nvme0n1")
    machine.mount("/dev/nvme0n1p1", "/home", machine.number("nvme0n1p1"))
    told = json.loads(aiougds.succeed("list", "-o", "json", "--sysroot", machine.root))
    assert told["schema"] == 1
    (function,) = told["functions"]
    assert function == {
        "address": "0000:65:00.0",
        "pci_id": "8086:0a54",
        "driver": "nvme",
        "driver_override": None,
        "controller": "nvme0",
        "node": None,
        "model": "Model X",
        "serial": "S1",
        "firmware": "1.0",
        "known_from": "nvme",
        "nbytes": 96 * MIB,
        "numa_node": 0,
        "iommu_group": "12",
        "iommu_type": "DMA-FQ",
        "iommu_members": [],
        "virtual_functions": 0,
        "namespaces": [
            {
                "node": "/dev/nvme0n1",
                "nsid": 1,
                "nbytes": 64 * MIB,
                "lba_bytes": 512,
                "partitions": ["/dev/nvme0n1p1"],
            },
            {
                "node": "/dev/nvme0n2",
                "nsid": 2,
                "nbytes": 32 * MIB,
                "lba_bytes": 512,
                "partitions": [],
            },
        ],
        "held_by": [
            {
                "kind": "mounted",
                "device": "/dev/nvme0n1p1",
                "holder": "is mounted at /home",
            }
        ],
    }


def test_text_says_the_same_and_a_dash_for_what_nobody_tells(
    aiougds: CommandLine, machine: Machine
) -> None:
    machine.nvme(group=12)
    machine.function("0000:66:00.0", numa=-1)
    machine.function("0000:67:00.0", kind="0x020000")  # a network card
    out = aiougds.succeed("list", "--sysroot", machine.root)
    lines = [line.split() for line in out.splitlines()]
    known = ["0000:65:00.0", "/dev/nvme0", "nvme", "Model", "X", "S1", "64", "MiB"]
    assert [*known, "0", "12", "-"] in lines
    assert ["0000:66:00.0", *["-"] * 8] in lines
    assert "67:00.0" not in out


def test_a_machine_without_drives(aiougds: CommandLine, machine: Machine) -> None:
    out = aiougds.succeed("list", "--sysroot", machine.root)
    assert out == "No NVMe function on the PCI bus.\n"
    told = aiougds.succeed("list", "--json", "--sysroot", machine.root)
    assert json.loads(told) == {"schema": 1, "functions": []}


def test_what_nvme_pads_is_stripped_and_odd_bytes_do_no_harm(machine: Machine) -> None:
    folder = machine.nvme()
    machine.put(f"{folder}/nvme/nvme0/serial", b"  \xff S 1\0\0 \n")
    (function,) = functions(Kernel(machine))
    assert function.serial == "\N{REPLACEMENT CHARACTER} S 1"


def test_a_multipath_namespace_is_the_disk_of_its_subsystem(machine: Machine) -> None:
    """The controllers have hidden paths; the disk has the index of the subsystem."""
    first = machine.nvme(sizes=())
    second = machine.nvme("0000:66:00.0", "nvme1", sizes=())
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    machine.at("/sys/class/nvme-subsystem/nvme-subsys1").unlink()
    machine.link(f"{subsystem}/nvme1", f"{second}/nvme/nvme1")
    machine.disk("nvme0n1", f"{subsystem}/nvme0n1", 64 * MIB, 1)
    for number, folder in enumerate((first, second)):
        path = f"{folder}/nvme/nvme{number}/nvme0c{number}n1"
        machine.put(f"{path}/hidden", "1\n")
        machine.link(f"/sys/class/block/nvme0c{number}n1", path)
    system = Kernel(machine)
    for function in functions(system):
        assert [disk.node for disk in function.disks] == ["/dev/nvme0n1"]
        assert function.nbytes == 64 * MIB
    with pytest.raises(CommandError, match=r"say which: 0000:65:00\.0, 0000:66:00\.0"):
        find(system, "/dev/nvme0n1")
    assert find(system, "/dev/nvme1").address == "0000:66:00.0"


@pytest.mark.parametrize(
    "name",
    ["0000:65:00.0", "65:00.0", "/dev/nvme0", "/dev/nvme0n1", "/dev/disk/by-id/drive"],
)
def test_a_function_has_many_names(machine: Machine, name: str) -> None:
    machine.nvme()
    machine.nvme("0000:66:00.0", "nvme1")
    machine.link("/dev/disk/by-id/drive", "/dev/nvme0n1")
    assert find(Kernel(machine), name).address == "0000:65:00.0"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("nvme0", UsageError, "neither a PCI address such as"),
        ("0000:65:00.8", UsageError, "neither a PCI address"),
        ("0000:99:00.0", CommandError, "no such PCI function"),
        ("67:00.0", CommandError, "is not an NVMe function"),
        ("/dev/nvme7", CommandError, "/dev/nvme7 does not exist"),
        ("/dev/sda", CommandError, "/dev/sda is of no NVMe function"),
        ("/dev/nvme0n1p1", CommandError, "is a partition of /dev/nvme0n1"),
    ],
)
def test_names_that_name_no_function(
    machine: Machine, name: str, error: type[CommandError], words: str
) -> None:
    machine.nvme()
    machine.partition("nvme0n1")
    machine.function("0000:67:00.0", kind="0x020000")
    machine.put("/dev/sda")
    with pytest.raises(error, match=words):
        find(Kernel(machine), name)


def test_nvme10_is_not_nvme1(machine: Machine) -> None:
    machine.nvme("0000:65:00.0", "nvme1")
    machine.nvme("0000:66:00.0", "nvme10")
    system = Kernel(machine)
    assert find(system, "/dev/nvme1").address == "0000:65:00.0"
    assert find(system, "/dev/nvme10n1").address == "0000:66:00.0"
