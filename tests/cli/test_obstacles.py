"""Who uses a drive: named, with the command that ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.machine import Kernel, Machine

from aiougds.cli._host.functions import find
from aiougds.cli._host.holders import volume_group
from aiougds.cli._host.obstacles import Obstacle, uses

ADDRESS = "0000:65:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.nvme()
    return made


def found(machine: Machine, address: str = ADDRESS) -> list[Obstacle]:
    system = Kernel(machine)
    return uses(system, find(system, address))


def only(machine: Machine, address: str = ADDRESS) -> tuple[str, str, str, str]:
    (item,) = found(machine, address)
    return item.kind, item.device, item.holder, item.remedy


def test_an_idle_drive_is_used_by_nobody(machine: Machine) -> None:
    machine.partition("nvme0n1")
    machine.nvme("0000:66:00.0", "nvme1")
    machine.mount("/dev/nvme1n1", "/other", machine.number("nvme1n1"))
    assert found(machine) == []


@pytest.mark.parametrize("part", [False, True])
def test_mounted(machine: Machine, part: bool) -> None:
    name = machine.partition("nvme0n1") if part else "nvme0n1"
    machine.mount("none", r"/my\040data", machine.number(name))
    assert only(machine) == (
        "mounted", f"/dev/{name}", "is mounted at /my data", "umount /my data"
    )  # fmt: skip


def test_btrfs_has_no_device_number_and_names_one_member(machine: Machine) -> None:
    """mountinfo says 0:N and the device that was given to mount."""
    machine.nvme("0000:66:00.0", "nvme1")
    machine.mount("/dev/nvme0n1", "/pool", "0:45", "btrfs")
    for disk in ("nvme0n1", "nvme1n1"):
        machine.link(f"/sys/fs/btrfs/UUID/devices/{disk}", f"/sys/class/block/{disk}")
    assert only(machine)[2] == "is mounted at /pool"
    kind, device, holder, remedy = only(machine, "0000:66:00.0")
    assert (kind, device, remedy) == ("mounted", "/dev/nvme1n1", "umount /pool")
    assert holder == "is part of Btrfs UUID, mounted at /pool"


def test_an_overlay_is_no_mount_of_the_disk_but_its_lower_layer_is(
    machine: Machine,
) -> None:
    machine.mount("overlay", "/merged", "0:50", "overlay")
    assert found(machine) == []
    machine.mount("/dev/nvme0n1", "/lower", machine.number("nvme0n1"))
    assert only(machine)[2] == "is mounted at /lower"


def test_bcachefs_names_all_its_devices_in_one_field(machine: Machine) -> None:
    machine.mount("/dev/vda:/dev/nvme0n1", "/big", "0:51", "bcachefs")
    assert only(machine)[2] == "is mounted at /big"


def test_mounts_of_other_namespaces_count(machine: Machine) -> None:
    """A container's mount is in no mountinfo but its own."""
    number = machine.number("nvme0n1")
    (machine.at("/proc/self/ns")).mkdir()
    machine.at("/proc/self/ns/mnt").symlink_to("mnt:[1]")
    for pid, namespace in (("7", "mnt:[1]"), ("8", "mnt:[2]"), ("9", "mnt:[2]")):
        machine.put(f"/proc/{pid}/mountinfo", "")
        machine.at(f"/proc/{pid}/ns").mkdir()
        machine.at(f"/proc/{pid}/ns/mnt").symlink_to(namespace)
    machine.put("/proc/8/mountinfo", f"1 2 {number} / /in rw - xfs /dev/nvme0n1 rw\n")
    assert only(machine)[2] == "is mounted at /in"


def test_a_line_that_is_no_mount_is_passed_over(machine: Machine) -> None:
    for line in ("", "garbage", "1 2 3 - 4", "1 2 3 4 5 6 - ext4"):
        machine.add("/proc/self/mountinfo", line)
    assert found(machine) == []


