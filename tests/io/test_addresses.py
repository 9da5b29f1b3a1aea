"""What an ``emu:`` address says is what the controller is."""

from __future__ import annotations

import pytest
from helpers.model import PAGE, pattern
from helpers.world import World

from aiougds import _address

pytestmark = pytest.mark.few

LIMITS = [
    (name, value)
    for name, limits in _address._NUMBERS.items()
    for value in limits
    if name not in {"mpsmin", "mpsmax"}
]


async def works(world: World, emu: dict[str, object], **options: object) -> None:
    async with world.open(emu=emu, **options) as ns:
        seen = bytearray(3 * PAGE)
        await ns.write(pattern(len(seen), 1), offset=0)
        await ns.read(seen, offset=0)
        assert seen == pattern(len(seen), 1)


@pytest.mark.parametrize(("name", "value"), LIMITS)
async def test_numbers_at_their_limits(world: World, name: str, value: int) -> None:
    await works(world, {"size": "768KiB", name: value}, queues=4)


@pytest.mark.parametrize("low", [0, _address._NUMBERS["mpsmin"][1]])
async def test_page_sizes_at_their_limits(world: World, low: int) -> None:
    for high in (low, _address._NUMBERS["mpsmax"][1]):
        await works(world, {"size": "768KiB", "mpsmin": low, "mpsmax": high})


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("8192", 8192),
        ("64k", 65536),
        ("64KiB", 65536),
        ("512KB", 512_000),
        ("3m", 3 << 20),
        ("1.5MiB", 3 << 19),
        ("4096000B", 4_096_000),
        ("2gib", 2 << 30),
        ("1TiB", 1 << 40),
        ("16PiB", 16 << 50),
    ],
)
async def test_sizes(world: World, text: str, nbytes: int) -> None:
    async with world.open(emu={"size": text, "data": "none"}) as ns:
        assert ns.size == nbytes


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ({"threads": 1}, {}),
        ({"threads": 8}, {}),
        ({"channels": 1, "latency": "10us"}, {}),
        ({"latency": "1ms", "jitter": "500us", "seed": 7}, {}),
        ({"latency_per_kib": "2us"}, {}),
        ({}, {"spin_us": 0}),
        ({}, {"spin_us": 1000}),
        ({}, {"hugepages": False}),
        ({}, {"batch_queues": 0}),
        ({}, {"queues": 128, "depth": 2}),
        ({"awupf": 7, "acl": 0, "aerl": 0, "to": 1}, {}),
    ],
    ids=str,
)
async def test_options_that_change_nothing_but_time(
    world: World, options: dict[str, object], keywords: dict[str, object]
) -> None:
    await works(world, {"size": "768KiB", **options}, **keywords)


async def test_info_says_what_was_asked_for(world: World) -> None:
    emu = {"awupf": 7, "acl": 5, "aerl": 2, "size": "1MiB", "mpsmin": 1}
    async with world.open(emu=emu) as ns:
        info = ns.controller.info
        assert info.atomic_write_blocks == 8
        assert (info.abort_limit, info.event_limit) == (6, 3)
        assert info.page_bytes == 8192
        assert info.version >= (1, 3, 0)
        assert info.model == "aiougds embedded controller"
        assert info.serial.startswith("UGDS")
        assert 0 < info.open_ms < 5000
