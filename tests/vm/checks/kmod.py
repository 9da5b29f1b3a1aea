"""The kernel helper by itself: its calls, and every way in which an open file ends."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from vm.guest.check import check
from vm.guest.ground import Ground

CLASS = Path("/sys/class/ugds_drv")
MODULE = Path("/sys/module/ugds_drv")
DRIVER = Path("/sys/bus/pci/drivers/ugds_drv")


def node(ground: Ground, name: str = "nv0") -> str:
    """Have the helper take a controller; return its device node."""
    if ground.driver(name) != "ugds_drv":
        ground.bind(name, "ugds_drv")
    (made,) = (ground.folder(name) / "ugds_drv").iterdir()
    return f"/dev/{made.name}"


def pins() -> int:
    """Return how many pages are pinned for devices, in the whole guest."""
    # Processors count for themselves and add it up now and then; this makes them.
    Path("/proc/sys/vm/stat_refresh").write_text("1")
    lines = Path("/proc/vmstat").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split() for line in lines)}
    return counts["nr_foll_pin_acquired"] - counts["nr_foll_pin_released"]


def mappings() -> int:
    return int((MODULE / "parameters" / "mappings").read_text())


@contextmanager
def nothing_left() -> Generator[None]:
    """Have a part of a check leave no mapping and no pinned page."""
    before = pins()
    yield
    assert mappings() == 0
    assert pins() == before


@contextmanager
def running(*command: str) -> Generator[subprocess.Popen[str]]:
    """Start a program that says READY; its end is awaited and must be good."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        yield process
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.wait()


@check(limit_s=30)
def every_call_checks_its_arguments(ground: Ground) -> None:
    with nothing_left():
        ground.run(ground.program("kmod_calls"), node(ground))


@check(limit_s=30)
def dma_interrupts_and_resets_work(ground: Ground) -> None:
    with nothing_left():
        ground.run(ground.program("kmod_dma"), node(ground))


@check(limit_s=60)
def killed_openers_leave_nothing_behind(ground: Ground) -> None:
    with nothing_left():
        ground.run(ground.program("kmod_life"), node(ground), "killed")


@check(limit_s=90)
def many_mappings_and_large_ones(ground: Ground) -> None:
    Path("/proc/sys/vm/nr_hugepages").write_text("4")
    with nothing_left():
        print(ground.run(ground.program("kmod_many"), node(ground)), flush=True)
    Path("/proc/sys/vm/nr_hugepages").write_text("0")


@check()
def only_the_opener_may_call(ground: Ground) -> None:
    ground.run(ground.program("kmod_life"), node(ground), "shared")


@check()
def another_program_is_another_opener(ground: Ground) -> None:
    ground.run(ground.program("kmod_life"), node(ground), "exec")
    assert mappings() == 0


def owner(path: str) -> int:
    return int((CLASS / Path(path).name / "owner").read_text())


@check()
def an_open_file_holds_the_module(ground: Ground) -> None:
    path = node(ground)
    with running(ground.program("kmod_life"), path, "hold") as process:
        assert owner(path) == process.pid
        refused = subprocess.run(["rmmod", "ugds_drv"], capture_output=True, text=True)
        assert refused.returncode != 0
        assert "in use" in refused.stderr
    assert owner(path) == 0


@check(limit_s=30)
def unbinding_an_open_function(ground: Ground) -> None:
    path = node(ground)
    with nothing_left(), running(ground.program("kmod_life"), path, "removed"):
        ground.release("nv0")
        assert not Path(path).exists()
    assert node(ground) == path  # an address keeps its number


@check(limit_s=60)
def unplugging_an_open_function(ground: Ground) -> None:
    path = node(ground, "nv1")
    with nothing_left(), running(ground.program("kmod_life"), path, "removed"):
        ground.qmp.device_del("nv1")
        ground.qmp.wait_event("DEVICE_DELETED")
    assert not Path(path).exists()
    assert CLASS.joinpath("ugds_drv0").exists()


@check(limit_s=30)
def a_reset_from_outside(ground: Ground) -> None:
    path = node(ground)
    with nothing_left(), running(ground.program("kmod_life"), path, "interrupted"):
        (ground.folder("nv0") / "reset").write_text("1")


SEED = random.randrange(1 << 32)


def fuzz(ground: Ground, *options: str) -> None:
    seed = str(SEED)
    words = (ground.program("fuzz_ioctl"), node(ground), "8", seed, *options)
    with nothing_left():
        print(ground.run(*words), flush=True)


@check(limit_s=60)
def calls_at_random(ground: Ground) -> None:
    fuzz(ground)


@check(limit_s=60)
def calls_at_random_from_32_bits(ground: Ground) -> None:
    fuzz(ground, "compat")


@check()
def only_an_override_binds(ground: Ground) -> None:
    folder = ground.folder("nv0")
    ground.release("nv0")
    override = folder / "driver_override"
    override.write_text("\n")
    ids = [(folder / name).read_text().strip() for name in ("vendor", "device")]
    with suppress(OSError):  # kernels refuse it where a driver has no table
        (DRIVER / "new_id").write_text(" ".join(ids))
    (DRIVER.parents[1] / "drivers_probe").write_text(folder.name)
    assert ground.driver("nv0") != "ugds_drv"
    ground.bind("nv0", "ugds_drv")


@check(allows=(r"not an NVMe I/O controller",))
def nothing_but_nvme_is_bound(ground: Ground) -> None:
    folder = ground.folder("peer0")
    (folder / "driver_override").write_text("ugds_drv")
    (DRIVER.parents[1] / "drivers_probe").write_text(folder.name)
    assert ground.driver("peer0") is None
    (folder / "driver_override").write_text("\n")
    assert any("not an NVMe" in message.text for message in ground.messages())


def opens_as_nobody(path: str) -> bool:
    """Whether a user without capabilities may open a node that file modes allow."""
    Path(path).chmod(0o666)
    code = f"import os; os.setuid(65534); os.open({path!r}, os.O_RDWR)"
    done = subprocess.run(["python3", "-c", code], capture_output=True, text=True)
    if done.returncode:
        assert "Operation not permitted" in done.stderr, done.stderr
    return done.returncode == 0


@check(limit_s=40)
def physical_addresses_need_a_capability(ground: Ground) -> None:
    path = node(ground)
    assert opens_as_nobody(path) == ground.iommu
    relaxed = MODULE / "parameters" / "allow_no_iommu"
    relaxed.write_text("1")
    assert opens_as_nobody(path)
    relaxed.write_text("0")
    assert opens_as_nobody(path) == ground.iommu
    Path(path).chmod(0o600)


@check()
def vectors_are_named_while_bound(ground: Ground) -> None:
    path = node(ground)
    name = f"{Path(path).name}-q"
    assert name not in Path("/proc/interrupts").read_text()
    with running(ground.program("kmod_life"), path, "hold"):
        lines = Path("/proc/interrupts").read_text().splitlines()
        (line,) = (line for line in lines if name in line)
        assert line.endswith(f"{name}1")
    assert name not in Path("/proc/interrupts").read_text()


@check()
def the_kernel_takes_it_back(ground: Ground) -> None:
    """After the helper let go, the kernel's own driver finds a working controller."""
    node(ground)
    ground.run("modprobe", "nvme")
    ground.bind("nv0", "nvme")
    disk = os.open(ground.kernel_disk("nv0"), os.O_RDONLY)
    try:
        assert os.pread(disk, 4096, 0) == ground.original("nv0-1", 0, 4096)
    finally:
        os.close(disk)
    ground.bind("nv0", "ugds_drv")
