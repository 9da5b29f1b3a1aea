"""Pictures are what their program draws, and can be read: in light, in dark, aloud."""

from __future__ import annotations

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from documents.pages import ROOT, documents

pytestmark = pytest.mark.once

PICTURES = ROOT / "docs" / "pictures"
FILES = sorted(PICTURES.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("ours", "device", "yours", "bad", "paper")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def svg() -> Iterator[ModuleType]:
    yield load("svg")
    del sys.modules["svg"]


@pytest.fixture(scope="module")
def draw(svg: ModuleType) -> Iterator[ModuleType]:
    yield load("draw")
    del sys.modules["draw"]


def test_they_are_as_drawn(draw: ModuleType) -> None:
    drawn = {f"{picture.__name__}.svg": picture().svg() for picture in draw.PICTURES}
    kept = {file.name: file.read_text(encoding="utf-8") for file in FILES}
    assert kept == drawn, "run docs/pictures/draw.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_they_can_be_heard(file: Path) -> None:
    root = ET.parse(file).getroot()
    assert root.get("role") == "img"
    assert (root.findtext(f"{SVG}title") or "") == root.get("aria-label")
    assert len(root.findtext(f"{SVG}desc") or "") > 60
    assert len(list(root.iter(f"{SVG}text"))) >= 8, "words are words, no outlines"
    text = file.read_text(encoding="utf-8")
    assert "href" not in text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_they_are_shown_with_words_for_them(file: Path) -> None:
    shown = [
        found
        for page in documents()
        for found in re.findall(
            rf"!\[([^\]]*)\]\([^)]*pictures/{file.name}\)",
            page.read_text(encoding="utf-8"),
        )
    ]
    assert shown
    assert all(len(words) > 20 for words in shown)


def luminance(colour: str) -> float:
    """As of WCAG 2, from ``#rrggbb``."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["LIGHT", "DARK"])
def test_words_stand_out(svg: ModuleType, scheme: str) -> None:
    colours = getattr(svg, scheme)
    for kind in KINDS:
        assert contrast(colours["ink"], colours[kind]) >= 7
    assert contrast(colours["quiet"], colours["paper"]) >= 4.5
    assert contrast(colours["line"], colours["paper"]) >= 3


def test_words_that_have_no_room_are_refused(svg: ModuleType) -> None:
    picture = svg.Picture(200, 100, "title", "says")
    with pytest.raises(ValueError, match="too long"):
        picture.box(0, 0, 50, 20, "far too many words")
    with pytest.raises(ValueError, match="no room"):
        picture.words(150, 20, "beyond the edge")
