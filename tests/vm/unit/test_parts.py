"""The smaller parts of the bed: archives, patterns, lists, what is missing."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from vm.bed import needs
from vm.bed.cache import made_once
from vm.bed.initramfs import closure, cpio
from vm.bed.kernels import WANTED, Kernel
from vm.bed.launch import command_script
from vm.bed.newest import NAME, numbers
from vm.guest.check import checks_in
from vm.guest.pattern import SECTOR, pattern


def test_archive_is_as_the_format_says() -> None:
    archive = cpio([("a", stat.S_IFREG | 0o644, b"xyz")])
    assert len(archive) % 4 == 0
    header = archive[:110]
    assert header[:6] == b"070701"
    fields = [int(header[at : at + 8], 16) for at in range(6, 110, 8)]
    assert fields[1] == stat.S_IFREG | 0o644
    assert (fields[6], fields[11]) == (3, 2)
    assert archive[110:112] == b"a\0"
    assert archive[112:115] == b"xyz"
    assert b"TRAILER!!!\0" in archive


def test_modules_come_after_those_they_need(tmp_path: Path) -> None:
    kernel = Kernel("6.1", "r", tmp_path)
    kernel.modules.mkdir(parents=True)
    (kernel.modules / "modules.dep").write_text(
        "fs/9p.ko: net/9pnet.ko lib/netfs.ko\nnet/9pnet.ko:\nlib/netfs.ko:\n"
        "net/9pnet_virtio.ko.xz: net/9pnet.ko\n"
    )
    (kernel.modules / "modules.builtin").write_text("drivers/virtio-pci.ko\n")
    found = closure(kernel, ("virtio_pci", "9pnet_virtio", "9p"))
    names = [path.name for path in found]
    assert names == ["9pnet.ko", "9pnet_virtio.ko.xz", "netfs.ko", "9p.ko"]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("./boot/vmlinuz-6.1.0-57-amd64", True),
        ("./boot/System.map-6.1.0-57-amd64", False),
        ("./lib/modules/6.1.0/modules.builtin", True),
        ("./lib/modules/6.1.0/kernel/drivers/nvme/host/nvme.ko", True),
        ("./lib/modules/6.1.0/kernel/drivers/net/dummy.ko", True),
        ("./lib/modules/6.1.0/kernel/drivers/net/ethernet/x.ko", False),
        ("./lib/modules/6.1.0/kernel/drivers/gpu/drm/amd/amdgpu.ko", False),
    ],
)
def test_only_what_guests_use_is_unpacked(path: str, wanted: bool) -> None:
    assert bool(WANTED.match(path)) == wanted


def test_newest_release_is_told_by_its_numbers() -> None:
    names = ("7.2.11+deb13-amd64", "7.10.1+deb13-amd64", "7.2.9+deb13-amd64")
    assert max(names, key=numbers) == "7.10.1+deb13-amd64"
    assert NAME.match(f"linux-headers-{names[0]} - Linux for 64-bit PCs")
    assert not NAME.match("linux-headers-7.2.11+deb13-rt-amd64 - Linux")


def test_every_sector_of_every_disk_differs() -> None:
    block = pattern("nv0-1", 7, 8)
    assert len(block) == 8 * SECTOR
    sectors = {block[at : at + SECTOR] for at in range(0, len(block), SECTOR)}
    sectors |= {pattern("nv1-1", 7, 1)}
    assert len(sectors) == 9
    assert pattern("nv0-1", 9, 1) == block[2 * SECTOR : 3 * SECTOR]


def test_checks_are_found_in_order() -> None:
    found = list(checks_in(("vm.checks.notices",)))
    assert found[:3] == ["passes", "passes_on_a_loop", "fails"]
    assert found[-1] == "comes_too_late"


def test_two_checks_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from vm.guest.check import check\n@check()\ndef passes(ground): ...\n"
    (tmp_path / "twice_named.py").write_text(text)
    # typed: pytest gives the path no type
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(ValueError, match="two checks are named passes"):
        checks_in(("vm.checks.notices", "twice_named"))


def test_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "made"

    def fail_half_way() -> None:
        with made_once(final) as partial:
            assert partial is not None
            (partial / "half").touch()
            raise OSError

    with pytest.raises(OSError):
        fail_half_way()
    assert not final.exists()
    with made_once(final) as partial:
        assert partial is not None
        assert not list(partial.iterdir())
        (partial / "whole").touch()
    with made_once(final) as partial:
        assert partial is None
    assert (final / "whole").exists()


def test_guest_runs_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UGDS_INTERRUPT_MODE", "a b")
    script = command_script(["sh", "-c", 'echo "$1 $UGDS_INTERRUPT_MODE"', "x", "it's"])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.stdout == "it's a b\n"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "missing_packages", lambda: ["qemu-system-x86", "kmod"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(needs.Missing, match=r"apt-get install .* qemu-system-x86 kmod"):
        needs.require()


def test_static_programs_are_told_from_others() -> None:
    assert not needs.is_static(Path(sys.executable).resolve())
    assert not needs.is_static(Path("no such file"))


def test_package_lists_without_one_of_the_kernels_are_fetched_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"6.1": "6.1.0-57-amd64", "6.12": None}
    monkeypatch.setattr(needs, "release_of", known.get)
    assert not needs.known_kernels()
    known["6.12"] = "6.12.117+deb12-amd64"
    assert needs.known_kernels()
