"""Each thing that a type checker is told not to see says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).parent.parent
IGNORED = re.compile(r"# (?:type|pyright): ?ignore(?:\[[\w, -]+\])?(?P<why>  # \w.+)?")
# A comment "# typed: why" is good for the lines below it, of one call or a few.
LINES_BELOW = 12


def without_reason(lines: list[str]) -> list[int]:
    found = []
    for number, line in enumerate(lines, 1):
        hit = IGNORED.search(line)
        above = lines[max(0, number - LINES_BELOW) : number]
        if hit and not hit["why"] and not any("# typed: " in one for one in above):
            found.append(number)
    return found


def test_what_is_ignored_says_why() -> None:
    paths = [*(ROOT / "aiougds").rglob("*.py*"), *(ROOT / "examples").rglob("*.py")]
    paths += (ROOT / "docs").rglob("*.py")
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        if path.suffix in {".py", ".pyi"}
        for number in without_reason(path.read_text(encoding="utf-8").splitlines())
    ]
    assert not bare, (
        "a type checker is told to ignore what nobody explains: say why behind it"
        f" (# type: ignore[code]  # why), or above it (# typed: why): {', '.join(bare)}"
    )


def test_one_without_a_reason_is_found() -> None:
    hidden = "# type: " + "ignore[misc]"
    assert without_reason([f"x = 1  {hidden}"]) == [1]
    assert without_reason([f"x = 1  {hidden}  # it is"]) == []
    assert without_reason(["# typed: it is", f"x = 1  {hidden}"]) == []
    far = ["# typed: it is", *[""] * LINES_BELOW, f"x = 1  {hidden}"]
    assert without_reason(far) == [len(far)]