def test_swap_partition_and_not_a_swap_file(machine: Machine) -> None:
    machine.partition("nvme0n1", 3)
    machine.add("/proc/swaps", "/mnt/nvme0n1p3  file 1024 0 -2")  # of that name
    assert found(machine) == []
    machine.add("/proc/swaps", "/dev/nvme0n1p3  partition 1024 0 -2")
    node = "/dev/nvme0n1p3"
    assert only(machine) == ("swap", node, "is swapped to", f"swapoff {node}")


@pytest.mark.parametrize(
    ("name", "attributes", "holder", "remedy"),
    [
        (
            "dm-0",
            {"dm__name": "my--vg-root", "dm__uuid": "LVM-abcd"},
            "is a physical volume of the LVM group my-vg (active: my--vg-root)",
            "vgchange --activate n my-vg",
        ),
        (
            "dm-0",
            {"dm__name": "secret", "dm__uuid": "CRYPT-LUKS2-12ab-secret"},
            "is open as the LUKS 2 mapping secret",
            "cryptsetup close secret",
        ),
        (
            "dm-0",
            {"dm__name": "mpatha", "dm__uuid": "mpath-3600"},
            "is a path of the multipath map mpatha",
            "multipath -f mpatha",
        ),
        (
            "dm-0",
            {"dm__name": "thing", "dm__uuid": ""},
            "is part of the mapping thing",
            "dmsetup remove thing",
        ),
        (
            "md127",
            {"md__level": "raid1"},
            "is a member of the MD array /dev/md127 (raid1)",
            "mdadm --stop /dev/md127",
        ),
        (
            "bcache0",
            {"bcache__state": "clean"},
            "is part of the bcache device /dev/bcache0",
            "echo 1 > /sys/block/bcache0/bcache/stop",
        ),
        (
            "drbd1",
            {},
            "is held by /dev/drbd1",
            "stop using /dev/drbd1 and take it down",
        ),
    ],
)
def test_holders(
    machine: Machine,
    name: str,
    attributes: dict[str, str],
    holder: str,
    remedy: str,
) -> None:
    machine.partition("nvme0n1", 2)
    machine.stacked(name, "nvme0n1p2", **attributes)
    assert only(machine) == ("holder", "/dev/nvme0n1p2", holder, remedy)


def test_what_lies_on_a_stack_is_found_through_all_of_it(machine: Machine) -> None:
    """Disk, array, LUKS, LVM, and that one is mounted; a second one is swapped to."""
    machine.stacked("md0", "nvme0n1", md__level="raid0")
    machine.stacked("dm-0", "md0", dm__name="luks", dm__uuid="CRYPT-LUKS1-x")
    machine.stacked("dm-1", "dm-0", dm__name="vg-root", dm__uuid="LVM-x")
    machine.stacked("dm-2", "dm-0", dm__name="vg-swap", dm__uuid="LVM-y")
    machine.mount("/dev/mapper/vg-root", "/", machine.number("dm-1"))
    machine.add("/proc/swaps", "/dev/dm-2  partition 1024 0 -2")
    told = [(item.kind, item.device, item.holder) for item in found(machine)]
    assert ("holder", "/dev/md0", "is open as the LUKS 1 mapping luks") in told
    where = "/dev/mapper/vg-root"
    assert ("mounted", where, "is mounted at / and lies on /dev/nvme0n1") in told
    swap = "/dev/mapper/vg-swap"
    assert ("swap", swap, "is swapped to and lies on /dev/nvme0n1") in told
    assert [item.kind for item in found(machine)].count("holder") == 4


def test_a_loop_device_is_no_holder_and_is_found(machine: Machine) -> None:
    machine.stacked("loop3", loop__backing_file="/dev/nvme0n1")
    machine.stacked("loop4", loop__backing_file="/some/file")
    machine.mount("/dev/loop3", "/mnt", machine.number("loop3"))
    told = [(item.kind, item.holder) for item in found(machine)]
    assert told == [
        ("mounted", "is mounted at /mnt and lies on /dev/nvme0n1"),
        ("holder", "is behind the loop device /dev/loop3"),
    ]


