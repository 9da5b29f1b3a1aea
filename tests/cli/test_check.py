"""``aiougds check``: each lack is named, with its fix."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from helpers.command_line import CommandLine
from helpers.machine import MIB, ROOT_PORT, Kernel, Machine

from aiougds.cli import _check
from aiougds.cli._host import access
from aiougds.cli._host.access import Answer
from aiougds.cli._host.checks import acs, gpu, iommu, memory, nodes, software
from aiougds.cli._host.checks.finding import Finding
from aiougds.cli._host.system import System

ROOT = Path(__file__).parent.parent.parent
ADDRESS = "0000:65:00.0"
NOBODY = "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t{}\n"
NOBODY += "CapEff:\t0000000000000000\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "root")


@pytest.fixture
def kernel(machine: Machine) -> Kernel:
    return Kernel(machine)


def bound(machine: Machine) -> str:
    folder = machine.function(ADDRESS, driver="ugds_drv")
    machine.put(f"{folder}/ugds_drv/ugds_drv0/dev", "240:0\n")
    machine.put("/dev/ugds_drv0").chmod(0o660)
    return folder


def told(found: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(item.status, item.text) for item in found]


def one(found: Iterable[Finding]) -> Finding:
    (item,) = found
    assert bool(item.fix) == (item.status != "ok")  # a complaint comes with a fix
    return item


def test_every_complaint_has_a_fix_and_json_is_stable(
    aiougds: CommandLine, machine: Machine
) -> None:
    done = aiougds("check", "-o", "json", "--sysroot", machine.root)
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")  # the module is missing
    assert set(report) == {"schema", "status", "checks"}
    assert (report["schema"], report["status"]) == (1, "fail")
    names = [check["name"] for check in report["checks"]]
    assert names == [
        "python", "kernel", "module", "udev", "group", "devices", "iommu", "memlock",
        "hugepages", "gpu", "p2p",
    ]  # fmt: skip
    for check in report["checks"]:
        assert set(check) == {"name", "status", "text", "fix"}
        assert check["status"] in ("ok", "warn", "fail")
        assert bool(check["fix"]) == (check["status"] != "ok")


def test_warnings_alone_are_status_0(aiougds: CommandLine, machine: Machine) -> None:
    machine.put("/sys/module/ugds_drv/version", "0.1.0\n")
    out = aiougds.succeed("check", "--sysroot", machine.root)
    lines = out.splitlines()
    assert any(re.match(r"ok +module +ugds_drv 0\.1\.0 is loaded$", x) for x in lines)
    assert any(re.match(r"warn +hugepages ", x) for x in lines)
    assert any(re.match(r" +fix: sysctl vm\.nr_hugepages", x) for x in lines)


def test_the_real_machine_is_looked_at_without_harm() -> None:
    """Whatever runs the tests: no exception, and statuses that exist."""
    found = _check.findings(System())
    assert {item.status for item in found} <= {"ok", "warn", "fail"}


@pytest.mark.parametrize(
    ("release", "status"), [("6.1.0-57", "ok"), ("5.19.1", "warn"), ("", "warn")]
)
def test_kernels(machine: Machine, kernel: Kernel, release: str, status: str) -> None:
    machine.put("/proc/sys/kernel/osrelease", release)
    assert one(software.kernel(kernel)).status == status


def test_module(machine: Machine, kernel: Kernel) -> None:
    item = one(software.module(kernel))
    assert (item.status, "DKMS" in item.fix) == ("fail", True)
    listed = "/lib/modules/6.1.0-57-amd64/modules.dep"
    machine.put(
        listed, "kernel/a.ko.xz:\nupdates/dkms/ugds_drv.ko.xz: kernel/a.ko.xz\n"
    )
    item = one(software.module(kernel))
    assert "updates/dkms/ugds_drv.ko.xz can be" in item.text
    assert item.fix.startswith("modprobe ugds_drv")
    machine.put("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    assert one(software.module(kernel)).fix.startswith("sign it")
    machine.put("/sys/module/ugds_drv/refcnt", "0\n")
    assert one(software.module(kernel)).status == "ok"


def test_udev_rule_and_group(machine: Machine, kernel: Kernel) -> None:
    assert [item.status for item in nodes.udev(kernel)] == ["warn", "warn"]
    machine.put(
        "/etc/udev/rules.d/60-ugds.rules", (ROOT / "kmod/60-ugds.rules").read_bytes()
    )
    machine.put("/etc/udev/rules.d/README", "ugds_drv")
    machine.put("/etc/group", "root:x:0:\nugds:x:998:alice\n")
    assert told(nodes.udev(kernel)) == [
        ("ok", "/etc/udev/rules.d/60-ugds.rules"),
        ("ok", "this process may open the nodes of the group ugds"),
    ]
    machine.put("/proc/self/status", NOBODY.format("4 24"))
    assert list(nodes.udev(kernel))[1].fix.startswith("usermod --append --groups ugds")
    machine.put("/proc/self/status", NOBODY.format("4 998"))
    assert list(nodes.udev(kernel))[1].status == "ok"


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (Answer((1, 7)), "ok", "version 1.7"),
        (Answer((2, 0)), "fail", "version 2.0"),
        (Answer(None, errno.EBUSY), "ok", "in use"),
        (Answer(None, errno.EACCES), "fail", "may not open it"),
        (Answer(None, errno.EPERM), "fail", "CAP_SYS_RAWIO"),
        (Answer(None, errno.EIO), "fail", os.strerror(errno.EIO)),
    ],
)
def test_nodes_are_asked(
    machine: Machine, kernel: Kernel, answer: Answer, status: str, words: str
) -> None:
    bound(machine)
    item = one(nodes.nodes(kernel, lambda system, node: answer))
    assert (item.name, item.status) == ("/dev/ugds_drv0", status)
    assert words in item.text


def test_nodes_in_use_are_not_asked(machine: Machine, kernel: Kernel) -> None:
    bound(machine)
    machine.process(100, "python3", "/dev/ugds_drv0")

    def never(system: System, node: str) -> Answer:
        raise AssertionError(node)

    item = one(nodes.nodes(kernel, never))
    assert (item.status, item.text) == ("ok", "in use by python3 (process 100)")


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o662])
def test_nodes_for_everybody_are_refused(
    machine: Machine, kernel: Kernel, mode: int
) -> None:
    bound(machine)
    machine.at("/dev/ugds_drv0").chmod(mode)
    item = one(nodes.nodes(kernel))
    assert (item.status, "chmod 0660" in item.fix) == ("fail", True)


def test_nodes_that_are_not_there(machine: Machine, kernel: Kernel) -> None:
    assert one(nodes.nodes(kernel)).status == "warn"
    bound(machine)
    machine.at("/dev/ugds_drv0").unlink()
    assert one(nodes.nodes(kernel)).status == "fail"


def test_a_file_is_no_node_of_ours(machine: Machine, kernel: Kernel) -> None:
    bound(machine)
    assert access.ask(kernel, "/dev/ugds_drv0") == Answer(None, errno.ENOTTY)
    assert access.ask(kernel, "/dev/ugds_drv1") == Answer(None, errno.ENOENT)


def test_the_question_is_the_one_of_the_interface() -> None:
    """The layout that is packed here is that of the header."""
    header = (ROOT / "kmod/uapi/ugds_ioctl.h").read_text(encoding="utf-8")
    major = re.search(r"#define UGDS_DRV_API_MAJOR (\d+)", header)
    magic = re.search(r"#define UGDS_DRV_IOC (0x\w+)", header)
    assert major is not None
    assert magic is not None
    assert int(major[1]) == access.API_MAJOR
    assert int(magic[1], 16) << 8 == access._INFO
    body = re.search(r"struct ugds_drv_info \{(.*?)\n\};", header, re.DOTALL)
    assert body is not None
    letters = {"__u16": "H", "__u32": "I", "__s32": "i", "__u64": "Q"}
    kinds = re.findall(r"(__[us]\d+) \w+;", body[1])
    native = struct.Struct("@" + "".join(letters[kind] for kind in kinds))
    assert access._INFO_LAYOUT.format == "=" + native.format[1:]
    assert access._INFO_LAYOUT.size == native.size  # no padding


def test_iommu(machine: Machine, kernel: Kernel) -> None:
    machine.nvme()
    item = one(iommu.iommu(kernel))
    assert (item.status, "which this process has" in item.text) == ("warn", True)
    machine.put("/sys/module/ugds_drv/parameters/allow_no_iommu", "Y\n")
    item = one(iommu.iommu(kernel))
    assert (item.status, "allow_no_iommu is set" in item.text) == ("warn", True)
    machine.put("/sys/module/ugds_drv/parameters/allow_no_iommu", "N\n")
    machine.put("/proc/self/status", NOBODY.format(""))
    machine.put("/proc/cpuinfo", "vendor_id : GenuineIntel\n")
    item = one(iommu.iommu(kernel))
    assert (item.status, "intel_iommu=on" in item.fix) == ("fail", True)
    assert "CAP_SYS_RAWIO" in item.fix
    machine.iommu_group(12, [ADDRESS], "identity")
    assert "(passed through)" in one(iommu.iommu(kernel)).text
    machine.iommu_group(12, [ADDRESS], "DMA")
    assert one(iommu.iommu(kernel)).status == "ok"


def test_iommu_without_drives(machine: Machine, kernel: Kernel) -> None:
    assert one(iommu.iommu(kernel)).text.startswith("is off")
    machine.put("/sys/class/iommu/dmar0/x")
    assert one(iommu.iommu(kernel)).status == "ok"


def test_members_of_an_iommu_group(machine: Machine, kernel: Kernel) -> None:
    machine.nvme()
    machine.function("0000:65:00.1", kind="0x020000", driver="vfio-pci")
    machine.iommu_group(12, [ADDRESS, ROOT_PORT])
    assert list(iommu.groups(kernel)) == []  # a bridge is no stranger
    machine.iommu_group(12, [ADDRESS, ROOT_PORT, "0000:65:00.1"])
    item = one(iommu.groups(kernel))
    assert f"{ADDRESS} shares group 12 with 0000:65:00.1 (vfio-pci)" in item.text


@pytest.mark.parametrize(
    ("limit", "status"), [("8388608", "warn"), ("67108864", "ok"), ("unlimited", "ok")]
)
def test_memlock(machine: Machine, kernel: Kernel, limit: str, status: str) -> None:
    machine.put("/proc/self/limits", f"Max locked memory  {limit}  {limit}  bytes\n")
    assert one(memory.memlock(kernel)).status == "ok"  # root has CAP_IPC_LOCK
    machine.put("/proc/self/status", NOBODY.format(""))
    assert one(memory.memlock(kernel)).status == status


def test_hugepages(machine: Machine, kernel: Kernel) -> None:
    assert "none are set aside" in one(memory.hugepages(kernel)).text
    machine.put(f"{memory.HUGE}/nr_hugepages", "8\n")
    machine.put(f"{memory.HUGE}/free_hugepages", "0\n")
    assert "all are in use" in one(memory.hugepages(kernel)).text
    machine.put(f"{memory.HUGE}/free_hugepages", "3\n")
    assert one(memory.hugepages(kernel)).text == "3 of 8 pages of 2 MiB are free"


def card(machine: Machine, size: int, vendor: str = "0x10de", start: int = 1 << 40):
    folder = machine.function("0000:17:00.0", kind="0x030200", vendor=vendor)
    registers = "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200"
    memory = f"{start:#018x} {start + size - 1:#018x} 0x000000000014220c"
    rest = "\n".join(["0x0 0x0 0x0"] * 5)
    machine.put(f"{folder}/resource", f"{registers}\n{memory}\n{rest}\n")


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 26 2023\n"


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        (OPEN.format("550.40.07"), "ok", "550.40.07, open"),
        (OPEN.format("590.2"), "ok", "590.2"),
        (OPEN.format("550.40.06"), "warn", "older than 550.40.07"),
        (OPEN.format("535.104.05"), "warn", "older than"),
        (CLOSED.format("570.133.20"), "warn", "closed kernel module"),
        ("", "warn", "not loaded"),
    ],
)
def test_nvidia(
    machine: Machine, kernel: Kernel, version: str, status: str, words: str
) -> None:
    card(machine, 80 << 30)
    machine.put("/proc/driver/nvidia/version", version)
    driver, room = gpu.gpu(kernel)
    assert (driver.status, words in driver.text) == (status, True)
    assert room == Finding(
        "gpu 0000:17:00.0", "ok", "NVIDIA: 80 GiB can be reached from other devices"
    )


def test_a_gpu_without_room_on_the_bus_is_the_cause_that_is_named(
    machine: Machine, kernel: Kernel
) -> None:
    card(machine, 80 << 30, start=0)
    room = list(gpu.gpu(kernel))[1]
    assert (room.status, "no room for its BAR" in room.text) == ("warn", True)
    assert "Above 4G decoding" in room.fix
    assert "host memory work all the same" in room.fix


def test_a_small_bar_and_amd(machine: Machine, kernel: Kernel) -> None:
    card(machine, 256 * MIB, vendor="0x1002")
    driver, room = gpu.gpu(kernel)
    assert "modprobe amdgpu" in driver.fix
    assert (room.status, "256 MiB" in room.text) == ("warn", True)
    machine.put("/sys/module/amdgpu/refcnt", "1")
    assert next(iter(gpu.gpu(kernel))).status == "ok"


def test_p2p_in_the_kernels_configuration(machine: Machine, kernel: Kernel) -> None:
    card(machine, 80 << 30)
    assert "cannot be seen" in one(gpu.p2p(kernel)).text
    machine.put("/proc/config.gz", gzip.compress(b"CONFIG_PCI_P2PDMA=y\n"))
    assert one(gpu.p2p(kernel)).text == "the kernel has CONFIG_PCI_P2PDMA"
    machine.put("/boot/config-6.1.0-57-amd64", "# CONFIG_PCI_P2PDMA is not set\n")
    assert one(gpu.p2p(kernel)).status == "warn"


def acs_space(control: int, *, offset: int = 0x148) -> bytes:
    """Config space with two extended capabilities, the second is ACS."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | offset << 20)
    struct.pack_into("<IHH", space, offset, 0x000D | 1 << 16, 0x5F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "redirects"),
    [
        (acs_space(0x1D), True),
        (acs_space(0x04), True),
        (acs_space(0x11), False),
        (acs_space(0x1D)[:256], False),  # what others than root see
        (acs_space(0x1D)[:0x14C], False),
        (b"", False),
        (b"\xff" * 4096, False),
        (struct.pack("<I", 1 | 1 << 16 | 0x100 << 20).rjust(0x104, b"\0") * 2, False),
    ],
)
def test_acs(machine: Machine, kernel: Kernel, space: bytes, redirects: bool) -> None:
    machine.nvme()
    machine.put(f"/sys/bus/pci/devices/{ROOT_PORT}/config", space)
    assert acs.redirecting(kernel, ADDRESS) == [ROOT_PORT] * redirects
    card(machine, 80 << 30)
    texts = [item.text for item in gpu.p2p(kernel)]
    assert any(f"at {ROOT_PORT}" in text for text in texts) == redirects
