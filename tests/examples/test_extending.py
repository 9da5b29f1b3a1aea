"""A transport and a policy of the user's own; what is wrong with one is refused."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from conformance.behaviours import BEHAVIOURS
from conformance.tools import Tools
from helpers.examples import imported
from helpers.matrix import Place
from helpers.world import World

import aiougds
from aiougds import Mode, Namespace, lowlevel
from aiougds._open import BUILT_IN

MODES: tuple[Mode, ...] = ("adaptive", "inline", "interrupt", "poll")
MIB = 1 << 20
# What a controller that is as small as can be does not have; what it would have to be
# told to do; and what is said of it where interrupts cannot be armed.
LACKS = {
    "log_pages_are_read": "Get Log Page",
    "readonly_is_kept": "Write Zeroes",
    "a_sleeping_loop_is_woken": "words; see the test below",
}
TOLD = {
    "a_cancelled_batch_has_results",
    "a_cancelled_read_waits_for_its_end",
    "a_given_up_read_ends_in_its_own_time",
    "a_late_read_times_out",
    "a_reset_ends_what_runs",
    "closing_waits_or_is_refused",
    "events_are_told",
}
SHOWN = sorted(BEHAVIOURS.keys() - LACKS.keys() - TOLD)


class RamDisk:
    """The device of a behaviour that asks nothing of it."""

    def hold_next_read(self, ns: Namespace) -> AbstractContextManager[None]:
        raise NotImplementedError

    slow = warn = hold_next_read

    def clean(self, ns: Namespace) -> None:
        """It has no IOMMU that could have seen anything."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    with imported("extending/ramdisk") as module:
        built = module.build(tmp_path_factory.mktemp("ramdisk"))
        module.add(built)
        yield built
        lowlevel.remove_transport("ramdisk:")


@pytest.fixture
def disk(library: ctypes.CDLL, tmp_path: Path) -> str:
    path = tmp_path / "disk"
    path.touch()
    os.truncate(path, 16 * MIB)
    return f"ramdisk:{path}"


# ---- a transport ----


def test_what_is_left_out_is_still_there() -> None:
    assert BEHAVIOURS.keys() >= LACKS.keys() | TOLD
    assert len(SHOWN) >= 24


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("name", SHOWN)
def test_it_behaves_as_any_other(disk: str, name: str, loop: str) -> None:
    mode = MODES[SHOWN.index(name) % 4]
    place = World(Place(loop, mode, step=False))  # type: ignore[arg-type]
    place.run(BEHAVIOURS[name](disk, Tools(RamDisk(), mode)))  # type: ignore[arg-type]


def test_what_is_in_force_is_told(disk: str) -> None:
    async def main() -> None:
        async with aiougds.open(disk) as ns, ns.allocate(MIB) as reg:
            found = ns.controller.capabilities
            assert found.transport == "ramdisk"
            assert found.volatile_write_cache
            await ns.write(reg[:4096], offset=0, fua=True)
            await ns.flush()
            assert not found.wake_armed
            assert not found.direct
            assert found.map_inline
            for i in range(32):
                part = reg[:] if i % 4 else reg[:4096]
                assert await ns.read(part, offset=0, mode="interrupt") == len(part)
            assert ns.controller.statistics().stragglers <= 4  # of 32: late, not lost
            await ns.controller.reset()
            assert await ns.read(reg, offset=0) == MIB

    asyncio.run(main())


def test_memory_that_it_cannot_reach_is_refused(disk: str) -> None:
    async def main() -> None:
        fd = os.memfd_create("peer")
        os.truncate(fd, 8192)
        async with aiougds.open(disk) as ns:
            with pytest.raises(aiougds.CapabilityError):
                await ns.register_dmabuf(fd)
        os.close(fd)

    asyncio.run(main())


def test_many_at_once_from_several_queues(disk: str) -> None:
    """Every byte: more commands than its queues are deep, and lists of pages."""

    async def main() -> None:
        data = os.urandom(16 * MIB)
        async with aiougds.open(disk) as ns, ns.allocate(16 * MIB) as reg:
            reg.view[:] = data
            await ns.write(reg, offset=0)
            reg.view[:] = bytes(16 * MIB)
            pieces = [(at, 4096 * (1 + at // 4096 % 3)) for at in range(0, MIB, 12288)]
            done = await ns.read_many([(reg[at : at + n], at) for at, n in pieces])
            assert done == [n for _, n in pieces]
            for at, n in pieces:
                assert reg.view[at : at + n] == data[at : at + n]
            assert await ns.read(reg, offset=0) == 16 * MIB
            assert reg.view == data

    asyncio.run(main())


# ---- what is wrong with one ----


class Broken:
    """The ram disk's struct, with something else in it."""

    FIELDS = (
        ("abi", ctypes.c_uint32), ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16), ("t", ctypes.c_void_p),
        ("doorbells", ctypes.c_void_p), ("doorbell_bytes", ctypes.c_size_t),
        ("vectors", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in (
            "read32", "read64", "write32", "write64", "map", "unmap", "bind", "unbind",
            "kick", "stop_dma", "start_dma", "reset", "fork_child", "close",
        )),
    )  # fmt: skip

    class Struct(ctypes.Structure):
        pass


Broken.Struct._fields_ = list(Broken.FIELDS)
CLOSE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MAP = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64),
)  # fmt: skip


