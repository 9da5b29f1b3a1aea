"""The Debian package of the module: built, signed and loaded; a file binds; purged."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from documents.pages import the_one

from vm.guest.check import check
from vm.guest.ground import Ground

ROOT = Path(__file__).resolve().parents[3]
UNIT = Path("/usr/lib/systemd/system/aiougds-bind.service")
RULE = Path("/usr/lib/udev/rules.d/60-ugds.rules")
CONFIG = Path("/etc/aiougds/devices.toml")
LOADED = Path("/sys/module/ugds_drv")
SIGNER = "a key of the administrator"


def lay_headers() -> None:
    """Put the headers of this kernel where its packages would have put them."""
    modules = re.search(r"vm\.modules=(\S+)", Path("/proc/cmdline").read_text())
    assert modules is not None
    kernel = Path(modules[1]).parents[1]
    for path in (*kernel.glob("usr/src/*"), *kernel.glob("usr/lib/linux-kbuild-*")):
        where = Path("/") / path.relative_to(kernel)
        if not where.exists():
            where.symlink_to(path)


def lay_build_folder(release: str) -> None:
    for name, flavour in (("build", release), ("source", "common")):
        (headers,) = Path("/usr/src").glob(f"linux-headers-*{flavour}")
        link = Path("/lib/modules", release, name)
        link.unlink(missing_ok=True)
        link.symlink_to(headers)


def configure_key(ground: Ground) -> None:
    """Tell DKMS of a key of our own, as one that a machine owner has enrolled."""
    key, certificate = Path("/etc/dkms/key"), Path("/etc/dkms/key.der")
    ground.run(
        *("openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes"),
        *("-subj", f"/CN={SIGNER}/", "-days", "1", "-outform", "DER"),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    with Path("/etc/dkms/framework.conf").open("a") as file:
        file.write(f"mok_signing_key={key}\nmok_certificate={certificate}\n")


@check(limit_s=1500)
def installing_builds_signs_and_loads(ground: Ground) -> None:
    """``dpkg -i`` is all it takes, where headers are."""
    release = ground.plan["release"]
    lay_headers()
    lay_build_folder(release)
    dkms = ground.plan["packages"]["dkms"]
    ground.run("dpkg", "--force-depends", "-i", dkms, timeout_s=400)
    configure_key(ground)
    build = str(ROOT / "kmod" / "package" / "build.py")
    made = ground.run(sys.executable, build, "/run/tmp").strip()
    ground.run("dpkg", "-i", made, timeout_s=1400)
    status = ground.run("dkms", "status", "-m", "ugds_drv")
    assert f"{release}, x86_64: installed" in status
    assert LOADED.exists()
    assert ground.run("modinfo", "-F", "signer", "ugds_drv").strip() == SIGNER
    assert ground.run("getent", "group", "ugds").startswith("ugds:")
    assert RULE.read_bytes() == (ROOT / "kmod" / "60-ugds.rules").read_bytes()


def command_of_the_unit(*more: str) -> subprocess.CompletedProcess[str]:
    """Run what the unit runs; no systemd is here."""
    (line,) = re.findall(r"^ExecStart=/usr/bin/env (.+)$", UNIT.read_text(), re.M)
    line = line.replace("${AIOUGDS}", f"{shlex.quote(sys.executable)} -m aiougds.cli")
    return subprocess.run(
        [*shlex.split(line), *more], capture_output=True, text=True, timeout=100
    )


def serial(ground: Ground, name: str) -> str:
    (controller,) = (ground.folder(name) / "nvme").iterdir()
    return (controller / "serial").read_text().strip()


@check(limit_s=200)
def the_units_command_binds_what_is_free(ground: Ground) -> None:
    """One that is mounted stays as it is, and keeps no other from being bound."""
    ground.run("modprobe", "nvme")
    for name in ("nv0", "nv1"):
        if ground.driver(name) != "nvme":
            ground.bind(name, "nvme")
    assert command_of_the_unit().returncode == 0  # as installed, it names none
    disk = str(ground.kernel_disk("nv1"))
    ground.kernel_disk("nv0")
    ground.run("mke2fs", "-q", "-F", disk)
    ground.run("mount", "-t", "ext4", disk, "/mnt")
    drives = [
        f'[[device]]\nserial = "{serial(ground, name)}"\noverwrite = true\n'
        for name in ("nv1", "nv0")
    ]
    CONFIG.write_text("\n".join(drives))
    done = command_of_the_unit()
    assert done.returncode == 1, done.stderr
    assert "is mounted" in done.stderr or "/mnt" in done.stderr
    assert (ground.driver("nv0"), ground.driver("nv1")) == ("ugds_drv", "nvme")
    ground.run("umount", "/mnt")
    done = command_of_the_unit()
    assert done.returncode == 0, done.stderr
    assert ground.driver("nv1") == "ugds_drv"


@check(limit_s=200)
def purging_leaves_nothing(ground: Ground) -> None:
    """A drive that it has keeps it loaded, which is said; without, nothing is left."""
    aiougds = (sys.executable, "-m", "aiougds.cli")
    for name in ("nv0", "nv1"):
        if ground.driver(name) == "ugds_drv":
            ground.run(*aiougds, "unbind", ground.address(name), "--yes")
    ground.run("dpkg", "-P", "ugds-drv-dkms", timeout_s=150)
    assert not LOADED.exists()
    left = [UNIT, RULE, CONFIG.parent, Path("/etc/default/aiougds")]
    left += Path("/usr/src").glob("ugds_drv-*")
    left += Path("/lib/modules", ground.plan["release"]).rglob("ugds_drv*")
    assert [str(path) for path in left if path.exists()] == []
    assert "ugds" not in ground.run("dkms", "status")
    assert subprocess.run(["getent", "group", "ugds"]).returncode != 0


@check(limit_s=1400)
def the_module_is_built_by_hand(ground: Ground) -> None:
    """As docs/reference/uapi.md has it, in the checkout, where headers are."""
    lay_headers()
    lay_build_folder(ground.plan["release"])
    block = the_one("docs/reference/uapi.md", "vm/checks/deb.py")
    shell = ("sh", "-e", "-c", f"cd {shlex.quote(str(ROOT))}\n{block.source}")
    ground.run(*shell, timeout_s=1300)
    assert LOADED.exists()
    ground.run("rmmod", "ugds_drv")
