"""What contributors are told is so: hooks, versions, the map of the tree."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import aiougds

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
HOOKS_FILE = ROOT / ".pre-commit-config.yaml"
HOOKS = HOOKS_FILE.read_text(encoding="utf-8")


def test_hooks_are_local() -> None:
    """Nothing is fetched: neither repositories nor environments."""
    assert re.findall(r"- repo: (.+)", HOOKS) == ["local"]
    assert set(re.findall(r"language: (.+)", HOOKS)) == {"system"}
    assert "additional_dependencies" not in HOOKS


def test_hooks_run_what_lint_runs() -> None:
    """By the same names: who passes one passes the other."""
    entries = [shlex.split(entry) for entry in re.findall(r"entry: (.+)", HOOKS)]
    lint = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for tool in ("ruff", "clang-format", "codespell", "mypy"):
        assert any(entry[0] == tool for entry in entries)
        assert f'session.run("{tool}"' in lint
    (tests,) = (entry for entry in entries if entry[:3] == ["python", "-m", "pytest"])
    assert all((ROOT / word).exists() for word in tests[4:])


def test_pre_commit_understands_them() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", HOOKS_FILE],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked


def test_one_version_everywhere() -> None:
    found = {
        name: re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"))
        for name, pattern in {
            "meson.build": r"version: '([\d.]+)',\n  license",
            "aiougds/__init__.py": r'__version__ = "([\d.]+)"',
            "kmod/dkms.conf": r'PACKAGE_VERSION="([\d.]+)"',
            "kmod/main.c": r'MODULE_VERSION\("([\d.]+)"\)',
        }.items()
    }
    assert found == {name: [aiougds.__version__] for name in found}
    steps = (ROOT / "docs/contributing/releasing.md").read_text(encoding="utf-8")
    assert [name for name in found if f"`{name}`" not in steps] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/contributing/releasing.md"])
def test_what_is_named_is_there(page: str) -> None:
    """Paths, and the sessions of nox."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)[\w./*-]*)`", text)
    assert len(named) > 2
    # A name in capitals stands for any.
    named = [re.sub(r"\b[A-Z]+/", "*/", name).rstrip("/") for name in named]
    assert [name for name in named if not list(ROOT.glob(name))] == []
    sessions = set(
        re.findall(
            r'def (\w+?)_?\(session|name="(\w+)"',
            (ROOT / "noxfile.py").read_text(encoding="utf-8"),
        )
    )
    known = {name for pair in sessions for name in pair if name}
    used = {
        word
        for words in re.findall(r"`nox (?:-s )?([a-z0-9 ]+)", text)
        for word in words.split()
        if word != "s"
    }
    assert used - known == set()
