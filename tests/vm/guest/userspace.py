"""Have systemd boot this guest: what is done before it, by process 1.

The root is the host's own, copy-on-write. What the host has enabled is not this
guest's, so all that is left to boot is what Debian's systemd does by itself, what the
``prepare`` of a module of checks adds, and the unit that runs the checks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from vm.guest.ground import Ground, Module, here

ETC = Path("/etc/systemd/system")
START = Path(__file__).with_name("start.sh")
RUNNER = f"""\
[Unit]
Description=Checks of the test bed
# All that boots has been tried by then, and has ended or failed.
After=multi-user.target

[Service]
ExecStart=/bin/busybox sh {START} checks
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
"""
# They wait for what no guest has, or look after a machine for longer than one lives.
NOT_HERE = ("systemd-networkd-wait-online.service", "serial-getty@ttyS0.service")


def forget_the_hosts_own() -> None:
    """Leave nothing enabled, nothing to mount, and no first boot to be greeted."""
    shutil.rmtree(ETC, ignore_errors=True)
    ETC.mkdir(parents=True)
    for name in NOT_HERE:
        (ETC / name).symlink_to("/dev/null")
    Path("/etc/fstab").write_text("")
    # A checkout or an interpreter may lie in /tmp, which a boot would empty.
    Path("/etc/tmpfiles.d/tmp.conf").unlink(missing_ok=True)
    Path("/etc/tmpfiles.d/tmp.conf").symlink_to("/dev/null")
    Path("/etc/machine-id").write_text("0" * 31 + "1\n")


def enable(name: str) -> None:
    """Have the default target want a unit."""
    wants = ETC / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (found,) = (
        path
        for folder in (ETC, Path("/usr/lib/systemd/system"))
        if (path := folder / name).exists()
    )
    (wants / name).symlink_to(found)


def install(modules: list[Module]) -> None:
    """Have modprobe find our modules; depmod would read all of Debian's for minutes."""
    lines = (
        f"install {Path(one['path']).stem}"
        f" /sbin/insmod {' '.join((one['path'], *one['parameters']))}\n"
        for one in modules
    )
    Path("/etc/modprobe.d/aiougds-vm.conf").write_text("".join(lines))


def main() -> None:
    ground = here()
    forget_the_hosts_own()
    (ETC / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (ETC / "checks.service").write_text(RUNNER)
    enable("checks.service")
    install(ground.plan["modules"])
    boots = ground.plan["boots"]
    assert boots is not None
    prepare: Callable[[Ground], None] = import_module(boots).prepare
    prepare(ground)


if __name__ == "__main__":
    main()
