"""``aiougds bind`` and ``unbind``: refused, tried, done, put back."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import stat
from pathlib import Path

import pytest
from helpers.command_line import CommandLine
from helpers.machine import MIB, Kernel, Machine

from aiougds.cli import _bind
from aiougds.cli._failures import CommandError, RefusedError
from aiougds.cli._host import record
from aiougds.cli._host.functions import find
from aiougds.cli._moves import Report

ROOT = Path(__file__).parent.parent.parent
ADDRESS = "0000:65:00.0"
FOLDER = f"/sys/bus/pci/devices/{ADDRESS}"
DRIVERS = "/sys/bus/pci/drivers"
OVERRIDE = f"{FOLDER}/driver_override"
GPT = (512, b"EFI PART")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "root")
    made.nvme()
    return made


@pytest.fixture
def kernel(machine: Machine) -> Kernel:
    return Kernel(machine)


def move(
    kernel: Kernel,
    action: str = "bind",
    name: str = ADDRESS,
    *,
    yes: bool = True,
    serial: str | None = None,
) -> Report:
    args = argparse.Namespace(address=name, yes=yes, serial=serial)
    return (_bind.bind if action == "bind" else _bind.unbind)(args, kernel)


def state(kernel: Kernel) -> tuple[str | None, str | None]:
    function = find(kernel, ADDRESS)
    return function.driver, function.override


def plant(machine: Machine, offset: int, magic: bytes, disk: str = "nvme0n1") -> None:
    with machine.at(f"/dev/{disk}").open("r+b") as file:
        file.seek(offset)
        file.write(magic)


def kinds(report: Report) -> list[str]:
    return [item.kind for item in report.blocking]


def test_there_and_back(kernel: Kernel) -> None:
    report = move(kernel)
    assert report.allowed
    assert report.after is not None
    assert (report.after.driver, report.after.node) == ("ugds_drv", "/dev/ugds_drv0")
    assert kernel.log == [
        f"ugds_drv > {OVERRIDE}",
        f"{ADDRESS} > {DRIVERS}/nvme/unbind",
        f"{ADDRESS} > {DRIVERS}/ugds_drv/bind",
    ]
    kernel.log.clear()
    report = move(kernel, "unbind", "/dev/ugds_drv0")
    assert report.after is not None
    assert report.after.driver == "nvme"
    assert kernel.log == [
        f" > {OVERRIDE}",
        f"{ADDRESS} > {DRIVERS}/ugds_drv/unbind",
        f"{ADDRESS} > {DRIVERS}/nvme/bind",
    ]
    assert state(kernel) == ("nvme", None)
    assert kernel.names("/run/aiougds") == []


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(kernel: Kernel) -> None:
    report = move(kernel, yes=False)
    assert report.allowed
    assert report.after is None
    assert [str(step) for step in report.steps] == [
        f"echo ugds_drv > {OVERRIDE}",
        f"echo {ADDRESS} > {DRIVERS}/nvme/unbind",
        f"echo {ADDRESS} > {DRIVERS}/ugds_drv/bind",
    ]
    assert kernel.log == []
    assert kernel.names("/run") == []
    assert state(kernel) == ("nvme", None)


def test_what_nvme_read_is_remembered_while_it_is_away(
    machine: Machine, kernel: Kernel
) -> None:
    machine.put(f"{FOLDER}/nvme/nvme0/serial", "S 1/2 \N{GREEK SMALL LETTER MU}\n")
    move(kernel)
    function = find(kernel, ADDRESS)
    assert (function.serial, function.model, function.known_from) == (
        "S 1/2 \N{GREEK SMALL LETTER MU}", "Model X", "bind"
    )  # fmt: skip
    assert function.nbytes is None  # nobody tells now
    path = machine.at(f"/run/aiougds/{ADDRESS}")
    assert "UGDS_SERIAL_LINK=S_1_2__\n" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0


def test_udev_imports_what_is_remembered(machine: Machine, kernel: Kernel) -> None:
    """The rule reads our file: its place, its format and its key are agreed on."""
    move(kernel)
    rule = (ROOT / "kmod/60-ugds.rules").read_text(encoding="utf-8")
    assert f'SUBSYSTEMS=="pci", IMPORT{{file}}="{record.FOLDER}/$id"' in rule
    assert 'GROUP="ugds", MODE="0660"' in rule
    text = machine.at(f"{record.FOLDER}/{ADDRESS}").read_text(encoding="utf-8")
    (key,) = set(re.findall(r"ENV\{(\w+)\}|\$env\{(\w+)\}", rule)[0]) - {""}
    assert f"$env{{{key}}}" in rule
    assert all(re.fullmatch(r"[A-Z_]+=.*", line) for line in text.splitlines())
    assert f"{key}=S1\n" in text


def test_another_drive_in_the_same_slot_is_not_taken_for_the_former(
    machine: Machine, kernel: Kernel
) -> None:
    move(kernel)
    path = machine.at(f"/run/aiougds/{ADDRESS}")
    now = f"UGDS_INCARNATION={record.incarnation(kernel, ADDRESS)}\n"
    assert now in path.read_text()
    path.write_text(path.read_text().replace(now, "UGDS_INCARNATION=1\n"))
    function = find(kernel, ADDRESS)
    assert (function.serial, function.known_from) == (None, None)


@pytest.mark.parametrize("text", ["", "nonsense", "UGDS_SERIAL=S1\n"])
def test_a_record_that_is_none_is_passed_over(
    machine: Machine, kernel: Kernel, text: str
) -> None:
    move(kernel)
    machine.put(f"/run/aiougds/{ADDRESS}", text)
    assert find(kernel, ADDRESS).serial is None
    report = move(kernel, "unbind")  # the kernel's driver is the one to go back to
    assert report.after is not None
    assert report.after.driver == "nvme"


@pytest.mark.parametrize(
    ("offset", "magic", "name"),
    [
        (*GPT, "GPT"),
        (510, b"\x55\xaa", "MBR or boot sector"),
        (0x438, b"\x53\xef", "ext2/ext3/ext4"),
        (0, b"XFSB", "XFS"),
        (0x10040, b"_BHRfS_M", "Btrfs"),
        (0x400, b"\x10\x20\xf5\xf2", "F2FS"),
        (0, b"LUKS\xba\xbe", "LUKS"),
        (512, b"LABELONE", "LVM2 physical volume"),
        (4096, bytes.fromhex("fc4e2ba9"), "Linux MD RAID 1.2"),
        (64 * MIB - 65536, bytes.fromhex("fc4e2ba9"), "Linux MD RAID 0.90"),
        (128 << 10, bytes.fromhex("0cb1ba0000000000"), "ZFS"),
        (64 * MIB - 4096 * 16, bytes.fromhex("0cb1ba0000000000"), "ZFS"),
        (4086, b"SWAPSPACE2", "swap"),
        (3, b"NTFS    ", "NTFS"),
        (0x52, b"FAT32   ", "FAT32"),
    ],
)
def test_what_lies_on_it_is_named_and_only_the_serial_number_overrides(
    machine: Machine, kernel: Kernel, offset: int, magic: bytes, name: str
) -> None:
    plant(machine, offset, magic)
    report = move(kernel)
    assert kinds(report) == ["signature"]
    assert f"/dev/nvme0n1 holds {name}" in report.refusal()
    assert "wipefs --all /dev/nvme0n1" in report.refusal()
    assert "--serial S1" in report.refusal()
    assert kernel.log == []
    with pytest.raises(RefusedError, match="'S2' is not the serial number"):
        move(kernel, serial="S2")
    assert kernel.log == []
    assert move(kernel, serial="S1").after is not None
    assert state(kernel) == ("ugds_drv", "ugds_drv")


def test_any_namespace_of_the_controller_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "two")
    machine.nvme(sizes=(MIB, MIB, MIB))
    plant(machine, *GPT, disk="nvme0n3")
    report = move(Kernel(machine))
    assert [item.device for item in report.blocking] == ["/dev/nvme0n3"]


def test_partitions_are_told_once(machine: Machine, kernel: Kernel) -> None:
    machine.partition("nvme0n1", 1)
    machine.partition("nvme0n1", 2)
    plant(machine, *GPT)
    report = move(kernel)
    assert kinds(report) == ["partitioned"]
    assert "has partitions: nvme0n1p1, nvme0n1p2" in report.refusal()


@pytest.mark.parametrize("use", ["mounted", "swap", "holder", "claimed", "exported"])
def test_use_is_refused_whatever_is_said(
    machine: Machine, kernel: Kernel, use: str
) -> None:
    machine.partition("nvme0n1")
    if use == "mounted":
        machine.mount("/dev/nvme0n1p1", "/mnt", machine.number("nvme0n1p1"))
    elif use == "swap":
        machine.add("/proc/swaps", "/dev/nvme0n1p1 partition 1 0 -2")
    elif use == "holder":
        machine.stacked("md0", "nvme0n1p1", md__level="raid1")
    elif use == "exported":
        place = "/sys/kernel/config/nvmet/subsystems/nqn.x/namespaces/1"
        machine.put(f"{place}/device_path", "/dev/nvme0n1p1\n")
        machine.put(f"{place}/enable", "1\n")
    if use != "exported":
        kernel.busy.add("/dev/nvme0n1")
    report = move(kernel, serial="S1")
    assert kinds(report) == [use]
    assert "--serial" not in report.refusal()
    assert kernel.log == []
    assert kernel.names("/run/aiougds") == []


def test_a_process_that_has_it_open_is_overridden_by_the_serial_number(
    machine: Machine, kernel: Kernel
) -> None:
    machine.process(100, "smartd", "/dev/nvme0")
    report = move(kernel)
    assert kinds(report) == ["process"]
    assert "smartd (process 100)" in report.refusal()
    assert move(kernel, serial="S1").after is not None


def test_what_cannot_be_read_is_not_taken_for_empty(
    machine: Machine, kernel: Kernel
) -> None:
    machine.at("/dev/nvme0n1").write_bytes(bytes(4096))  # it ends before its size
    report = move(kernel)
    assert kinds(report) == ["unreadable"]
    assert report.blocking[0].overridable
    machine.at("/dev/nvme0n1").unlink()
    report = move(kernel, serial="S1")
    assert kinds(report) == ["unknown"]
    assert "cannot be opened: No such file or directory" in report.refusal()


def test_a_namespace_of_no_size_is_not_taken_for_empty(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "none")
    machine.nvme(sizes=(0,))
    assert kinds(move(Kernel(machine))) == ["unreadable"]


def test_no_namespace_yet_is_not_taken_for_empty(tmp_path: Path) -> None:
    """The kernel looks for namespaces after the controller is there."""
    machine = Machine(tmp_path / "none")
    machine.nvme(sizes=())
    report = move(Kernel(machine))
    assert kinds(report) == ["unreadable"]
    assert "still looked through" in report.refusal()
    assert move(Kernel(machine), serial="S1").after is not None


@pytest.mark.parametrize("state", ["new", "resetting", "connecting", "dead"])
def test_a_controller_that_is_not_live_is_not_touched(
    machine: Machine, kernel: Kernel, state: str
) -> None:
    machine.put(f"{FOLDER}/nvme/nvme0/state", f"{state}\n")
    report = move(kernel, serial="S1")
    assert kinds(report) == ["unknown"]
    assert f"/dev/nvme0 is {state}, and not live" in report.refusal()
    machine.put(f"{FOLDER}/nvme/nvme0/state", "live\n")
    assert move(kernel).after is not None


@pytest.mark.parametrize("driver", [None, "vfio-pci"])
def test_without_nvme_nobody_knows_what_it_holds(
    machine: Machine, kernel: Kernel, driver: str | None
) -> None:
    machine.function("0000:66:00.0", driver=driver)
    report = move(kernel, name="0000:66:00.0")
    assert kinds(report) == ["unknown"]
    remedy = "aiougds unbind 0000:66:00.0 --yes" if driver is None else "nvme/bind"
    assert remedy in report.refusal()
    with pytest.raises(RefusedError, match="which is not known"):
        move(kernel, name="0000:66:00.0", serial="S1")


def test_unbind_gives_a_function_without_driver_to_nvme(
    machine: Machine, kernel: Kernel
) -> None:
    machine.function("0000:66:00.0")
    report = move(kernel, "unbind", "0000:66:00.0")
    assert report.after is not None
    assert report.after.driver == "nvme"


def test_both_are_done_when_there_is_nothing_to_do(kernel: Kernel) -> None:
    assert move(kernel, "unbind").note == "it is with nvme"
    move(kernel)
    kernel.log.clear()
    report = move(kernel)
    assert report.note == "it is with ugds_drv already"
    assert report.allowed
    assert kernel.log == []


def test_unbind_waits_for_the_program_that_uses_it(
    machine: Machine, kernel: Kernel
) -> None:
    move(kernel)
    machine.process(100, "python3", "/dev/ugds_drv0")
    kernel.log.clear()
    report = move(kernel, "unbind")
    assert kinds(report) == ["process"]
    assert "python3 (process 100)" in report.refusal()
    assert "--serial" not in report.refusal()
    assert kernel.log == []


@pytest.mark.parametrize("yes", [False, True])
def test_the_module_has_to_be_there(
    machine: Machine, kernel: Kernel, yes: bool
) -> None:
    for name in ("bind", "unbind"):
        machine.at(f"{DRIVERS}/ugds_drv/{name}").unlink()
    with pytest.raises(CommandError, match="nothing was changed: modprobe ugds_drv"):
        move(kernel, yes=yes)
    assert kernel.log == []
    assert kernel.names("/run/aiougds") == []


@pytest.mark.parametrize(
    "end", ["driver_override", "nvme/unbind", "ugds_drv/bind", "taken by nobody"]
)
def test_a_failure_midway_puts_things_back(
    machine: Machine, kernel: Kernel, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put(OVERRIDE, "nvme\n")
    kernel.failing[end] = errno.EIO
    if end == "taken by nobody":  # bind returns, and there is no driver
        plain = Kernel._bind

        def bind(self: Kernel, driver: str, address: str) -> None:
            if driver != "ugds_drv":
                plain(self, driver, address)

        monkeypatch.setattr(Kernel, "_bind", bind)
    with pytest.raises(CommandError, match=f"put back: {ADDRESS} is with nvme") as told:
        move(kernel)
    assert end in str(told.value) or "did not take" in str(told.value)
    assert state(kernel) == ("nvme", "nvme")
    assert kernel.names("/run/aiougds") == []


def test_a_failure_that_cannot_be_undone_is_told(kernel: Kernel) -> None:
    kernel.failing = {"ugds_drv/bind": errno.ENODEV, "nvme/bind": errno.ENODEV}
    words = f"it could NOT be put back: {ADDRESS} is with no driver, and was with nvme"
    with pytest.raises(CommandError, match=words):
        move(kernel)


def test_an_interrupt_midway_puts_things_back(kernel: Kernel) -> None:
    kernel.failing["ugds_drv/bind"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        move(kernel)
    assert state(kernel) == ("nvme", None)
    assert kernel.names("/run/aiougds") == []


def test_an_unbind_that_fails_stays_bound_and_remembered(kernel: Kernel) -> None:
    move(kernel)
    kernel.failing["nvme/bind"] = errno.EIO
    with pytest.raises(CommandError, match=f"put back: {ADDRESS} is with ugds_drv"):
        move(kernel, "unbind")
    assert state(kernel) == ("ugds_drv", "ugds_drv")
    assert find(kernel, ADDRESS).serial == "S1"


def test_the_former_driver_and_override_come_back(
    machine: Machine, kernel: Kernel
) -> None:
    machine.put(OVERRIDE, "nvme\n")
    move(kernel)
    move(kernel, "unbind")
    assert state(kernel) == ("nvme", "nvme")


def test_disks_stay_claimed_until_the_driver_has_let_go(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the unbind nobody can mount it."""
    open_fds: list[int] = []
    seen: list[bool] = []
    claim, write = Kernel.claim, Kernel.write

    def claiming(self: Kernel, node: str) -> int:
        open_fds.append(claim(self, node))
        return open_fds[-1]

    def writing(self: Kernel, name: str, text: str) -> None:
        if name.endswith("unbind"):
            seen.append(os.path.exists(f"/proc/self/fd/{open_fds[0]}"))
        write(self, name, text)

    monkeypatch.setattr(Kernel, "claim", claiming)
    monkeypatch.setattr(Kernel, "write", writing)
    move(kernel)
    assert seen == [True]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(open_fds[0])


