"""Links inside the repository lead somewhere, their anchors too."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from documents.outside import outside, trouble
from documents.pages import ROOT, documents

pytestmark = pytest.mark.once

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")

HOST = r"([a-z0-9-]+\.)+[a-z]{2,}"


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def slug(heading: str) -> str:
    """A heading's anchor, as MyST and GitHub make it."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = re.sub(
        r"^```.*?^```$",
        "",
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    own = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    return own | {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def broken(path: Path) -> Iterator[str]:
    text = without_code(path.read_text(encoding="utf-8"))
    for target, anchor in LINK.findall(text):
        there = (path.parent / target) if target else path
        if not there.exists():
            yield f"{target}: no such file"
        elif not there.resolve().is_relative_to(ROOT):
            yield f"{target}: outside"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            yield f"{target}#{anchor}: no such heading"


@pytest.mark.parametrize("path", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken(path)) == []


def malformed(url: str) -> bool:
    """Whether no machine could be asked for it; plain http: is nobody's any more."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return True
    plain = bool(re.fullmatch(r"[!-~]+", url)) and url[-1] not in ".,;:"
    return not (plain and parts.scheme == "https" and re.fullmatch(HOST, host))


def test_links_to_other_machines_are_well_formed() -> None:
    """Whether something is there is asked by ``nox -s docs -- links`` only."""
    found = [
        url for path in documents() for url in outside(path.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 3
    assert [url for url in found if malformed(url)] == []


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/here" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing of it is of interest."""


def test_who_does_not_answer_is_told() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        here = f"http://127.0.0.1:{server.server_port}"
        assert trouble(f"{here}/here") == ""
        assert trouble(f"{here}/gone").startswith("404")
        server.shutdown()
        thread.join()
    assert trouble(f"{here}/here")


def test_links_of_all_kinds_are_found() -> None:
    page = "[a](https://a.org/b#c) <https://d.org> `[no](https://e.org)`\n\n"
    page += "```sh\ncurl <https://f.org>\n```\n[x][y]\n\n[y]: https://g.org/h\n"
    assert outside(page) == {"https://a.org/b#c", "https://d.org", "https://g.org/h"}


@pytest.mark.parametrize(
    "url",
    [
        "http://semver.org/",
        "https://semver/",
        "https://semver.org/ ",
        "https://semver.org/.",
        "https://[semver.org/",
    ],
)
def test_a_malformed_link_is_found(url: str) -> None:
    assert malformed(url)
    assert not malformed("https://semver.org/spec.html#1")


def test_there_are_links() -> None:
    count = sum(len(LINK.findall(p.read_text(encoding="utf-8"))) for p in documents())
    assert count >= 30


def test_every_page_is_reached() -> None:
    """From the index, or from a list of pages below it."""
    listed: set[Path] = set()
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.M | re.S):
            for name in re.findall(r"^[\w/-]+$", tree, re.MULTILINE):
                listed.add((page.parent / f"{name}.md").resolve())
    pages = {p for p in documents() if p.is_relative_to(ROOT / "docs")}
    assert pages - listed == {ROOT / "docs" / "index.md"}
