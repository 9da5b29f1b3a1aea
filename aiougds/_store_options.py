"""How a host's configuration names a chunk store: JSON, checked."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal, Self, cast

from aiougds._errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Eviction = Literal["lru", "arc"]
Checksum = Literal["crc32c", "xxh3"]
Flush = Literal["put", "lazy"]

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "eviction": ("lru", "arc", "none"),
    "checksum": ("crc32c", "xxh3", "none"),
    "flush": ("put", "lazy"),
}
_MOST: Final = 1 << 40
HELP: Final = """\
- addresses (str, or list of them; required): where chunks lie, as aiougds.open takes
    it: "emu:/data/kv.img?size=100GiB", "/dev/ugds_drv0". Several are striped by key
- slot_bytes (int): room for one chunk, the largest; for devices that hold nothing yet,
    which are then formatted
- classes (list of [slot_bytes, share]): slots of several sizes, in place of slot_bytes
- create (bool): format devices that hold nothing at all (default true)
- serial (str): the serial number of a real device, which says that it may be formatted
- flush (str): "put": what was stored is durable when the host is told; "lazy": later
    (default "put")
- checksum (str): "crc32c", "xxh3" or "none"; what does not match is a miss (default
    "none")
- eviction (str): "lru", "arc" or "none": what the store does when it is full (default
    "lru"); the host's own eviction comes before that, if it is configured
- high, low (float): shares of used slots at which it begins and ends (0.95, 0.85)
- key_bytes (int): longest key, for a new store (default 256)
- open (object): keywords of aiougds.open, e.g. {"mode": "interrupt"}"""


@dataclass(frozen=True)
class StoreOptions:
    """Which store, and how it is opened."""

    addresses: tuple[str, ...]
    slot_bytes: int | None = None
    classes: tuple[tuple[int, float], ...] = ()
    create: bool = True
    serial: str | None = None
    flush: Flush = "put"
    checksum: Checksum | None = None
    eviction: Eviction | None = "lru"
    high: float = 0.95
    low: float = 0.85
    key_bytes: int = 256
    open: Mapping[str, object] = field(default_factory=dict[str, object])

    @classmethod
    def parse(cls, given: Mapping[str, object], *, more: Sequence[str] = ()) -> Self:
        """Return what was configured; raises OptionError, which is a ValueError.

        ``more``: names that somebody else reads.
        """
        names = [one.name for one in fields(cls)]
        for name in given:
            if name not in names and name not in more:
                near = difflib.get_close_matches(name, [*names, *more], 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise OptionError(
                    f"there is no option {name!r}{hint} Known: "
                    f"{', '.join(sorted([*names, *more]))}"
                )
        classes = _classes(given.get("classes"))
        slot_bytes = _number(given, "slot_bytes", None, 512, _MOST)
        if classes and slot_bytes is not None:
            raise OptionError(
                f"slot_bytes={slot_bytes} and classes are given: leave out one of them"
            )
        high, low = _share(given, "high", 0.95), _share(given, "low", 0.85)
        if low > high:
            raise OptionError(
                f"low={low} is above high={high}: eviction goes from high down to low"
            )
        return cls(
            addresses=_addresses(given.get("addresses")),
            slot_bytes=slot_bytes,
            classes=classes,
            create=_flag(given, "create", default=True),
            serial=_text(given, "serial"),
            flush=cast("Flush", _word(given, "flush", "put")),
            checksum=cast("Checksum | None", _word(given, "checksum", "none")),
            eviction=cast("Eviction | None", _word(given, "eviction", "lru")),
            high=high,
            low=low,
            key_bytes=_number(given, "key_bytes", 256, 16, 4096) or 256,
            open=_keywords(given.get("open")),
        )


def _addresses(given: object) -> tuple[str, ...]:
    several: object = [given] if isinstance(given, str) else given
    if not isinstance(several, list) or not several:
        raise OptionError(
            f"addresses={given!r}: name one address or a list of them, such as "
            '"emu:/data/kv.img?size=100GiB" or "/dev/ugds_drv0"'
        )
    names: list[str] = []
    for one in cast("list[object]", several):
        if not isinstance(one, str) or not one:
            raise OptionError(f"addresses: {one!r} is no address; a text is needed")
        names.append(one)
    twice = {one for one in names if names.count(one) > 1}
    if twice:
        raise OptionError(f"addresses: {min(twice)} is named twice; once is enough")
    return tuple(names)


def _classes(given: object) -> tuple[tuple[int, float], ...]:
    if given is None:
        return ()
    made: list[tuple[int, float]] = []
    for one in cast("list[object]", given) if isinstance(given, list) else [given]:
        match one:
            case [int(size), int() | float() as share] if size > 0 and 0 < share <= 1:
                made.append((size, float(share)))
            case _:
                raise OptionError(
                    f"classes: {one!r} is not [slot_bytes, share], such as "
                    "[4194304, 0.9] with shares from 0 to 1"
                )
    if not made:
        raise OptionError("classes=[]: name a size, or give slot_bytes")
    return tuple(made)


def _number(
    given: Mapping[str, object], name: str, default: int | None, least: int, most: int
) -> int | None:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name}={value!r}: a whole number of bytes is needed")
    if not least <= value <= most:
        raise OptionError(f"{name}={value}: from {least} to {most} is possible")
    return value


def _share(given: Mapping[str, object], name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionError(f"{name}={value!r}: a number from 0 to 1 is needed")
    if not 0 < value <= 1:
        raise OptionError(f"{name}={value}: above 0, and 1 at most, is possible")
    return float(value)


def _flag(given: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r}: true or false is needed")
    return value


def _word(given: Mapping[str, object], name: str, default: str) -> str | None:
    value = given.get(name, default)
    value = "none" if value is None else value
    if value not in _WORDS[name]:
        raise OptionError(f"{name}={value!r}: one of {', '.join(_WORDS[name])}")
    return None if value == "none" else str(value)


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{name}={value!r}: a text is needed")
    return value


def _keywords(given: object) -> Mapping[str, object]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise OptionError(
            f"open={given!r}: keywords of aiougds.open are needed, such as "
            '{"mode": "interrupt"}'
        )
    return dict(cast("Mapping[str, object]", given))
