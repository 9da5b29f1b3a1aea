"""``aiougds store``: make a chunk store, tell what it is, check it, measure it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import aiougds.store as st
from aiougds.cli._common import add_output, add_serial, run_on
from aiougds.cli._console import Console
from aiougds.cli._failures import FAILED, RefusedError, UsageError
from aiougds.cli._units import MIB, as_bytes, as_count, as_rate, as_time, count, size

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Awaitable, Callable, Sequence

    from aiougds import RegistrationSlice

ROUND: Final = 128  # chunks of one call
DESCRIPTION: Final = """\
A chunk store keeps chunks of bytes by key on one namespace, or striped over several.
"""
FORMAT: Final = """\
Make an empty store. A namespace that holds anything known is refused, and so is every
real device, unless --serial says that it is meant.
"""


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command and what it can do."""
    parser = commands.add_parser(
        "store",
        parents=parents,
        help="make, check and measure a chunk store",
        description=DESCRIPTION,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(
        name: str, run: Callable[[argparse.Namespace], int], what: str, about: str = ""
    ) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, parents=parents, help=what, description=about or what
        )
        made.add_argument(
            "addresses", metavar="ADDRESS", nargs="+", help="of each device"
        )
        add_output(made)
        made.set_defaults(run=run)
        return made

    new = action("format", _format, "make an empty store", FORMAT)
    new.add_argument(
        "--slot-size",
        type=size,
        action="append",
        required=True,
        help="the longest chunk; several times for slots of several sizes",
    )
    new.add_argument("--key-bytes", type=count, default=256, help="longest key (256)")
    add_serial(new)
    action("info", _info, "tell what a store is made of; writes nothing")
    check = action("check", _check, "compare index and slots; writes nothing")
    check.add_argument(
        "--data", action="store_true", help="read chunks, and verify their checksums"
    )
    bench = action(
        "bench", _bench, "put chunks of random keys, get them, and delete them again"
    )
    bench.add_argument("--size", type=size, default=MIB, help="of a chunk (1MiB)")
    bench.add_argument("--chunks", type=count, default=256, help="how many (256)")
    bench.add_argument("--checksum", choices=("crc32c", "xxh3"), help="(none)")


def _format(args: argparse.Namespace) -> int:
    console = Console(quiet=args.output == "json")
    classes = tuple(st.SlotClass(nbytes) for nbytes in args.slot_size)
    layout = st.Layout(classes=classes, key_bytes=args.key_bytes)

    async def main() -> int:
        try:
            made = await st.format(args.addresses, layout, serial=args.serial)
        except st.OccupiedError as error:
            raise RefusedError(str(error)) from None
        _show(console, made)
        return 0

    return run_on("asyncio", main)


def _info(args: argparse.Namespace) -> int:
    console = Console(quiet=args.output == "json")

    async def main() -> int:
        _show(console, await st.info(args.addresses))
        return 0

    return run_on("asyncio", main)


def _show(console: Console, told: st.StoreInfo) -> None:
    if console.quiet:
        devices = [
            one._asdict() | {"classes": [place._asdict() for place in one.classes]}
            for one in told.devices
        ]
        console.json(told._asdict() | {"devices": devices})
        return
    console.pairs(
        f"Chunk store {told.uuid}",
        {"version": str(told.version), "longest key": f"{told.key_bytes} bytes"},
    )
    for number, one in enumerate(told.devices):
        console.pairs(
            f"Device {number}: {one.address}",
            {
                "size": as_bytes(one.bytes),
                "journal": as_bytes(one.journal_bytes),
                "checkpoints": f"2 x {as_bytes(one.checkpoint_bytes)}",
            }
            | {
                f"chunks up to {as_bytes(place.slot_bytes)}": f"{place.slots} slots"
                for place in one.classes
            },
        )


def _check(args: argparse.Namespace) -> int:
    console = Console(quiet=args.output == "json")

    async def main() -> int:
        report = await st.check(args.addresses, data=args.data)
        if console.quiet:
            console.json(report._asdict())
        else:
            console.line(
                f"{report.chunks} chunks, {as_bytes(report.nbytes)}; "
                f"{report.verified} verified; {report.replayed} records replayed"
            )
            for problem in report.problems:
                console.line(problem, style="red")
        return FAILED if report.problems else 0

    return run_on("asyncio", main)


def _bench(args: argparse.Namespace) -> int:
    console = Console(quiet=args.output == "json")

    async def main() -> int:
        async with st.open(args.addresses, checksum=args.checksum) as chunks:
            rows = await _measure(chunks, args.size, args.chunks)
        if console.quiet:
            console.json(rows)
            return 0
        console.table(
            f"{args.chunks} chunks of {as_bytes(args.size)}",
            ("", "chunks/s", "bandwidth", "each"),
            [
                (
                    name,
                    as_count(args.chunks / took),
                    as_rate(args.chunks * args.size / took),
                    as_time(1e9 * took / args.chunks),
                )
                for name, took in rows.items()
            ],
        )
        return 0

    return run_on("asyncio", main)


async def _measure(chunks: st.ChunkStore, nbytes: int, count: int) -> dict[str, float]:
    """Return the seconds of each step; what was put is deleted in the end."""
    room = chunks.capacity
    if count > room.free_slots:
        raise UsageError(
            f"--chunks {count} is more than the {room.free_slots} slots that are free: "
            "nothing that is stored makes room for a measurement"
        )
    chunks.slot_bytes_for(nbytes)
    stride = -(-nbytes // 4096) * 4096
    prefix = os.urandom(12)
    keys = [prefix + number.to_bytes(4, "little") for number in range(count)]
    rows: dict[str, float] = {}
    memory = await chunks.allocate(stride * min(count, ROUND))
    try:
        parts = [memory[at : at + nbytes] for at in range(0, memory.nbytes, stride)]
        memory.view[: 1 << 12] = os.urandom(1 << 12)
        try:
            rows["put_many"] = await _timed(chunks.put_many, keys, parts)
            await chunks.flush()
            rows["get_many"] = await _timed(chunks.get_many, keys, parts)
            began = time.perf_counter()
            for key in keys:
                await chunks.get(key, parts[0])
            rows["get"] = time.perf_counter() - began
        finally:
            began = time.perf_counter()
            await chunks.delete_many(keys)
            rows["delete_many"] = time.perf_counter() - began
    finally:
        await memory.aclose()
    return rows


async def _timed(
    work: Callable[
        [list[tuple[bytes, RegistrationSlice]]], Awaitable[Sequence[object]]
    ],
    keys: list[bytes],
    parts: list[RegistrationSlice],
) -> float:
    began = time.perf_counter()
    for first in range(0, len(keys), ROUND):
        done = await work(list(zip(keys[first : first + ROUND], parts, strict=False)))
        for one in done:
            if isinstance(one, BaseException):
                raise one
    return time.perf_counter() - began
