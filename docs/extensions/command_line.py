"""``.. command-line::`` writes the reference of ``aiougds`` from its own parsers."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from aiougds.cli._main import _parser


def _commands(
    parser: argparse.ArgumentParser,
) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _commands(below)


def _plain(text: str) -> str:
    """Text as it is, for reStructuredText."""
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def _usage(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
    return parser.format_usage().removeprefix("usage: ").strip()


def _name(action: argparse.Action) -> str:
    """An option with all its spellings and its value, or an argument."""
    if not action.option_strings:
        named = action.metavar or action.dest
        return named if isinstance(named, str) else " ".join(named)
    value = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices or ()))
        value = f" {action.metavar or choices or action.dest.upper()}"
        value = f" [{value.strip()}]" if action.nargs == "?" else value
    return ", ".join(f"{option}{value}" for option in action.option_strings)


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (parser.prog, "-" * len(parser.prog), "")
    yield from (f".. program:: {parser.prog}", "")
    yield from (".. code-block:: text", "", *_indented(_usage(parser)), "")
    for part in re.split(r"\n\s*\n", parser.description or ""):
        yield from (_plain(" ".join(part.split())), "")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        yield from (f".. option:: {_name(action)}", "")
        yield from (*_indented(_plain(action.help or "")), "")
    if parser.epilog:
        epilog = textwrap.dedent(parser.epilog).strip()
        yield from (".. code-block:: text", "", *_indented(epilog), "")


def _indented(text: str) -> list[str]:
    return [f"   {line}".rstrip() for line in text.splitlines()]


class CommandLine(SphinxDirective):
    """The whole of it: every command, option and argument."""

    def run(self) -> list[nodes.Node]:
        lines = [line for each in _commands(_parser()) for line in _lines(each)]
        return self.parse_text_to_nodes(
            StringList(lines, source="aiougds.cli"), allow_section_headings=True
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
