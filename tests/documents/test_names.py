"""Names that the documents mention are there: attributes, options, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents.pages import ROOT, documents

import aiougds
import aiougds.blocking
import aiougds.store
from aiougds import testing

pytestmark = pytest.mark.once

# What the pages call an object of that class.
CALLED = {
    "aiougds": aiougds,
    "batch": aiougds.Batch,
    "capabilities": aiougds.Capabilities,
    "controller": aiougds.Controller,
    "ctrl": aiougds.Controller,
    "ns": aiougds.Namespace,
    "op": aiougds.StreamOperation,
    "reg": aiougds.Registration,
    "testing": testing,
}
LOGGERS = {"open", "store", "stream"}
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAMED = re.compile(rf"(?<![\w./])({'|'.join(CALLED)})\.([a-z]\w+)")
FILE = re.compile(r"(?:tests|native|kmod|examples|aiougds|docs)/[\w./-]+")


def mentioned(text: str) -> Iterator[str]:
    yield from CODE.findall(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


@pytest.mark.parametrize("path", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_attributes_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = {
        f"{name}.{attribute}"
        for code in mentioned(text)
        for name, attribute in NAMED.findall(code)
        if not hasattr(CALLED[name], attribute)
        and not (name == "aiougds" and attribute in LOGGERS)
        and attribute not in getattr(CALLED[name], "__annotations__", ())
        and not (ROOT / "aiougds" / attribute).exists()
        and not (ROOT / "aiougds" / f"{attribute}.py").exists()
    }
    assert missing == set()


@pytest.mark.parametrize("path", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = {
        file
        for code in mentioned(text)
        for file in re.findall(rf"(?<![\w/.-]){FILE.pattern}", code)
        if "*" not in code
        and not re.search(r"/[A-Z]+/", file)  # stands for one
        and not (ROOT / file).exists()
        and not file.endswith((".ko", ".so"))
        and not list(ROOT.glob(f"{file}*"))
    }
    assert missing == set()


def test_loggers_are_used() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "aiougds").rglob("*.py")
    )
    for name in LOGGERS:
        assert f'getLogger("aiougds.{name}")' in sources


def test_options_of_open_are_documented_somewhere() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in documents())
    text += (ROOT / "aiougds" / "_options.py").read_text(encoding="utf-8")
    for name in aiougds.OpenKeywords.__annotations__:
        assert name in text
