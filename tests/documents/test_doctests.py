"""What docstrings show at a prompt is what happens."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents.pages import ROOT

# They ask for the programs they adapt to, or run when they are imported.
APART = ("lmcache", "vllm", "__main__", "_native")


def modules() -> list[str]:
    package = ROOT / "aiougds"
    inside = (path.relative_to(ROOT).with_suffix("") for path in package.rglob("*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in inside)
    return sorted(name for name in names if not set(name.split(".")) & set(APART))


def found(name: str) -> Iterator[doctest.DocTest]:
    """Examples by where they are written: a public class says it is from elsewhere."""
    module = importlib.import_module(name)
    file = Path(module.__file__ or "")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            label = f"{name}.{getattr(node, 'name', '')}"
            made = doctest.DocTestParser().get_doctest(
                text, dict(vars(module)), label, str(file), 0
            )
            if made.examples:
                yield made


ALL = [test for name in modules() for test in found(name)]


@pytest.mark.parametrize("test", ALL, ids=lambda test: test.name)
def test_what_is_shown_happens(test: doctest.DocTest) -> None:
    report: list[str] = []
    result = doctest.DocTestRunner().run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_there_are_some() -> None:
    assert len(ALL) >= 5
