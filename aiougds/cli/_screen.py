"""A page that is drawn again and again at a terminal, as wide and high as it is then.

What is said in lines is wrapped; tables leave out columns until they fit; what is below
the lower edge is counted. It has the shape of a console, for whoever prints to either.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME: Final = "\x1b[H"
END_OF_LINE: Final = "\x1b[K"
BELOW: Final = "\x1b[J"
STYLES: Final = {"": "", "bold": "\x1b[1m", "yellow": "\x1b[33m"}
PLAIN: Final = "\x1b[m"
GAP: Final = 2
LEAST: Final = 20  # what says it is narrower is no terminal to read on


def at_screen() -> bool:
    """Whether standard output is a terminal that can be drawn on again."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def printable(text: str) -> str:
    """Return text of others: what would steer a terminal is spelt out."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )


class Screen:
    """Takes lines and tables, and draws them in one go; ``spare`` columns go first."""

    __slots__ = ("_lines", "_rows", "_spare", "_width")

    def __init__(self, spare: Sequence[str] = ()) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        self._width = max(LEAST, size.columns or 80)  # 0: it does not know
        self._rows = size.lines or 24
        self._spare = spare
        self._lines: list[tuple[str, str]] = []

    def line(self, text: str = "", *, style: str = "") -> None:
        """Add a line, or as many as it takes."""
        indent = text[: len(text) - len(text.lstrip())]
        parts = textwrap.wrap(text, self._width, subsequent_indent=indent) or [""]
        self._lines += [(part, style) for part in parts]

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        """Add a table; all columns but the first are aligned to the right."""
        lines = [columns, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        kept = list(range(len(columns)))
        for name in self._spare:
            if sum(widths[i] + GAP for i in kept) <= self._width:
                break
            kept = [i for i in kept if columns[i] != name]
        self.line(title, style="bold")
        for line in lines:
            cells = [
                line[i].rjust(widths[i]) if i else line[i].ljust(widths[i])
                for i in kept
            ]
            text = " " * GAP + (" " * GAP).join(cells)
            self._lines.append((text[: self._width].rstrip(), ""))

    def draw(self) -> None:
        """Put it in the place of what was drawn before."""
        lines = self._lines
        room = max(1, self._rows - 1)  # the cursor has a line of its own
        if len(lines) > room:
            more = len(lines) - room + 1
            lines = [*lines[: room - 1], (f"({more} more lines)", "")]
        drawn = [
            f"{STYLES[style]}{text}{PLAIN if style else ''}{END_OF_LINE}\n"
            for text, style in lines
        ]
        sys.stdout.write(f"{HOME}{''.join(drawn)}{BELOW}")
        sys.stdout.flush()
