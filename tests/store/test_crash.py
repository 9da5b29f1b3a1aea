"""Power cuts at every command: no published chunk is lost, none is torn."""

from __future__ import annotations

import asyncio

import pytest
from store.crash import Variant, cut_at

VARIANTS = [
    Variant("one", steps=60),
    Variant("512", lba=512, steps=60),
    Variant("four", workers=4, steps=30),
    Variant("many", many=40, steps=30, size=2 << 20),
    Variant("arc", eviction="arc", size=1 << 20, steps=60, workers=2),
    Variant("wrap", steps=130),  # more blocks than the journal has
    Variant("lazy", flush="lazy", size=1 << 20, steps=80, checksum="crc32c"),
]
named = pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)


@named
@pytest.mark.timeout(120)
def test_some_commands(variant: Variant) -> None:
    """A cut at each eleventh command; ``test_every_command`` has all of them."""
    skip = 0
    while asyncio.run(cut_at(variant, skip, seed=skip)):
        skip += 11
    assert skip > 100


@named
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_command(variant: Variant) -> None:
    skip = 0
    while asyncio.run(cut_at(variant, skip, seed=1000 + skip)):
        skip += 1
    print(f"{variant.name}: {skip} cuts")
    assert skip > 100