@pytest.mark.parametrize("node", ["/dev/nvme0", "/dev/nvme0n1", "/dev/ng0n1"])
def test_processes_that_have_it_open(machine: Machine, node: str) -> None:
    machine.process(100, "postgres", "/dev/null", node, node)
    machine.process(101, "cat", "/dev/nvme1n1", "socket:[5]")
    assert only(machine) == (
        "process",
        node,
        "is open in postgres (process 100)",
        "end process 100 (postgres), or have it close the device",
    )


def test_the_module_tells_the_owner_of_a_node_to_everybody(machine: Machine) -> None:
    """Others' file descriptors are seen by root alone."""
    folder = machine.function("0000:70:00.0", driver="ugds_drv")
    owner = machine.put(f"{folder}/ugds_drv/ugds_drv3/owner", "0\n")
    assert found(machine, "0000:70:00.0") == []
    owner.write_text("100\n")
    machine.put("/proc/100/comm", "python3\n")
    told = ("process", "/dev/ugds_drv3", "is open in python3 (process 100)")
    assert only(machine, "0000:70:00.0")[:3] == told
    machine.process(100, "python3", "/dev/ugds_drv3")
    assert only(machine, "0000:70:00.0")[:3] == told


def test_a_guest_that_has_it_through_vfio(machine: Machine) -> None:
    machine.function("0000:70:00.0", driver="vfio-pci", group=9)
    machine.process(100, "qemu", "/dev/vfio/vfio", "/dev/vfio/9")
    told = ("process", "/dev/vfio/9", "is open in qemu (process 100)")
    assert only(machine, "0000:70:00.0")[:3] == told


def test_exported_over_fabrics(machine: Machine) -> None:
    place = "/sys/kernel/config/nvmet/subsystems/nqn.x/namespaces/7"
    machine.put(f"{place}/device_path", "/dev/nvme0n1\n")
    machine.put(f"{place}/enable", "0\n")
    assert found(machine) == []
    machine.put(f"{place}/enable", "1\n")
    assert only(machine) == (
        "exported",
        "/dev/nvme0n1",
        "is exported as namespace 7 of nqn.x",
        f"echo 0 > {place}/enable",
    )


def test_virtual_functions_end_with_their_physical_one(machine: Machine) -> None:
    machine.put(f"/sys/bus/pci/devices/{ADDRESS}/sriov_numvfs", "4\n")
    assert only(machine)[2:] == (
        "has 4 virtual functions, which end with it",
        f"echo 0 > /sys/bus/pci/devices/{ADDRESS}/sriov_numvfs",
    )


def test_another_controller_of_the_subsystem(machine: Machine) -> None:
    second = machine.nvme("0000:66:00.0", "nvme1", sizes=())
    top = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    machine.at("/sys/class/nvme-subsystem/nvme-subsys1").unlink()
    machine.link(f"{top}/nvme1", f"{second}/nvme/nvme1")
    kind, device, holder, _ = only(machine)
    assert (kind, device) == ("shared", "/dev/nvme0")
    assert "with the controller /dev/nvme1" in holder


def test_only_use_by_the_kernel_is_never_overridden(machine: Machine) -> None:
    machine.mount("/dev/nvme0n1", "/mnt", machine.number("nvme0n1"))
    machine.process(100, "cat", "/dev/nvme0n1")
    told = {item.kind: item.overridable for item in found(machine)}
    assert told == {"mounted": False, "process": True}


@pytest.mark.parametrize(
    ("title", "group"),
    [
        ("vg-lv", "vg"),
        ("a--b-c--d", "a-b"),
        ("vg-lv_rmeta_0", "vg"),
        ("vg-lv-real", "vg"),
    ],
)
def test_volume_groups(title: str, group: str) -> None:
    assert volume_group(title) == group
