"""Whether links to other machines lead somewhere: ``outside.py`` asks them.

All that the documents have, those outside of ``docs`` too, which Sphinx does not see.
Needs the net, and neither Sphinx nor pytest.
"""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.pages import ROOT, documents

LINK = re.compile(
    r"\]\((https?:[^)\s]*)\)|<(https?:[^>\s]*)>|^\[[^]]+\]: (https?:\S+)$", re.M
)
AGENT = {"User-Agent": "Mozilla/5.0 (links of documentation are looked at)"}


def outside(text: str) -> set[str]:
    """The addresses that a page links to; code shows some that are none."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = LINK.findall(re.sub(r"`[^`\n]*`", "", text))
    return {url for each in found for url in each if url}


def trouble(url: str, timeout_s: float = 30) -> str:
    """What is wrong with an address; "" where somebody answers."""
    try:
        request = urllib.request.Request(url, headers=AGENT)
        with urllib.request.urlopen(request, timeout=timeout_s):
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return str(error)


def main() -> int:
    of_page = {path: outside(path.read_text(encoding="utf-8")) for path in documents()}
    found = {url: trouble(url) for url in set().union(*of_page.values())}
    for path, urls in of_page.items():
        for url in sorted(url for url in urls if found[url]):
            print(f"{path.relative_to(ROOT)}: {url}: {found[url]}", file=sys.stderr)
    print(
        f"{len(found)} links to other machines, {sum(map(bool, found.values()))} dead"
    )
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
