"""What was built has every public name: ``python tests/documents/built.py HTML``.

It reads the inventory that Sphinx writes, so it needs neither Sphinx nor pytest.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.surface import MODULES, exported, members

from aiougds.cli._main import _parser


def inventory(html: Path) -> set[str]:
    """Names of the built reference; options are ``program.--option``."""
    data = (html / "objects.inv").read_bytes()
    packed = data.split(b"\n", 4)[4]
    lines = zlib.decompress(packed).decode().splitlines()
    return {match[1] for line in lines if (match := re.match(r"(.+?) \w+:\w+ ", line))}


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option of a command and those below it, as the inventory has them."""
    program = parser.prog.replace(" ", "-")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options(below)
        elif not isinstance(action, argparse._HelpAction):
            yield from (f"{program}.{option}" for option in action.option_strings)


def wanted() -> set[str]:
    """All that has to be there."""
    names = {f"{module}.{name}" for module in MODULES for name in exported(module)}
    return names | {member.label for member in members()} | set(options(_parser()))


def main() -> int:
    there = inventory(Path(sys.argv[1]))
    missing = sorted(wanted() - there)
    for name in missing:
        print(f"not in the reference: {name}", file=sys.stderr)
    print(f"{len(wanted()) - len(missing)} public names and options are documented")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
