"""Where a GDS slab lies: what ``--gds-l1-path`` may say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from aiougds._address import KMOD_LINKS, KMOD_PREFIX
from aiougds._errors import OptionError
from aiougds._guard import EMBEDDED, makes_it
from aiougds._options import suggest

Reads = Literal["checked", "held"]

FILE: Final = "aiougds_gds_slab.bin"
_READS: Final[dict[str, Reads]] = {"checked": "checked", "held": "held"}
_KNOWN: Final = ("reads", "overlap", "retries", "serial", "timeout")
_MOST_OVERLAP: Final = 6  # streams that wait hold the GPU's connections: 8 of them


@dataclass(frozen=True)
class SlabPlace:
    """An address, and how it is used."""

    address: str
    made: bool  # by opening it: nothing can be lost
    serial: str | None = None
    reads: Reads = "checked"
    overlap: int = 0
    retries: int = 3
    timeout_s: float | None = 30.0

    @classmethod
    def parse(cls, location: str, nbytes: int) -> SlabPlace:
        """Take ``PLACE#option=value&...`` apart; raises OptionError.

        ``PLACE`` is an address of ``aiougds.open``, or a folder that gets a file.
        """
        place, _, words = location.partition("#")
        given = _options(words, location)
        address = _address(place, nbytes)
        asked = given.get("reads", "checked")
        reads = _READS.get(asked)
        if reads is None:
            raise OptionError(f"reads={asked!r} in {location!r}: checked or held")
        overlap = _number(given, "overlap", 0, _MOST_OVERLAP, location)
        if overlap and reads != "held":
            raise OptionError(
                f"overlap={overlap} in {location!r}: reads that overlap end after the "
                "call that asks for them, so say reads=held too, and read what that "
                "means"
            )
        timeout = _number(given, "timeout", 30, 3600, location)
        return cls(
            address,
            makes_it(address),
            given.get("serial"),
            reads,
            overlap,
            _number(given, "retries", 3, 100, location),
            float(timeout) or None,
        )


def _address(place: str, nbytes: int) -> str:
    if place.startswith((KMOD_PREFIX, KMOD_LINKS)):
        return place
    if place.startswith(EMBEDDED):
        if makes_it(place) and "size=" not in place:
            mark = "&" if "?" in place else "?"
            return f"{place}{mark}size={nbytes}"
        return place
    if not place or (Path(place).exists() and not Path(place).is_dir()):
        raise OptionError(
            f"--gds-l1-path {place!r}: name a folder, an address such as "
            f"'emu:FILE', or {KMOD_PREFIX}N; for this file as it is: 'emu:{place}'"
        )
    Path(place).mkdir(parents=True, exist_ok=True)
    path = str(Path(place, FILE)).replace("%", "%25").replace("?", "%3F")
    # Chunks need not be a multiple of 4 KiB long.
    return f"{EMBEDDED}{path}?size={nbytes}&lba=512"


def _options(words: str, location: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in filter(None, words.split("&")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise OptionError(f"{part!r} in {location!r} is not of the form name=value")
        if name not in _KNOWN:
            raise OptionError(f"{location!r}: {suggest(name, _KNOWN)}")
        given[name] = value
    return given


def _number(
    given: dict[str, str], name: str, default: int, most: int, location: str
) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) > most:
        raise OptionError(f"{name}={text!r} in {location!r}: from 0 to {most}")
    return int(text)