def test_two_at_a_time_are_refused(kernel: Kernel) -> None:
    from aiougds.cli._host.binding import one_at_a_time

    with (
        one_at_a_time(kernel),
        pytest.raises(CommandError, match="another aiougds bind or unbind is at work"),
    ):
        move(kernel)
    assert move(kernel).after is not None


def test_json_of_a_dry_run_and_of_a_refusal(
    aiougds: CommandLine, machine: Machine
) -> None:
    told = json.loads(
        aiougds.succeed("bind", ADDRESS, "-o", "json", "--sysroot", machine.root)
    )
    assert told == {
        "schema": 1,
        "action": "bind",
        "address": ADDRESS,
        "model": "Model X",
        "serial": "S1",
        "allowed": True,
        "done": False,
        "note": "",
        "obstacles": [],
        "steps": [
            {"path": OVERRIDE, "value": "ugds_drv"},
            {"path": f"{DRIVERS}/nvme/unbind", "value": ADDRESS},
            {"path": f"{DRIVERS}/ugds_drv/bind", "value": ADDRESS},
        ],
        "driver_before": "nvme",
        "driver": "nvme",
        "node": None,
    }
    plant(machine, *GPT)
    done = aiougds("bind", "/dev/nvme0n1", "--json", "--sysroot", machine.root)
    assert done.returncode == 1
    assert done.stderr.startswith(f"aiougds: error: {ADDRESS} was not changed: ")
    assert done.stderr.count("\n") == 1
    told = json.loads(done.stdout)
    assert (told["allowed"], told["done"]) == (False, False)
    assert told["obstacles"] == [
        {
            "kind": "signature",
            "device": "/dev/nvme0n1",
            "holder": "holds GPT (partition table, at byte 512)",
            "remedy": "if its data is no longer wanted: wipefs --all /dev/nvme0n1",
            "overridable": True,
            "overridden": False,
        }
    ]


def test_text(aiougds: CommandLine, machine: Machine) -> None:
    plant(machine, *GPT)
    root = ("--sysroot", machine.root)
    out = aiougds.succeed("bind", ADDRESS, "--serial", "S1", *root)
    assert f"{ADDRESS}: Model X, serial S1, 64 MiB, with nvme\n" in out
    assert "(overridden by --serial)" in out
    assert f"      echo {ADDRESS} > {DRIVERS}/nvme/unbind\n" in out
    assert "goes without --sysroot" in aiougds.fail(2, "bind", ADDRESS, "--yes", *root)
    assert "nothing to do: it is with nvme" in aiougds.succeed("unbind", ADDRESS, *root)
