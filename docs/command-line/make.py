#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the man pages and completions of the commands, from their parsers.

``nox -s generated`` runs it. The files are kept in this folder, and go with the wheel.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

from aiougds.cli._main import _parser

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHELLS = {"bash": "aiougds", "zsh": "_aiougds", "fish": "aiougds.fish"}
PATHS = {"FILE": shtab.FILE, "PATH": shtab.FILE, "SRC": shtab.FILE, "DST": shtab.FILE}
PATHS["DIR"] = shtab.DIRECTORY
# Not to be told from the text before it where a line begins.
CONTROL = re.compile(r"^([.'])", re.M)

Parser = argparse.ArgumentParser
Commands = argparse._SubParsersAction


def roff(text: str) -> str:
    """Return plain text as troff reads it."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return CONTROL.sub(r"\\&\1", escaped)


def commands(of: Parser) -> dict[str, tuple[Parser, str]]:
    """Return the commands of a parser by name, and what each one is for."""
    for action in of._actions:
        if isinstance(action, Commands):
            about = {one.dest: one.help or "" for one in action._choices_actions}
            return {name: (one, about[name]) for name, one in action.choices.items()}
    return {}


def walk(of: Parser, about: str) -> Iterator[tuple[Parser, str]]:
    """Give a parser and all below it."""
    yield of, about
    for inner, text in commands(of).values():
        yield from walk(inner, text)


def arguments(of: Parser) -> list[argparse.Action]:
    return [one for one in of._actions if not isinstance(one, Commands)]


def usage(of: Parser) -> str:
    """Return the line of the synopsis, without where it is broken."""
    words = of.format_usage().removeprefix("usage: ").split()
    return roff(" ".join(words))


def described(of: Parser, action: argparse.Action) -> str:
    """Return an argument, and what it is, as an entry of a list."""
    formatter = of._get_formatter()
    value = formatter._format_args(action, action.dest.upper())
    names = [rf"\fB{roff(name)}\fR" for name in action.option_strings]
    if action.nargs != 0:
        shown = rf"\fI{roff(value)}\fR"
        names = [f"{name} {shown}" for name in names] or [shown]
    text = formatter._expand_help(action) if action.help else ""
    return f".TP\n{', '.join(names)}\n{roff(text)}".rstrip()


def page(of: Parser, about: str, version: str, others: list[str]) -> str:
    """Return a man page."""
    name = of.prog.replace(" ", "-")
    lines = [f'.TH {name.upper()} 1 "" "aiougds {version}" "User commands"']
    lines += [".SH NAME", rf"{roff(name)} \- {roff(about)}"]
    lines += [".SH SYNOPSIS", usage(of)]
    if of.description and of.description != about:
        lines += [".SH DESCRIPTION", roff(of.description)]
    below = commands(of)
    if below:
        lines.append(".SH COMMANDS")
        for word, (inner, text) in below.items():
            where = inner.prog.replace(" ", "-")
            lines.append(f".TP\n\\fB{roff(word)}\\fR\n{roff(text)}: {roff(where)}(1)")
    if arguments(of):
        lines.append(".SH ARGUMENTS")
        lines += [described(of, action) for action in arguments(of)]
    if of.epilog:
        lines += [".SH NOTES", ".nf", roff(of.epilog.rstrip()), ".fi"]
    lines += [".SH SEE ALSO", ", ".join(f"{roff(one)}(1)" for one in others)]
    return "\n".join((*lines, ""))


def pages(version: str) -> dict[str, str]:
    """Return all man pages by file name."""
    top = _parser()
    made = {one.prog.replace(" ", "-"): (one, about) for one, about in walk(top, ABOUT)}
    return {
        f"{name}.1": page(one, about, version, [o for o in made if near(name, o)])
        for name, (one, about) in made.items()
    }


ABOUT = "await reads from NVMe"


def near(name: str, other: str) -> bool:
    """Whether a page names another one: what is above it and beside it."""
    above = name.rpartition("-")[0]
    return other != name and (other == above or other.rpartition("-")[0] == above)


def completions() -> dict[str, str]:
    """Return the completions of each shell by file name."""
    top = _parser()
    for one, _ in walk(top, ABOUT):
        for action in one._actions:
            shown = action.metavar if isinstance(action.metavar, str) else ""
            kind = PATHS.get(shown)
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]  # shtab reads it
    return {
        f"completions/{name}": shtab.complete(top, shell=shell).rstrip() + "\n"
        for shell, name in SHELLS.items()
    }


def all_files() -> dict[str, str]:
    """Return every file by its name in this folder."""
    found = re.search(r"version: '(.+)'", (ROOT / "meson.build").read_text())
    assert found is not None
    return {f"man/{n}": text for n, text in pages(found[1]).items()} | completions()


def write(folder: Path) -> None:
    """Write them, and remove what is left of commands that are gone."""
    files = all_files()
    for old in (path for path in folder.glob("*/*") if path.is_file()):
        if str(old.relative_to(folder)) not in files:
            old.unlink()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