@pytest.fixture
def closed(library: ctypes.CDLL) -> Iterator[list[int]]:
    """Add ``broken:``, whose options replace fields; tells how often it was closed."""
    calls: list[int] = []
    real: list[object] = []

    @CLOSE
    def close(t: int) -> None:
        calls.append(1)
        CLOSE(real[-1])(t)  # type: ignore[arg-type]

    @MAP
    def bad_map(t: int, at: int, n: int, flags: int, out, most: int, handle) -> int:  # type: ignore[no-untyped-def] # noqa: ANN001
        out[0] = 4097  # no page begins there
        handle[0] = 1
        return int(os.environ["BAD_EXTENTS"])

    def make(address: lowlevel.Address) -> int:
        made = library.ramdisk_new(MIB, -1)
        struct = Broken.Struct.from_address(made)
        real.append(struct.close)
        struct.close = ctypes.cast(close, ctypes.c_void_p).value
        for name, value in address.options.items():
            if name == "map" and value == "bad":
                struct.map = ctypes.cast(bad_map, ctypes.c_void_p).value
            elif name == "name":
                struct.name = value.encode()
            else:
                setattr(struct, name, int(value) or None if name != "abi" else 7)
        return int(made)

    lowlevel.add_transport("broken:", make)
    yield calls
    lowlevel.remove_transport("broken:")


async def opened(address: str) -> None:
    async with aiougds.open(address):
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("read64=0", "lacks a function for registers"),
        ("unmap=0", r"lacks map\(\) or unmap\(\)"),
        ("bind=0", r"lacks bind\(\) or unbind\(\)"),
        ("stop_dma=0", r"lacks stop_dma\(\) or start_dma\(\)"),
        ("doorbells=0", "lacks doorbells"),
        ("name=0123456789abcdef", "lacks an end of its name"),
    ],
)
def test_what_lacks_something_is_refused_and_closed(
    closed: list[int], options: str, words: str
) -> None:
    if options.startswith("doorbells"):
        options += "&vectors=1"
    with pytest.raises(aiougds.OpenError, match=words):
        asyncio.run(opened(f"broken:?{options}"))
    assert closed == [1]


def test_one_of_another_version_is_refused(closed: list[int]) -> None:
    """Nothing of it is called: where things are in it is not known."""
    with pytest.raises(aiougds.OpenError, match=r"version 7 of ugds_transport\.h"):
        asyncio.run(opened("broken:?abi=7"))
    assert closed == []


@pytest.mark.parametrize("number", ["0", "1", "2", "999"])
def test_extents_that_are_not_those_of_the_memory_are_refused(
    closed: list[int], number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands would be built from them."""
    monkeypatch.setenv("BAD_EXTENTS", number)
    with pytest.raises(aiougds.OpenError):
        asyncio.run(opened("broken:?map=bad"))
    assert closed == [1]


def test_what_it_left_out_and_may_is_not_missed(closed: list[int]) -> None:
    asyncio.run(opened("broken:?reset=0&fork_child=0&kick=0"))
    assert closed == [1]


@pytest.mark.parametrize("scheme", ["emu:", "vfio:", 3, "x", "Upper:", ":", "a b:", ""])
def test_schemes_that_cannot_be_are_refused(scheme: str) -> None:
    with pytest.raises(aiougds.AddressError, match="is no scheme"):
        lowlevel.add_transport(scheme, lambda address: 0)
    with pytest.raises(aiougds.AddressError, match="is no transport that was added"):
        lowlevel.remove_transport(scheme)
    assert len(BUILT_IN) == 4


def test_what_makes_nothing_is_an_error() -> None:
    lowlevel.add_transport("nothing:", lambda address: 0)
    with pytest.raises(aiougds.OpenError, match="nothing:here: its transport made 0"):
        asyncio.run(opened("nothing:here"))
    lowlevel.remove_transport("nothing:")
    with pytest.raises(aiougds.AddressError, match="no known scheme"):
        asyncio.run(opened("nothing:here"))


def test_the_header_is_the_one_that_was_compiled() -> None:
    source = Path(__file__).parents[2] / "native/include/ugds_transport.h"
    assert lowlevel.transport_header() == source.read_text(encoding="ascii")


# ---- a policy ----


def test_a_policy_decides_for_each_operation() -> None:
    with imported("extending/policy") as module:
        policy = module.ByPlace(index_bytes=8192)
        plans = [
            policy.plan(aiougds.Intent(*intent))
            for intent in (
                ("read", 0, 4096), ("write", 4 * MIB, 2 * MIB), ("read", MIB, MIB),
                ("read_many", None, None), ("write", MIB, MIB),
            )
        ]  # fmt: skip
    assert [plan.io_class for plan in plans] == [
        "latency", "background", "normal", "normal", "normal",
    ]  # fmt: skip
    assert [plan.mode for plan in plans] == ["inline", "interrupt", *["inline"] * 3]
