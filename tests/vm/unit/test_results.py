"""What a guest left is read as what happened, also where it left little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from vm.bed.run import Result, died_booting, fate, read_result

Line = dict[str, object]
UP: Line = {"event": "up", "seconds": 4.5}
READY: Line = {"event": "ready", "detail": ""}
DONE: Line = {"event": "done", "detail": ""}
GOOD = 33


def started(name: str) -> Line:
    return {"event": "started", "name": name}


def ended(name: str, outcome: str = "passed", detail: str = "") -> Line:
    line: Line = {"event": "ended", "name": name, "outcome": outcome}
    return {**line, "seconds": 0.5, "detail": detail}


def left(share: Path, *lines: Line, cut: str = "", code: int = GOOD) -> Result:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (share / "results.jsonl").write_text(text + cut)
    return read_result(share, ["first", "second"], code, 9.0)


def test_all_went_well(tmp_path: Path) -> None:
    lines = (UP, READY, started("first"), ended("first"), started("second"))
    result = left(tmp_path, *lines, ended("second"), DONE)
    assert result.trouble == ""
    assert result.boot_s == 4.5
    assert {o.state for o in result.outcomes.values()} == {"passed"}


def test_failure_brings_its_detail(tmp_path: Path) -> None:
    failed = ended("first", "failed", "because")
    result = left(tmp_path, UP, READY, started("first"), failed, DONE)
    assert result.outcome("first").state == "failed"
    assert result.outcome("first").detail == "because"


def test_check_that_never_reported_has_failed(tmp_path: Path) -> None:
    result = left(tmp_path, UP, READY, started("first"), code=0)
    assert "panic" in result.trouble
    assert result.outcome("first").state == "missing"
    assert "while it ran" in result.outcome("first").detail
    assert "before it began" in result.outcome("second").detail


def test_check_left_out_by_a_run_that_went_well_has_failed(tmp_path: Path) -> None:
    result = left(tmp_path, UP, READY, started("first"), ended("first"), DONE)
    assert result.trouble == ""
    assert result.outcome("second").state == "missing"


def test_guest_that_never_came_up(tmp_path: Path) -> None:
    result = read_result(tmp_path, ["first"], 124, 9.0)
    assert "did not end in time" in result.trouble
    assert "never began" in result.trouble
    assert result.outcome("first").state == "missing"
    assert result.boot_s is None


def test_modules_that_did_not_load(tmp_path: Path) -> None:
    assert "not all loaded" in left(tmp_path, UP, code=35).trouble


def test_line_cut_off_is_no_result(tmp_path: Path) -> None:
    result = left(tmp_path, UP, READY, started("first"), cut='{"event": "ended", "na')
    assert result.outcome("first").state == "missing"


def test_complaint_outside_of_checks_is_trouble(tmp_path: Path) -> None:
    ready: Line = {"event": "ready", "detail": "the kernel said what it must not"}
    assert "must not" in left(tmp_path, UP, ready, DONE).trouble
    late: Line = {"event": "done", "detail": "late words"}
    assert "late words" in left(tmp_path, UP, READY, late).trouble


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (GOOD, ""),
        (35, "runner ended with 1"),
        (33 + 2 * 9, "runner ended with 9"),
        (0, "panic"),
        (1, "did not start"),
        (124, "in time"),
        (137, "killed"),
        (3, "QEMU ended with 3"),
        (-6, "QEMU ended with -6"),
    ],
)
def test_status_is_told_in_words(status: int, said: str) -> None:
    assert said in fate(status)
    assert bool(fate(status)) == bool(said)


def test_emulation_that_broke_the_kernel_at_boot_is_told_from_a_panic(
    tmp_path: Path,
) -> None:
    console = tmp_path / "console.log"
    console.write_text("[    6.0] Oops: general protection fault: 0000 [#1]\n")
    assert not died_booting(tmp_path)
    console.write_text("[    6.0] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n")
    assert died_booting(tmp_path)
    left(tmp_path, UP)  # something of ours has run: it may be to blame
    assert not died_booting(tmp_path)
