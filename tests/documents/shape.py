"""Whether something was printed as a page shows it, numbers and times aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

NUMBER: Final = r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?"
UNITS: Final = (("ns", "us", "ms", "s"), ("bytes", "B", "KiB", "MiB", "GiB", "TiB"))
TOKEN: Final = re.compile(r"\.\.\.|0x[0-9a-f]+|\d[\d.,]*(?:e[-+]?\d+)?|[A-Za-z]+|\s+|.")


def _units(word: str) -> str:
    for unit in UNITS:
        if word in unit:
            return f"(?:{'|'.join(unit)})"
    return re.escape(word)


def _tokens(line: str) -> Iterator[str]:
    for token in TOKEN.findall(line.strip()):
        if token == "...":
            yield r".*"
        elif token.startswith("0x"):
            yield r"0x[0-9a-f]+"
        elif token[0].isdigit():
            yield NUMBER
        elif token.isspace():
            yield r"\s+"
        else:
            yield _units(token)


def _line(line: str) -> str:
    return "".join(_tokens(line))


def pattern(shown: str) -> str:
    """What is shown as an expression; a line ``...`` stands for any number of lines."""
    lines = shown.strip("\n").splitlines()
    made = "".join(
        r"(?:[^\n]*\n)*" if line.strip() == "..." else rf"[ ]*{_line(line)}[ ]*\n"
        for line in lines
    )
    return made.replace(r"\s+", r"[ ]+").replace("[ ]*[ ]*\\n", "[ ]*\\n")


def alike(shown: str, printed: str) -> bool:
    """Whether ``printed`` has the shape of ``shown``."""
    said = printed.strip("\n") + "\n"
    return re.fullmatch(pattern(shown), said) is not None
