"""Code blocks of the documents, and the marks above those that are not just run.

A mark is a comment in the line above the fence::

    <!-- not run: needs root -->          why: one of REASONS
    <!-- run by: gpu/test_docs_gpu.py --> a test of its own, which says the page's name
    <!-- prints -->                       what the program above it prints, in shape
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

# Why a block is looked at only, and how many there are: a new one is a choice.
REASONS: Final = {
    "installs software": 6,
    "needs root and a drive": 3,
    "needs a GPU": 1,
    "needs LMCache and a GPU": 1,
    "needs vLLM and a model": 3,
    "needs bpftrace and root": 1,
    "takes minutes": 3,
    "boots guests": 4,
}

# Whose blocks build on each other: they are run in order, in one folder.
IN_ORDER: Final = (ROOT / "docs" / "start.md",)

FENCE: Final = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<source>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
IN_DOCSTRING: Final = re.compile(
    r"(?:^ *\.\. (?P<mark>not run: [^\n]*)\n\n)?"
    r"^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n\n"
    r"(?P<source>(?:(?P=indent) +[^\n]*\n|\n)+)",
    re.MULTILINE,
)
MARK: Final = re.compile(r"(?P<kind>not run|run by): (?P<what>.+)|(?P<prints>prints)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and where it is."""

    path: Path
    line: int
    language: str
    source: str
    mark: str
    after: str
    """What a program before it has to print, if that is said."""

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def not_run(self) -> str:
        """The reason that it is not run; "" if it is."""
        return self.mark.removeprefix("not run: ") if "not run" in self.mark else ""

    @property
    def run_by(self) -> str:
        """The file of tests that runs it; "" for those of this folder."""
        return self.mark.removeprefix("run by: ") if "run by" in self.mark else ""


def documents() -> list[Path]:
    """Every page that people read."""
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts),
            *ROOT.glob("examples/**/*.md"),
            *ROOT.glob("tests/*/README.md"),
        ]
    )


def blocks_of(path: Path) -> Iterator[Block]:
    """All fenced blocks of a page, directives of Sphinx included."""
    text = path.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for at, each in enumerate(found):
        follows = found[at + 1] if at + 1 < len(found) else None
        prints = follows["source"] if follows and follows["mark"] == "prints" else ""
        yield Block(
            path=path,
            line=text.count("\n", 0, each.start("source")) + 1,
            language=each["language"].strip(),
            source=each["source"],
            mark=each["mark"] or "",
            after=prints,
        )


def blocks(*languages: str) -> list[Block]:
    """All blocks in one of these languages, those in docstrings too."""
    return [block for block in every_block() if block.language in languages]


def docstring_blocks(path: Path) -> Iterator[Block]:
    """All ``code-block`` of the docstrings of a module; a mark is a comment above."""
    text = path.read_text(encoding="utf-8")
    for each in IN_DOCSTRING.finditer(text):
        mark = (each["mark"] or "").strip()
        source = textwrap.dedent(each["source"]).strip() + "\n"
        line = text.count("\n", 0, each.start("source")) + 1
        yield Block(path, line, each["language"], source, mark, "")


def every_block() -> list[Block]:
    """The blocks of the pages, and those of the docstrings."""
    pages = [block for path in documents() for block in blocks_of(path)]
    modules = sorted((ROOT / "aiougds").rglob("*.py"))
    return pages + [block for path in modules for block in docstring_blocks(path)]
