"""``aiougds list``, ``bind``, ``unbind`` and ``check`` on a real sysfs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from aiougds.cli import main
from vm.guest.check import check
from vm.guest.ground import Ground

BLKRRPART = 0x125F
MIB = 1 << 20


class Said(NamedTuple):
    """What a command ended with, and printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def aiougds(*words: str) -> Said:
    """Run a command in this process: another interpreter would take seconds here."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return Said(status, out.getvalue(), err.getvalue())


def disk_of(ground: Ground, name: str) -> str:
    """Have the kernel's driver take a controller; return its first disk."""
    if not Path("/sys/bus/pci/drivers/nvme").exists():
        ground.run("modprobe", "nvme")
    if ground.driver(name) != "nvme":
        ground.bind(name, "nvme")
    return str(ground.kernel_disk(name))


def listed(ground: Ground, name: str) -> dict[str, Any]:
    functions: list[dict[str, Any]] = aiougds("list", "-o", "json").json["functions"]
    assert isinstance(functions, list)
    (one,) = (f for f in functions if f["address"] == ground.address(name))
    assert isinstance(one, dict)
    return one


def refused(ground: Ground, name: str, *words: str) -> list[tuple[str, str]]:
    """Try to bind for good, which has to change nothing; return kinds and holders."""
    said = aiougds("bind", ground.address(name), "--yes", "-o", "json", *words)
    assert (said.status, ground.driver(name)) == (1, "nvme"), said
    assert "was not changed" in said.err
    assert said.json["done"] is said.json["allowed"] is False
    assert not list(Path("/run/aiougds").iterdir())
    obstacles: list[dict[str, Any]] = said.json["obstacles"]
    assert isinstance(obstacles, list)
    for item in obstacles:
        assert item["remedy"]
    left = [item for item in obstacles if not item["overridden"]]
    return [(item["kind"], f"{item['device']} {item['holder']}") for item in left]


def empty(node: str, nbytes: int = 4 * MIB) -> None:
    with open(node, "r+b") as file:
        file.write(bytes(nbytes))


@contextmanager
def folder() -> Generator[str]:
    with tempfile.TemporaryDirectory(dir="/run/tmp") as name:
        yield name


@contextmanager
def process(*words: str) -> Generator[subprocess.Popen[bytes]]:
    """A process that says a line when it is ready, and then waits."""
    ready = subprocess.PIPE
    with subprocess.Popen(words, stdin=ready, stdout=ready) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child
        finally:
            child.kill()


def until(true: Callable[[], bool], timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)  # the kernel does it in its own time


@check(limit_s=60)
def lists_every_drive(ground: Ground) -> None:
    nodes = {name: disk_of(ground, name) for name in ("nv0", "nv1")}
    for name, node in nodes.items():
        found = listed(ground, name)
        assert (found["serial"], found["driver"]) == (name, "nvme")
        assert (found["model"], found["known_from"]) == ("QEMU NVMe Ctrl", "nvme")
        assert found["held_by"] == []
        spaces: list[dict[str, object]] = found["namespaces"]
        assert isinstance(spaces, list)
        assert spaces[0]["node"] == node
        assert all(space["nbytes"] == 64 * MIB for space in spaces)
        assert found["nbytes"] == 64 * MIB * len(spaces)
        group = ground.folder(name) / "iommu_group"
        number = group.resolve().name if group.exists() else None
        assert found["iommu_group"] == number
        assert (number is not None) == ground.iommu
    text = aiougds("list").out
    assert ground.address("nv0") in text
    assert "nv1" in text


@check(limit_s=30)
def tells_a_dash_where_nobody_knows(ground: Ground) -> None:
    disk_of(ground, "nv0")
    ground.release("nv0")
    found = listed(ground, "nv0")
    unknown = ("driver", "serial", "model", "nbytes", "controller", "node")
    assert [found[key] for key in unknown] == [None] * len(unknown)
    said = aiougds("bind", ground.address("nv0"), "--yes")
    assert said.status == 1
    assert "has no driver, so what it holds" in said.out
    assert aiougds("unbind", ground.address("nv0"), "--yes").status == 0
    assert ground.driver("nv0") == "nvme"


