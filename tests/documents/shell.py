"""Commands in the code blocks of the documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from documents.pages import Block


def steps(block: Block) -> list[tuple[str, str]]:
    """Return each command of a block, and what it is shown to print."""
    if block.language == "sh":
        return [(block.source, "")]
    found = re.split(r"^[$#] ", block.source, flags=re.MULTILINE)
    assert not found[0].strip(), f"{block.name}: begin with a prompt"
    made: list[tuple[str, str]] = []
    for text in found[1:]:
        command, _, printed = text.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = f"{command}\n{more}"
        made.append((command, printed))
    return made


def words_of(command: str) -> Iterator[list[str]]:
    """Return the words of each simple command, comments and assignments aside."""
    joined = command.replace("\\\n", " ")
    for line in _logical_lines(joined):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise AssertionError(f"{error}: {line}") from error
        part: list[str] = []
        for word in [*words, ";"]:
            if word in ("&&", "||", "|", ";", "&"):
                if part:
                    yield part
                part = []
            elif part or not re.match(r"\w+=", word):
                part.append(word)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines, those of one quoted word together."""
    line = ""
    for more in text.splitlines():
        line = f"{line}\n{more}" if line else more
        if re.sub(r"#.*", "", line).count("'") % 2 == 0:
            yield line
            line = ""
    if line:
        yield line
