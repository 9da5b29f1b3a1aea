"""Where a command speaks: rich for people at a terminal, plain lines when piped.

Results go to standard output, progress to standard error, so that a pipe gets only
what was asked for. With ``quiet`` (JSON was asked for) nothing but JSON is printed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import TextIO

PLAIN_INTERVAL_S: Final = 2.0


class Advance(Protocol):
    """Tell a progress display that more bytes are done."""

    def __call__(self, nbytes: int, /) -> None: ...


def _fancy(stream: TextIO) -> bool:
    """Whether rich is there and the stream is a terminal that can show it."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        importlib.import_module("rich")
    except ImportError:
        return False
    return True


class Console:
    """Prints lines, tables, progress and JSON."""

    __slots__ = ("quiet",)

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    @property
    def at_terminal(self) -> bool:
        """Whether what is printed is seen, and can be cleared."""
        return not self.quiet and _fancy(sys.stdout)

    def line(self, text: str = "", *, style: str = "") -> None:
        """Print a line; ``style`` colours it at a terminal."""
        if self.quiet:
            return
        if style and _fancy(sys.stdout):
            from rich.console import Console as RichConsole

            RichConsole().print(text, style=style, highlight=False, markup=False)
        else:
            print(text, flush=True)

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        """Print a table; all columns but the first are aligned to the right."""
        if self.quiet:
            return
        if _fancy(sys.stdout):
            self._rich_table(title, columns, rows)
            return
        widths = [
            max(len(line[i]) for line in (columns, *rows)) for i in range(len(columns))
        ]
        print(title)
        for line in (columns, *rows):
            cells = [line[0].ljust(widths[0])]
            cells += [
                cell.rjust(width)
                for cell, width in zip(line[1:], widths[1:], strict=True)
            ]
            print(f"  {'  '.join(cells)}".rstrip())
        sys.stdout.flush()

    def pairs(self, title: str, values: Mapping[str, str]) -> None:
        """Print names and values, one a line."""
        if self.quiet:
            return
        width = max(len(name) for name in values)
        self.line(title, style="bold")
        for name, value in values.items():
            self.line(f"  {name.ljust(width)}  {value}")

    def json(self, value: object) -> None:
        """Print JSON; the only thing that ``quiet`` lets through."""
        print(json.dumps(value, indent=2), flush=True)

    @contextmanager
    def progress(self, label: str, nbytes: int) -> Generator[Advance]:
        """Show how much of ``nbytes`` is done, for the time of the block."""
        if self.quiet:
            yield lambda nbytes, /: None
        elif _fancy(sys.stderr):
            with self._rich_progress(label, nbytes) as advance:
                yield advance
        else:
            yield _PlainProgress(label, nbytes)

    @staticmethod
    def _rich_table(
        title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        from rich import box
        from rich.console import Console as RichConsole
        from rich.table import Table

        table = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
        )
        for i, name in enumerate(columns):
            table.add_column(name, justify="right" if i else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console = RichConsole()
        wanted = console.measure(
            table, options=console.options.update(width=999)
        ).maximum
        console.width = max(console.width, wanted)  # better long lines than cut words
        console.print(table)

    @staticmethod
    @contextmanager
    def _rich_progress(label: str, nbytes: int) -> Generator[Advance]:
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=RichConsole(stderr=True)) as bar:
            task = bar.add_task(label, total=nbytes)
            yield lambda nbytes, /: bar.advance(task, nbytes)


class _PlainProgress:
    """A line every two seconds, for logs; nothing for what is over sooner."""

    __slots__ = ("_done", "_label", "_next", "_total")

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._done = 0
        self._next = time.monotonic() + PLAIN_INTERVAL_S

    def __call__(self, nbytes: int, /) -> None:
        self._done += nbytes
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_INTERVAL_S
        share = 100 * self._done // max(1, self._total)
        print(
            f"{self._label}: {as_bytes(self._done)} of {as_bytes(self._total)} "
            f"({share} %)",
            file=sys.stderr,
            flush=True,
        )
