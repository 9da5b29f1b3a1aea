# SPDX-License-Identifier: MIT
"""The end of a CI log: each thing that failed, once more, and the sum of the tests.

``summary.py LOG CODE``, where CODE is what nox ended with.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# pytest's last line: "== 1 failed, 253 passed in 236.47s (0:03:56) =="
PYTEST_SUM = re.compile(r"^=*\s*(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s.*$", re.MULTILINE)
PYTEST_WORDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "failed",
    "errors": "failed",
    "skipped": "skipped",
}
# Meson's last lines: "Fail:              1"
MESON_SUM = re.compile(r"^([A-Z][A-Za-z ]+):\s+(\d+)\s*$", re.MULTILINE)
MESON_WORDS = {
    "Ok": "passed",
    "Fail": "failed",
    "Timeout": "failed",
    "Unexpected Pass": "failed",
    "Skipped": "skipped",
}
# What failed beside others is run once more, alone.
PYTEST = re.compile(r"^(?=nox > python -m pytest )", re.MULTILINE)
AGAIN = re.compile(r"nox > python -m pytest .*--last-failed")
FAILED_SESSION = re.compile(r"^nox > Session .* (?:failed|aborted)", re.MULTILINE)

# ERROR: a C test that ended before its plan, as one that a sanitizer stops.
BAD = re.compile(
    r"""^(?:
        (?:FAILED|ERROR|LATE)\ .*                                    # pytest
      | not\ ok\ .* | ▶\ .*\ FAIL.*                                  # TAP
      | \s*\d+/\d+\ .*\ (?:FAIL|TIMEOUT|ERROR|INTERRUPT|UNEXPECTEDPASS)\b.*  # Meson
      | SUMMARY:\ \w*Sanitizer:.*
    )$""",
    re.MULTILINE | re.VERBOSE,
)


def settled(log: str) -> str:
    """Call what was run again late; the second run counts it."""
    runs = PYTEST.split(log)
    for n, second in enumerate(runs[1:]):
        if AGAIN.match(second):
            late = re.sub(r"^(?:FAILED|ERROR) ", "LATE ", runs[n], flags=re.MULTILINE)
            runs[n] = PYTEST_SUM.sub(without_failures, late)
    return "".join(runs)


def without_failures(line: re.Match[str]) -> str:
    return re.sub(r"\d+ (?=failed|error)", "0 ", line[0])


def count(log: str, code: int) -> Counter[str]:
    total = Counter(passed=0, failed=0, skipped=0)
    for line in PYTEST_SUM.findall(log):
        for number, word in re.findall(r"(\d+) (\w+)", line):
            if word in PYTEST_WORDS:
                total[PYTEST_WORDS[word]] += int(number)
    for word, number in MESON_SUM.findall(log):
        if word in MESON_WORDS:
            total[MESON_WORDS[word]] += int(number)
    # A session that failed without a failing test (lint, types, a build) is one too.
    at_least = max(len(FAILED_SESSION.findall(log)), int(code != 0))
    total["failed"] = max(total["failed"], at_least)
    return total


def bad_lines(log: str) -> list[str]:
    """What failed, also only at first. Meson says it twice, at times alike."""
    lines = (line.strip()[:300] for line in BAD.findall(log))
    return list(dict.fromkeys(lines))


def main() -> None:
    log = settled(COLOURS.sub("", Path(sys.argv[1]).read_text(errors="replace")))
    total = count(log, int(sys.argv[2]))
    for line in bad_lines(log):
        print(line)
    print(", ".join(f"{number} {word}" for word, number in total.items()))


if __name__ == "__main__":
    main()
