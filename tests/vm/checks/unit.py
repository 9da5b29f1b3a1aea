"""Booted by systemd: the unit gives what is configured to ugds_drv, udev the rest."""

from __future__ import annotations

import grp
import stat
import subprocess
import sys
import time
from pathlib import Path

from vm.guest.check import check
from vm.guest.ground import Ground
from vm.guest.kmsg import USUAL

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Path("/etc/aiougds/devices.toml")
UNIT = "aiougds-bind.service"
BOUND = '[[device]]\nserial = "nv0"\naddress = "{address}"\n'
IN_USE = '\n[[device]]\nserial = "nv1"\noverwrite = true\n'


def prepare(ground: Ground) -> None:
    """Install the package but for DKMS, whose work the bed has done."""
    build = str(ROOT / "kmod" / "package" / "build.py")
    package = ground.run(sys.executable, build, "/run/tmp").strip()
    ground.run("dpkg-deb", "-x", package, "/")
    ground.run("systemd-sysusers", "/usr/lib/sysusers.d/ugds.conf")
    program = Path(sys.executable).with_name("aiougds")
    Path("/etc/default/aiougds").write_text(f"AIOUGDS={program}\n")
    CONFIG.write_text(BOUND.format(address=ground.address("nv0")))
    ground.run("systemctl", "--root=/", "enable", UNIT)


def state(ground: Ground) -> str:
    """Return how the unit is, once it is no longer starting."""
    until = time.monotonic() + 60
    while True:
        ask = ("systemctl", "is-active", UNIT)
        found = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
        if found != "activating" or time.monotonic() > until:
            return found
        time.sleep(0.5)  # systemd tells nobody who only asks


def journal(ground: Ground) -> str:
    return ground.run("journalctl", "--no-pager", "-b", "-o", "cat", "-u", UNIT)


@check(limit_s=120)
def booting_binds_what_is_configured(ground: Ground) -> None:
    """Process 1 is systemd, and nobody has called anything by hand."""
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert state(ground) == "active", journal(ground)
    assert ground.driver("nv0") == "ugds_drv"
    override = ground.folder("nv0") / "driver_override"
    assert override.read_text() == "ugds_drv\n"
    assert ground.driver("nv1") == "nvme"  # udev's, and not configured


@check(limit_s=60)
def udev_gives_the_node_to_the_group_and_links_it(ground: Ground) -> None:
    """By the rule that the package brought, with nothing called by hand."""
    ground.run("udevadm", "settle")
    node = Path("/dev/ugds_drv0")
    found = node.stat()
    assert stat.filemode(found.st_mode) == "crw-rw----"
    assert grp.getgrgid(found.st_gid).gr_name == "ugds"
    assert Path("/dev/ugds/by-serial/nv0").resolve() == node


@check(limit_s=60)
def nobody_complains_of_what_the_package_brought(ground: Ground) -> None:
    """Neither udev nor systemd nor the module, of the rule, the unit or the group."""
    said = ground.run("journalctl", "--no-pager", "-b", "-o", "cat", "-p", "warning")
    ours = [line for line in said.splitlines() if "ugds" in line]
    assert [line for line in ours if not USUAL.search(line)] == []
    unit = f"/usr/lib/systemd/system/{UNIT}"
    assert "aiougds" not in ground.run("systemd-analyze", "verify", "--man=no", unit)


@check(limit_s=200)
def what_is_in_use_fails_the_unit_and_keeps_its_driver(ground: Ground) -> None:
    """It says so in the journal; once the use has ended, a restart is enough."""
    disk = str(ground.kernel_disk("nv1"))
    ground.run("mke2fs", "-q", "-F", disk)
    ground.run("mount", "-t", "ext4", disk, "/mnt")
    with CONFIG.open("a") as file:
        file.write(IN_USE)
    restart = ("systemctl", "restart", UNIT)
    assert subprocess.run(restart, timeout=90).returncode != 0
    assert state(ground) == "failed"
    assert "/mnt" in journal(ground)
    assert (ground.driver("nv0"), ground.driver("nv1")) == ("ugds_drv", "nvme")
    ground.run("umount", "/mnt")
    ground.run(*restart, timeout_s=90)
    assert state(ground) == "active"
    assert ground.driver("nv1") == "ugds_drv"