@check(limit_s=30)
def a_dry_run_changes_nothing(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    said = aiougds("bind", node)
    assert (said.status, said.err) == (0, "")
    assert (
        f"echo {ground.address('nv0')} > /sys/bus/pci/drivers/nvme/unbind" in said.out
    )
    assert ground.driver("nv0") == "nvme"
    assert Path(node).is_block_device()
    override = (ground.folder("nv0") / "driver_override").read_text().strip()
    assert override == "(null)"


@check(limit_s=60)
def goes_there_and_back(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    with open(node, "r+b") as file:
        file.write(b"kept " * 1000)
    assert aiougds("bind", node, "--yes").status == 0
    assert ground.driver("nv0") == "ugds_drv"
    found = listed(ground, "nv0")
    assert (found["serial"], found["known_from"]) == ("nv0", "bind")
    own = str(found["node"])
    assert Path(own).is_char_device()
    until(lambda: not Path(node).exists())
    record = Path(f"/run/aiougds/{ground.address('nv0')}").read_text()
    assert "UGDS_SERIAL_LINK=nv0\n" in record
    # Nobody else gets it: not at a rescan, not when nvme is told to take what is free.
    Path("/sys/bus/pci/rescan").write_text("1")
    Path("/sys/bus/pci/drivers_probe").write_text(ground.address("nv0"))
    assert ground.driver("nv0") == "ugds_drv"
    assert "already" in aiougds("bind", own, "--yes").out
    dry = aiougds("unbind", own)
    assert (dry.status, ground.driver("nv0")) == (0, "ugds_drv")
    assert aiougds("unbind", own, "--yes").status == 0
    assert ground.driver("nv0") == "nvme"
    with open(ground.kernel_disk("nv0"), "rb") as file:
        assert file.read(5000) == b"kept " * 1000
    assert not list(Path("/run/aiougds").iterdir())
    assert listed(ground, "nv0")["known_from"] == "nvme"


@check(limit_s=60)
def stays_while_it_is_open(ground: Ground) -> None:
    disk_of(ground, "nv0")
    assert aiougds("bind", ground.address("nv0"), "--yes").status == 0
    own = str(listed(ground, "nv0")["node"])
    with process("sh", "-c", f"exec 3<>{own}; echo ready; read x") as child:
        said = aiougds("unbind", own, "--yes")
        assert said.status == 1
        assert f"is open in sh (process {child.pid})" in said.out
        assert ground.driver("nv0") == "ugds_drv"
        held: list[dict[str, object]] = listed(ground, "nv0")["held_by"]
        assert isinstance(held, list)
        assert [item["kind"] for item in held] == ["process"]
    assert aiougds("unbind", own, "--yes").status == 0


@check(limit_s=60)
def refuses_what_is_mounted(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    ground.run("mke2fs", "-q", "-F", node)
    found = refused(ground, "nv0")
    ext4 = ("signature", f"{node} holds ext2/ext3/ext4 (filesystem, at byte 1080)")
    assert found == [ext4]
    with folder() as point:
        ground.run("mount", node, point)
        try:
            mounted = ("mounted", f"{node} is mounted at {point}")
            assert refused(ground, "nv0")[0] == mounted
            assert refused(ground, "nv0", "--serial", "nv0") == [mounted]
            assert listed(ground, "nv0")["held_by"]
            assert os.path.ismount(point)
        finally:
            ground.run("umount", point)
    said = aiougds("bind", node, "--yes", "--serial", "nv1")
    assert (said.status, ground.driver("nv0")) == (1, "nvme")
    assert "is not the serial number" in said.err
    assert aiougds("bind", node, "--yes", "--serial", "nv0").status == 0
    assert ground.driver("nv0") == "ugds_drv"
    assert aiougds("unbind", ground.address("nv0"), "--yes").status == 0
    ground.run("wipefs", "--all", str(ground.kernel_disk("nv0")))
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def refuses_what_another_mount_namespace_has(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    ground.run("mke2fs", "-q", "-F", node)
    script = f"mount {node} /mnt && echo ready && read x"
    with process("unshare", "--mount", "sh", "-c", script):
        assert not os.path.ismount("/mnt")
        found = refused(ground, "nv0", "--serial", "nv0")
    assert found == [("mounted", f"{node} is mounted at /mnt")]
    until(lambda: aiougds("bind", node, "--serial", "nv0").status == 0)
    empty(node)


@check(limit_s=60)
def refuses_swap(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    ground.run("mkswap", node)
    ground.run("swapon", node)
    try:
        assert refused(ground, "nv0", "--serial", "nv0") == [
            ("swap", f"{node} is swapped to")
        ]
    finally:
        ground.run("swapoff", node)
    (found,) = refused(ground, "nv0")
    assert found[1].startswith(f"{node} holds swap (volume")
    empty(node)


@check(limit_s=60)
def refuses_partitions(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0])
    entry += (2048).to_bytes(4, "little") + (65536).to_bytes(4, "little")
    with open(node, "r+b") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        file.flush()
        os.fsync(file.fileno())
        fcntl.ioctl(file.fileno(), BLKRRPART)
    part = f"{node}p1"
    until(Path(part).exists)
    found = refused(ground, "nv0")
    assert found == [("partitioned", f"{node} has partitions: {Path(part).name}")]
    ground.run("mke2fs", "-q", "-F", part)
    with folder() as point:
        ground.run("mount", part, point)
        try:
            found = refused(ground, "nv0", "--serial", "nv0")
            assert found == [("mounted", f"{part} is mounted at {point}")]
        finally:
            ground.run("umount", point)
    said = aiougds("bind", part)
    assert (said.status, f"{part} is a partition of {node}" in said.err) == (1, True)
    empty(node)
    with open(node, "rb") as file:
        fcntl.ioctl(file.fileno(), BLKRRPART)
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def refuses_what_lies_below_a_mapping(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    empty(node)
    ground.run("modprobe", "dm_mod")
    table = f"0 65536 linear {node} 2048"
    ground.run("dmsetup", "create", "below", "--noudevsync", "--table", table)
    try:
        found = refused(ground, "nv0", "--serial", "nv0")
        assert found == [("holder", f"{node} is part of the mapping below")]
        # Without udev the node may have no name but its number.
        name = next(Path(f"/sys/block/{Path(node).name}/holders").iterdir()).name
        ground.run("mke2fs", "-q", "-F", f"/dev/{name}")
        with folder() as point:
            ground.run("mount", f"/dev/{name}", point)
            try:
                found = refused(ground, "nv0", "--serial", "nv0")
                over = f"is mounted at {point} and lies on {node}"
                assert ("mounted", f"/dev/mapper/below {over}") in found
            finally:
                ground.run("umount", point)
    finally:
        ground.run("dmsetup", "remove", "--noudevsync", "below")
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def refuses_what_lies_behind_a_loop_device(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    ground.run("modprobe", "loop")
    loop = ground.run("losetup", "--find", "--show", node).strip()
    try:
        found = refused(ground, "nv0", "--serial", "nv0")
        assert found == [("holder", f"{node} is behind the loop device {loop}")]
    finally:
        ground.run("losetup", "--detach", loop)
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def refuses_what_is_open(ground: Ground) -> None:
    node = disk_of(ground, "nv0")
    with process("sh", "-c", f"exec 3<{node}; echo ready; read x") as child:
        found = refused(ground, "nv0")
        assert found == [("process", f"{node} is open in sh (process {child.pid})")]
    fd = os.open(node, os.O_RDONLY | os.O_EXCL)  # as a kernel's claim: by nobody seen
    try:
        ((kind, _),) = refused(ground, "nv0", "--serial", "nv0")
        assert kind == "claimed"
    finally:
        os.close(fd)
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def looks_at_every_namespace(ground: Ground) -> None:
    node = disk_of(ground, "nv1")
    second = node.removesuffix("n1") + "n2"
    until(Path(second).exists)
    with open(second, "r+b") as file:
        file.seek(512)
        file.write(b"EFI PART")
    found = refused(ground, "nv1")
    assert [(kind, text.split()[0]) for kind, text in found] == [("signature", second)]
    empty(second)
    assert aiougds("bind", node).status == 0


@check(limit_s=60)
def knows_the_other_way_to_a_namespace(ground: Ground) -> None:
    """Two controllers of one subsystem, one namespace: a disk with two paths."""
    disk_of(ground, "nv2")
    ground.bind("nv3", "nvme")
    address = ground.address("nv2")
    until(lambda: bool(listed(ground, "nv3")["namespaces"]))
    one, two = (listed(ground, name) for name in ("nv2", "nv3"))
    assert one["namespaces"] == two["namespaces"]
    spaces: list[dict[str, str]] = one["namespaces"]
    assert isinstance(spaces, list)
    said = aiougds("bind", spaces[0]["node"])
    assert said.status == 1
    assert f"{address}, {ground.address('nv3')}" in said.err
    other = f"shares its namespaces with the controller /dev/{two['controller']}"
    ((kind, text),) = refused(ground, "nv2")
    assert (kind, other in text) == ("shared", True)
    serial = str(one["serial"])
    assert aiougds("bind", address, "--yes", "--serial", serial).status == 0
    assert ground.driver("nv2") == "ugds_drv"
    assert aiougds("unbind", address, "--yes").status == 0


@check(limit_s=60)
def says_what_is_missing(ground: Ground) -> None:
    disk_of(ground, "nv0")
    assert aiougds("bind", ground.address("nv0"), "--yes").status == 0
    try:
        said = aiougds("check", "-o", "json")
        checks: list[dict[str, str]] = said.json["checks"]
        assert isinstance(checks, list)
        found = {item["name"]: item for item in checks}
        assert found["kernel"]["text"] == ground.plan["release"]
        assert found["module"]["status"] == "ok"
        assert found["iommu"]["status"] == ("ok" if ground.iommu else "warn")
        assert all(bool(item["fix"]) == (item["status"] != "ok") for item in checks)
        node = found[str(listed(ground, "nv0")["node"])]
        assert (node["status"], "version 1." in node["text"]) == ("ok", True), node
        assert said.status == 0
        assert "fix: " in aiougds("check").out
    finally:
        assert aiougds("unbind", ground.address("nv0"), "--yes").status == 0
