"""A host's configuration of a store: what is taken, and what is said of the rest."""

from __future__ import annotations

import pytest

from aiougds import OptionError
from aiougds._store_options import HELP, StoreOptions

WHERE = {"addresses": "emu:kv.img?size=1GiB"}


def test_defaults_are_safe() -> None:
    options = StoreOptions.parse(WHERE)
    assert options.addresses == ("emu:kv.img?size=1GiB",)
    assert options.flush == "put"
    assert options.checksum is None
    assert options.eviction == "lru"
    assert options.create


def test_everything_is_taken() -> None:
    given = {
        "addresses": ["emu:a", "emu:b"],
        "classes": [[65536, 0.1], [4194304, 0.9]],
        "create": False,
        "flush": "lazy",
        "checksum": "xxh3",
        "eviction": "none",
        "high": 0.9,
        "low": 0.5,
        "key_bytes": 512,
        "open": {"mode": "interrupt"},
        "mine": 1,
    }
    options = StoreOptions.parse(given, more=("mine",))
    assert options.addresses == ("emu:a", "emu:b")
    assert options.classes == ((65536, 0.1), (4194304, 0.9))
    assert (options.flush, options.checksum, options.eviction) == ("lazy", "xxh3", None)
    assert options.open == {"mode": "interrupt"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name one address"),
        ({"addresses": []}, "name one address"),
        ({"addresses": 3}, "name one address"),
        ({"addresses": [""]}, "is no address"),
        ({"addresses": ["emu:a", "emu:a"]}, "named twice"),
        ({**WHERE, "slot_byte": 4096}, "did you mean 'slot_bytes'"),
        ({**WHERE, "slot_bytes": 4.5}, "a whole number"),
        ({**WHERE, "slot_bytes": True}, "a whole number"),
        ({**WHERE, "slot_bytes": 1}, "from 512 to"),
        ({**WHERE, "slot_bytes": 4096, "classes": [[4096, 1]]}, "leave out one"),
        ({**WHERE, "classes": [[4096, 2]]}, "shares from 0 to 1"),
        ({**WHERE, "classes": []}, "name a size"),
        ({**WHERE, "classes": 4096}, "is not \\[slot_bytes, share\\]"),
        ({**WHERE, "flush": "never"}, "one of put, lazy"),
        ({**WHERE, "checksum": "md5"}, "one of crc32c, xxh3, none"),
        ({**WHERE, "eviction": "fifo"}, "one of lru, arc, none"),
        ({**WHERE, "create": "yes"}, "true or false"),
        ({**WHERE, "high": 1.5}, "above 0, and 1 at most"),
        ({**WHERE, "high": "x"}, "a number from 0 to 1"),
        ({**WHERE, "high": 0.5, "low": 0.8}, "low=0.8 is above high=0.5"),
        ({**WHERE, "key_bytes": 1}, "from 16 to"),
        ({**WHERE, "open": "inline"}, "keywords of aiougds.open"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said) as failure:
        StoreOptions.parse(given)
    assert isinstance(failure.value, ValueError)  # as hosts expect


def test_help_names_every_option() -> None:
    names = StoreOptions.__dataclass_fields__
    assert [
        name
        for name in names
        if f"\n- {name}"
        not in f"\n{HELP}".replace("high, low (", "high (float)\n- low (")
    ] == []
