"""Random histories, then a power cut: what is there is what the plain model permits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from helpers.power import LostPower, blocks_of, values_of
from helpers.world import Opened, World
from hypothesis import given, settings
from hypothesis import strategies as st

from aiougds.testing import power_cut

pytestmark = pytest.mark.few
BLOCKS = 16
Kind = Literal["write", "fua", "write_zeroes", "zeroes_fua", "deallocate"]
KINDS: tuple[Kind, ...] = ("write", "fua", "write_zeroes", "zeroes_fua", "deallocate")
Draw = Callable[[st.SearchStrategy[int]], int]


class Change(NamedTuple):
    """One command that changes blocks."""

    space: int
    kind: Kind
    first: int
    count: int


@st.composite
def changes(draw: Draw, kinds: tuple[Kind, ...] = KINDS) -> Change:
    count = draw(st.integers(1, 8))
    first = draw(st.integers(0, BLOCKS - count))
    kind = kinds[draw(st.sampled_from([0, 0, 0, 0, *range(len(kinds))]))]
    return Change(draw(st.integers(0, 1)), kind, first, count)


# One at a time; several at a time, at most one of them durable by itself; a flush.
moves = st.one_of(
    changes().map(lambda change: [change]),
    st.lists(changes(("write", "write_zeroes")), min_size=2, max_size=5),
    st.tuples(
        changes(("fua",)), st.lists(changes(("write",)), min_size=1, max_size=4)
    ).map(lambda pair: [pair[0], *pair[1]]),
    st.integers(0, 1),
)


class Disk:
    """A namespace and what the model says of it."""

    __slots__ = ("block", "model", "ns")

    def __init__(self, ns: Opened, block: int, unit: int) -> None:
        self.ns = ns
        self.block = block
        self.model = LostPower([0] * BLOCKS, unit)

    async def change(self, change: Change, values: list[int]) -> None:
        offset, nbytes = change.first * self.block, change.count * self.block
        match change.kind:
            case "write" | "fua":
                data = blocks_of(values, self.block)
                await self.ns.write(data, offset=offset, fua=change.kind == "fua")
            case "write_zeroes" | "zeroes_fua":
                fua = change.kind == "zeroes_fua"
                await self.ns.write_zeroes(offset=offset, nbytes=nbytes, fua=fua)
            case "deallocate":
                await self.ns.deallocate(offset=offset, nbytes=nbytes)

    async def seen(self) -> list[int]:
        data = bytearray(BLOCKS * self.block)
        await self.ns.read(data, offset=0)
        return values_of(data, self.block)


async def play(world: World, disks: list[Disk], move: list[Change] | int) -> None:
    if isinstance(move, int):
        await disks[move].ns.flush()
        disks[move].model.flush()
        return
    names: dict[int, list[int]] = {0: [], 1: []}
    durable: list[tuple[int, int]] = []
    work = []
    for change in move:
        model = disks[change.space].model
        zeros = change.kind not in ("write", "fua")
        name, values = model.write(change.first, change.count, zeros=zeros)
        names[change.space].append(name)
        if change.kind in ("fua", "zeroes_fua"):
            durable.append((change.space, name))
        work.append(
            lambda disk=disks[change.space], change=change, values=values: disk.change(
                change, values
            )
        )
    await world.gather(*work)
    for space, name in durable:
        disks[space].model.harden(name, among=names[space])


@settings(max_examples=40)
@given(
    block=st.sampled_from([512, 4096]),
    unit=st.integers(1, 4),
    threads=st.sampled_from([1, 3]),
    in_file=st.booleans(),
    rounds=st.lists(
        st.tuples(st.lists(moves, max_size=8), st.integers(0, (1 << 64) - 1)),
        min_size=1,
        max_size=4,
    ),
)
def test_histories(
    world: World,
    tmp_path: Path,
    block: int,
    unit: int,
    threads: int,
    in_file: bool,
    rounds: list[tuple[list[list[Change] | int], int]],
) -> None:
    """Two namespaces; after each cut the controller is reset, or opened anew."""
    size = BLOCKS * block
    emu: dict[str, object] = {
        "volatile": 1,
        "awupf": unit - 1,
        "threads": threads,
        "namespaces": f"1:{size}:{block},2:{size}:{block}",
    }
    path = tmp_path / "disk" if in_file else ""
    for leftover in tmp_path.glob("disk*"):
        leftover.unlink()

    async def check(disks: list[Disk], *, lost: bool) -> None:
        for disk in disks:
            seen = await disk.seen()
            if lost:
                assert disk.model.permits(seen)
                disk.model.settle(seen)

    async def body() -> None:
        models: list[LostPower] = []
        pending = list(rounds)
        while pending:
            async with (
                world.open_controller(path, emu=emu) as controller,
                controller.namespace(1) as first,
                controller.namespace(2) as second,
            ):
                disks = [Disk(ns, block, unit) for ns in (first, second)]
                for disk, model in zip(disks, models, strict=False):
                    disk.model = model
                await check(disks, lost=bool(models))
                while pending:
                    history, seed = pending.pop(0)
                    for move in history:
                        await play(world, disks, move)
                        if isinstance(move, list) and len(move) == 1:
                            disk = disks[move[0].space]
                            assert await disk.seen() == disk.model.newest
                        elif not isinstance(move, int):
                            for disk in disks:
                                disk.model.newest = await disk.seen()
                    anew = in_file and seed % 2
                    power_cut(controller, seed=seed, stays_off=anew and seed % 4 == 1)
                    if anew:
                        models = [disk.model for disk in disks]
                        break
                    await controller.reset()
                    await check(disks, lost=True)

    world.run(body())
