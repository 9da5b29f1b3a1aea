"""The end of a CI log names what failed, whichever tool said so."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from helpers.of_each import chosen_of_each

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent

# From real runs: ThreadSanitizer stopped a C test, a Python test failed twice.
LOG = """\
nox > Running session tests-3.11
tests/vm/unit/test_parts.py .................                            [ 92%]
=========================== short test summary info ============================
FAILED tests/life/test_close.py::test_close_drains[asyncio-poll-step] - assert 0
ERROR tests/life/test_close.py::test_close_twice - RuntimeError: left open
= 1 failed, 253 passed, 2 skipped, 7 deselected, 1 error in 236.4s (0:03:56) =
\x1b[31mnox > Session tests-3.11 failed.\x1b[0m
nox > Running session native(tsan)
26/36 aiougds:test_stream_order    OK               3.91s   102 subtests passed
27/36 aiougds:test_stream_race     ERROR            6.25s   exit status 66
WARNING: ThreadSanitizer: data race (pid=4719)
SUMMARY: ThreadSanitizer: data race tests/native/fake_gpu.h:99 in fake_run
28/36 aiougds:test_ugds_clocks     FAIL             6.39s   1/152 subtests failed
not ok 3 - the deadline comes in time
29/36 aiougds:test_ugds_ends       TIMEOUT        150.04s   killed by signal 15 SIGTERM
30/36 aiougds:test_hammer_ERROR    OK               0.10s   3 subtests passed

Summary of Failures:

27/36 aiougds:test_stream_race     ERROR            6.25s   exit status 66
28/36 aiougds:test_ugds_clocks     FAIL             6.39s   1/152 subtests failed
29/36 aiougds:test_ugds_ends       TIMEOUT        150.04s   killed by signal 15 SIGTERM

Ok:                33
Fail:              2
Timeout:           1

nox > * tests-3.11: failed, took 18 minutes
nox > * native(tsan): failed, took 3 minutes
"""

END = """\
FAILED tests/life/test_close.py::test_close_drains[asyncio-poll-step] - assert 0
ERROR tests/life/test_close.py::test_close_twice - RuntimeError: left open
27/36 aiougds:test_stream_race     ERROR            6.25s   exit status 66
SUMMARY: ThreadSanitizer: data race tests/native/fake_gpu.h:99 in fake_run
28/36 aiougds:test_ugds_clocks     FAIL             6.39s   1/152 subtests failed
not ok 3 - the deadline comes in time
29/36 aiougds:test_ugds_ends       TIMEOUT        150.04s   killed by signal 15 SIGTERM
286 passed, 5 failed, 2 skipped
"""


def summary(tmp_path: Path, log: str, code: int) -> list[str]:
    path = tmp_path / "log"
    path.write_text(log)
    command = [sys.executable, str(ROOT / ".ci" / "summary.py"), str(path), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_summary_names_each_failure_once(tmp_path: Path) -> None:
    assert summary(tmp_path, LOG, 1) == END.splitlines()


def test_summary_of_a_session_without_tests_counts_it_as_failed(tmp_path: Path) -> None:
    # More than one are listed in the end, one alone is not.
    log = "nox > Session lint failed.\nnox > Session docs failed.\n"
    log += "nox > * lint: failed\nnox > * docs: failed, took 3 seconds\n"
    assert summary(tmp_path, log, 1) == ["0 passed, 2 failed, 0 skipped"]


def test_summary_of_a_run_that_ends_before_any_session_is_a_failure(
    tmp_path: Path,
) -> None:
    assert summary(tmp_path, "no such session\n", 3) == [
        "0 passed, 1 failed, 0 skipped"
    ]


def test_summary_of_a_good_run_is_the_sum_alone(tmp_path: Path) -> None:
    log = "== 5 passed, 7 deselected in 0.47s ==\nOk:                36\nFail: 0\n"
    assert summary(tmp_path, log, 0) == ["41 passed, 0 failed, 0 skipped"]


FIRST = """\
nox > python -m pytest -m 'not alone' -n 3 --cache-clear
FAILED tests/life/test_close.py::test_close_drains[asyncio-poll-step] - assert 0
ERROR tests/life/test_close.py::test_close_twice - RuntimeError: left open
= 1 failed, 253 passed, 2 skipped, 7 deselected, 1 error in 236.4s (0:03:56) =
nox > Command python -m pytest -m 'not alone' -n 3 --cache-clear failed
nox > python -m pytest -m 'not alone' --last-failed -x
"""


def test_summary_of_what_passed_alone_names_it(tmp_path: Path) -> None:
    log = FIRST + "== 2 passed, 260 deselected in 1.5s ==\n"
    where = "LATE tests/life/test_close.py::"
    assert summary(tmp_path, log, 0) == [
        f"{where}test_close_drains[asyncio-poll-step] - assert 0",
        f"{where}test_close_twice - RuntimeError: left open",
        "255 passed, 0 failed, 2 skipped",
    ]


def test_summary_of_what_failed_alone_too_counts_it_once(tmp_path: Path) -> None:
    test = "tests/life/test_close.py::test_close_drains[asyncio-poll-step] - assert 0"
    log = f"{FIRST}FAILED {test}\n== 1 failed, 260 deselected in 1.5s ==\n"
    lines = summary(tmp_path, log, 1)
    assert f"FAILED {test}" in lines
    assert lines[-1] == "253 passed, 1 failed, 2 skipped"


def test_some_of_each_test_are_the_same_ones_every_time() -> None:
    loops, modes = ("asyncio", "uvloop", "trio"), ("inline", "poll", "interrupt")
    tests = [f"tests/life/test_{n}.py::test_it" for n in range(200)]
    alone = "tests/test_ci.py::test_alone"
    cells = [f"{loop}-{mode}" for loop in loops for mode in modes]
    nodeids = [f"{test}[{cell}]" for test in tests for cell in cells]
    chosen = chosen_of_each([*nodeids, alone], 2)
    assert chosen == chosen_of_each(reversed([*nodeids, alone]), 2)
    count = Counter(nodeid.partition("[")[0] for nodeid in chosen)
    assert count == {**dict.fromkeys(tests, 2), alone: 1}
    met = Counter(nodeid.partition("[")[2].rstrip("]") for nodeid in chosen)
    assert min(met[cell] for cell in cells) > 20  # of 44


def test_none_of_each_test_is_refused() -> None:
    with pytest.raises(ValueError, match="--of-each=0: at least 1"):
        chosen_of_each(["tests/test_ci.py::test_alone"], 0)
