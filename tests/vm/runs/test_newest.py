"""Every module builds for the newest kernel that Debian has, without a warning."""

from __future__ import annotations

import pytest
from vm.bed.cache import ROOT
from vm.bed.newest import build_for_newest

FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for top in ("kmod", "tests/vm/kmod")
    for path in (ROOT / top).rglob("Kbuild")
)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_build_for_the_newest_kernel(folder: str) -> None:
    assert list(build_for_newest(folder).glob("*.ko"))
