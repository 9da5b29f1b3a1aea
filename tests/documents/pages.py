"""Code blocks of the documents, and the marks above those that are not run here.

A mark is a comment in the line above the fence::

    <!-- run by: gpu/test_docs_gpu.py --> who runs it, and no other: one of RUN_BY
    <!-- prints -->                       what the program above it prints, in shape
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Runner(NamedTuple):
    """Which session of nox calls it, and how many blocks it runs."""

    session: str
    blocks: int


# Whoever runs blocks that want more than `documents` has; a new one is a choice.
RUN_BY: Final = {
    "dist/clone.py": Runner("dist", 6),
    "dist/extras.py": Runner("extras", 2),
    "examples/test_bpftrace.py": Runner("tests", 1),
    "gpu/test_docs_gpu.py": Runner("tests", 6),
    "gpu/test_docs_how_to.py": Runner("tests", 4),
    "integrations/test_lmcache_documented.py": Runner("integrations", 3),
    "integrations/test_vllm_documented.py": Runner("vllm", 3),
    "soak/test_documented.py": Runner("soak", 1),
    "vm/checks/deb.py": Runner("vm", 1),
    "vm/checks/documented.py": Runner("vm", 3),
    "vm/checks/reading.py": Runner("vm", 1),
    "vm/runs/test_documented.py": Runner("vm", 2),
    "vm/runs/test_reading.py": Runner("vm", 1),
}

# Whose blocks build on each other: they are run in order, in one folder.
IN_ORDER: Final = (ROOT / "docs" / "start.md",)

FENCE: Final = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<source>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
IN_DOCSTRING: Final = re.compile(
    r"(?:^ *\.\. (?P<mark>run by: [^\n]*)\n\n)?"
    r"^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n\n"
    r"(?P<source>(?:(?P=indent) +[^\n]*\n|\n)+)",
    re.MULTILINE,
)
MARK: Final = re.compile(r"run by: (?P<file>\S+)|prints")


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
    def run_by(self) -> str:
        """The file below ``tests`` that runs it; "" for those of this folder."""
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


def run_by(who: str) -> list[Block]:
    """The blocks that are left to ``who``, a file below ``tests``: all of them."""
    found = [block for block in every_block() if block.run_by == who]
    assert len(found) == RUN_BY[who].blocks, f"{who} runs {RUN_BY[who].blocks} blocks"
    return found


def the_one(page: str, who: str, words: str = "") -> Block:
    """The one block of a page that is left to ``who``, and has these words."""
    path = ROOT / page
    of_page = docstring_blocks if path.suffix == ".py" else blocks_of
    (found,) = (b for b in of_page(path) if b.run_by == who and words in b.source)
    return found
