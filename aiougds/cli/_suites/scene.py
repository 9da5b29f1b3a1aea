"""The namespace that the suites measure: made, found, guarded, and opened."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiougds
from aiougds._guard import EMBEDDED
from aiougds.cli._failures import CommandError, UsageError
from aiougds.cli._guard import (
    ALL_KINDS,
    embedded_path,
    guard,
    is_embedded,
    makes_it,
)
from aiougds.cli._suites.movers import fill
from aiougds.cli._suites.sides import Place
from aiougds.cli._units import as_bytes

if TYPE_CHECKING:
    from aiougds import Namespace
    from aiougds.cli._suites.settings import Settings

MIB: Final = 1 << 20
FILE_BYTES: Final = 256 * MIB
MOST_SPAN: Final = 1 << 30  # of a file: so much can be in the page cache
IN_MEMORY: Final = "the namespace is in memory, where no other program finds it"
REAL: Final = (
    "the device belongs to this process: name a file or block device beside it with "
    "--peer-path"
)


@contextmanager
def scene(settings: Settings) -> Generator[Place]:
    """Find out what is measured, and make what is missing."""
    if settings.address is not None:
        yield _place(settings, settings.address, temporary=False)
        return
    with tempfile.TemporaryDirectory(prefix="aiougds-bench-") as folder:
        path = Path(folder, "data")
        nbytes = settings.span or max(FILE_BYTES, settings.grid.largest)
        free = shutil.disk_usage(folder).free
        if free < nbytes + MIB:
            raise CommandError(
                f"{folder} has {as_bytes(free)} free, {as_bytes(nbytes)} are needed; "
                "give an ADDRESS, or a smaller --span"
            )
        _make(path, nbytes, settings.seed)
        yield _place(settings, f"{EMBEDDED}{path}", temporary=True)


def _make(path: Path, nbytes: int, seed: int) -> None:
    block = bytearray(MIB)
    fill(memoryview(block), seed)
    with path.open("wb") as out:
        for at in range(0, nbytes, MIB):
            out.write(memoryview(block)[: min(MIB, nbytes - at)])
        out.flush()
        os.fsync(out.fileno())


def _place(settings: Settings, address: str, *, temporary: bool) -> Place:
    path = settings.peer_path or embedded_path(address)
    direct = False
    if settings.peer_path:
        try:
            kind = os.stat(settings.peer_path).st_mode
        except OSError as exc:
            raise UsageError(f"--peer-path {path}: {exc.strerror}") from exc
        # A device is compared with a device, and not with the page cache.
        direct = not is_embedded(address) or stat.S_ISBLK(kind)
    elif path:
        path = os.path.abspath(path)
    return Place(
        address=address,
        nsid=settings.nsid,
        path=path,
        no_path="" if path else IN_MEMORY if is_embedded(address) else REAL,
        direct=direct,
        writes=settings.writes,
        peers_write=is_embedded(address) and not settings.peer_path,
        loop=settings.loop,
        device=settings.device,
        temporary=temporary,
        made=temporary or makes_it(address),
    )


@asynccontextmanager
async def opened(settings: Settings, place: Place) -> AsyncGenerator[Namespace]:
    """Open it; before anything is written, make sure that it may be."""
    readonly = not (place.writes or makes_it(place.address))
    async with aiougds.open(place.address, nsid=place.nsid, readonly=readonly) as ns:
        if place.writes:
            await guard(
                ns,
                place.address,
                made=place.made,
                serial=settings.serial,
                kinds=ALL_KINDS,
            )
        yield ns


async def surveyed(settings: Settings, place: Place) -> Place:
    """Open it once; return the place with the bytes to use, all of them cached."""
    async with opened(settings, place) as ns:
        span, grid = settings.span, settings.grid
        if span is None:
            span = min(ns.size, MOST_SPAN) if is_embedded(place.address) else ns.size
        if not grid.largest <= span <= ns.size:
            raise UsageError(
                f"{as_bytes(span)} are used of {place.shown}, which has "
                f"{as_bytes(ns.size)}: the suites need at least "
                f"{as_bytes(grid.largest)} for the sizes that were given"
            )
        sizes = (*grid.sync_sizes, *grid.batch_sizes, *grid.poll_sizes)
        odd = [size for size in (*sizes, *grid.stream_sizes) if size % ns.lba_bytes]
        if odd:
            raise UsageError(
                f"--sizes {odd[0]} is not a multiple of the block size of "
                f"{place.shown}, {ns.lba_bytes}"
            )
    if place.path and not place.direct:
        _warm(place.path, span)
    return dataclasses.replace(place, span=span)


def _warm(path: str, nbytes: int) -> None:
    """Have it in the page cache, as far as it has room there."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        while nbytes > 0 and (done := len(file.read(min(MIB, nbytes)))):
            nbytes -= done
