"""The check that docs/contributing/guests.md shows, taken from there."""

from __future__ import annotations

from documents.pages import the_one

BLOCK = the_one("docs/contributing/guests.md", "vm/checks/reading.py")
exec(compile(BLOCK.source, BLOCK.name, "exec", dont_inherit=True))
