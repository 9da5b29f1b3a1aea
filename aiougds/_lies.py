"""What an ``emu:`` address can have the embedded controller say that is not so.

===========  =========================================================================
``cap``      what CAP reads as, ``vs`` what VS does, ``csts`` bits of CSTS that always
             read as one: numbers such as ``0x20``
``crdt``     command retry delays 1 to 3, in units of 100 ms: ``1:5:20``
``garble``   pages that arrive as something else, ``PAGE:HOW`` and more after commas.
             A page is one of ``controller``, ``namespace``, ``list``, ``descriptors``
             (Identify), ``logs``, or ``all``; HOW is ``zeros``, ``ones``, a number
             (random bytes of that seed), or ``shortN`` (only N bytes arrive)
``hostile``  ``SEED`` or ``SEED:N``: one in N (default 16) registers, pages and
             completions is fuzzed; data is moved honestly
===========  =========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiougds._errors import AddressError
from aiougds._options import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES: Final = ("controller", "namespace", "list", "descriptors", "logs")
HOW: Final = ("zeros", "ones", "random", "short")
LIES: Final = ("cap", "vs", "csts", "crdt", "garble", "hostile")
HOSTILE_RATE: Final = 16


def _integer(text: str, name: str, most: int) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise AddressError(f"{name}={text!r} is not an integer in 0 .. {most:#x}")
    return value


def _delays(text: str) -> tuple[int, ...]:
    parts = text.split(":")
    if len(parts) > 3:
        raise AddressError(f"crdt={text!r}: there are three delays, as in 1:5:20")
    return tuple(_integer(part, "crdt", 0xFFFF) for part in parts)


def _garble(text: str) -> tuple[tuple[str, str, int], ...]:
    found: dict[str, tuple[str, int]] = {}
    for item in text.split(","):
        page, _, how = item.partition(":")
        if page not in (*PAGES, "all"):
            known = suggest(page, (*PAGES, "all"))
            raise AddressError(f"garble={text!r}: {page!r} is no page; {known}")
        if how in ("zeros", "ones"):
            what = how, 0
        elif how.startswith("short"):
            what = "short", _integer(how[5:], "garble", 0xFFFF)
        else:
            what = "random", _integer(how, "garble", (1 << 64) - 1)
        found |= dict.fromkeys(PAGES if page == "all" else (page,), what)
    return tuple((page, how, number) for page, (how, number) in found.items())


def _hostile(text: str) -> tuple[int, int]:
    seed, _, rate = text.partition(":")
    every = _integer(rate, "hostile", 0xFFFFFFFF) if rate else HOSTILE_RATE
    if not every:
        raise AddressError(f"hostile={text!r}: one in 0 is not a rate; leave it out")
    return _integer(seed, "hostile", (1 << 64) - 1), every


def parse_lies(given: Mapping[str, str]) -> dict[str, object]:
    """Check those of an address's options that make the controller lie."""
    parsed: dict[str, object] = {}
    for name, most in (
        ("cap", (1 << 64) - 1),
        ("vs", 0xFFFFFFFF),
        ("csts", 0xFFFFFFFF),
    ):
        if name in given:
            parsed[name] = _integer(given[name], name, most)
    for name, parse in (("crdt", _delays), ("garble", _garble), ("hostile", _hostile)):
        if name in given:
            parsed[name] = parse(given[name])
    return parsed
