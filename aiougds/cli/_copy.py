"""``aiougds copy``: a file to a namespace, a namespace to a file, or between two.

Chunks move side by side. Each has a checksum of what was read from the source; when
all is on the medium, the destination is read back and compared with them.
"""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

import aiougds
from aiougds.cli._common import add_nsid, add_serial, is_address, run_on
from aiougds.cli._console import Console
from aiougds.cli._ends import (
    PART,
    FileEnd,
    NamespaceEnd,
    check_target,
    digest,
    open_source,
    same_file,
    source_size,
)
from aiougds.cli._failures import CommandError, RefusedError, UsageError
from aiougds.cli._guard import embedded_path, guard, makes_it
from aiougds.cli._units import MIB, as_bytes, as_rate, positive_size, size

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Awaitable, Callable, Iterator

    from aiougds import Namespace
    from aiougds.cli._console import Advance
    from aiougds.cli._ends import Sink, Source

CHUNK: Final = MIB
SLOTS: Final = 8
DESCRIPTION: Final = """\
Copy SRC to DST; one of them at least is the address of a controller.

A file of any length can be copied to a namespace: when it ends inside a block, that
block is read first and what follows in it is kept. Reading from a namespace may begin
and end anywhere. A file is written under another name first and renamed when it is
complete and verified. A namespace that holds a filesystem, partition table or volume
is refused, and so is every real device, unless --serial says that it is meant.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to copy."""

    source: str
    target: str
    offset: int
    nbytes: int | None
    nsid: int | None
    serial: str | None
    verify: bool
    force: bool


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "copy",
        parents=parents,
        help="copy between a file and a namespace, and verify",
        description=DESCRIPTION,
    )
    parser.add_argument("source", metavar="SRC", help="file or address")
    parser.add_argument("target", metavar="DST", help="file or address")
    parser.add_argument(
        "--offset",
        type=size,
        default=0,
        help="where in the namespace to begin (of SRC, if both are namespaces)",
    )
    parser.add_argument(
        "--nbytes", type=positive_size, help="how much (default: all that SRC has)"
    )
    add_nsid(parser)
    add_serial(parser)
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not read the destination back",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a DST file that exists"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    job = Job(
        source=args.source,
        target=args.target,
        offset=args.offset,
        nbytes=args.nbytes,
        nsid=args.nsid,
        serial=args.serial,
        verify=args.verify,
        force=args.force,
    )
    from_ns, to_ns = is_address(job.source), is_address(job.target)
    if not (from_ns or to_ns):
        raise UsageError(
            f"neither {job.source!r} nor {job.target!r} is the address of a "
            "controller, such as emu:PATH; for two files use cp"
        )
    if from_ns and to_ns and _place(job.source) == _place(job.target):
        raise UsageError("SRC and DST are the same controller")
    console = Console()
    command = _to_namespace if to_ns else _to_file
    return run_on("asyncio", lambda: command(job, console))


def _place(address: str) -> str:
    path = embedded_path(address)
    return os.path.realpath(path) if path else address


async def _to_file(job: Job, console: Console) -> int:
    check_target(job.target, force=job.force)
    part = job.target + PART
    async with AsyncExitStack() as stack:
        ns = await stack.enter_async_context(
            aiougds.open(job.source, nsid=job.nsid, readonly=True)
        )
        nbytes = _length(job, ns.size - job.offset, job.source)
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            stack.callback(os.close, fd)
            source = NamespaceEnd(ns, job.offset)
            await _copy(job, ns, source, FileEnd(fd, part), nbytes, console)
            os.replace(part, job.target)
        except BaseException:
            os.unlink(part)
            raise
    return 0


async def _to_namespace(job: Job, console: Console) -> int:
    async with AsyncExitStack() as stack:
        source, available, offset = await _open_source(job, stack)
        nbytes = _length(job, available, job.source)
        made = makes_it(job.target)
        ns = await stack.enter_async_context(aiougds.open(job.target, nsid=job.nsid))
        if offset % ns.lba_bytes:
            raise UsageError(
                f"--offset {offset} is inside a block of {job.target}; use a multiple "
                f"of {ns.lba_bytes}"
            )
        if offset + nbytes > ns.size:
            raise CommandError(
                f"{job.source} has {nbytes} bytes to copy, but {job.target} has room "
                f"for {max(0, ns.size - offset)} from byte {offset} on; nothing was "
                "written"
            )
        await guard(ns, job.target, made=made, serial=job.serial)
        await _copy(job, ns, source, NamespaceEnd(ns, offset), nbytes, console)
    return 0


async def _open_source(job: Job, stack: AsyncExitStack) -> tuple[Source, int, int]:
    """Return the source, how much it has, and where in the target to begin."""
    if is_address(job.source):
        ns = await stack.enter_async_context(aiougds.open(job.source, readonly=True))
        return NamespaceEnd(ns, job.offset), ns.size - job.offset, 0
    fd = open_source(job.source)
    stack.callback(os.close, fd)
    if same_file(fd, embedded_path(job.target)):
        raise RefusedError(f"{job.source} is the file behind {job.target}")
    return FileEnd(fd, job.source), source_size(fd), job.offset


def _length(job: Job, available: int, name: str) -> int:
    if available < 0:
        raise UsageError(f"--offset {job.offset} is past the end of {name}")
    if job.nbytes is not None and job.nbytes > available:
        raise UsageError(
            f"--nbytes {job.nbytes} is more than the {available} bytes that {name} has"
            + (f" from byte {job.offset} on" if is_address(name) else "")
        )
    return available if job.nbytes is None else job.nbytes


async def _copy(
    job: Job,
    ns: Namespace,
    source: Source,
    sink: Sink,
    nbytes: int,
    console: Console,
) -> None:
    digests = [b""] * -(-nbytes // CHUNK)
    began = time.monotonic()
    async with ns.allocate(CHUNK * SLOTS) as reg:
        if isinstance(source, NamespaceEnd):
            await source.map(reg)

        async def move(i: int, slot: int, advance: Advance) -> None:
            buf = reg[slot * CHUNK : (slot + 1) * CHUNK]
            length = min(CHUNK, nbytes - i * CHUNK)
            await source.read(buf, i * CHUNK, length)
            if job.verify:
                digests[i] = await to_thread.run_sync(digest, buf.view[:length])
            await sink.write(buf, i * CHUNK, length)
            advance(length)

        async def check(i: int, slot: int, advance: Advance) -> None:
            buf = reg[slot * CHUNK : (slot + 1) * CHUNK]
            length = min(CHUNK, nbytes - i * CHUNK)
            await sink.read(buf, i * CHUNK, length)
            if await to_thread.run_sync(digest, buf.view[:length]) != digests[i]:
                raise CommandError(
                    f"{job.target} differs from {job.source} in the chunk of {length} "
                    f"bytes that is {i * CHUNK} bytes after the beginning of the copy"
                )
            advance(length)

        with console.progress("copy", nbytes) as advance:
            await _side_by_side(len(digests), advance, move)
            await sink.finish()
        took = max(time.monotonic() - began, 1e-9)
        if job.verify:
            with console.progress("verify", nbytes) as advance:
                await _side_by_side(len(digests), advance, check)
    verified = ", read back and verified" if job.verify else ", not verified"
    console.line(
        f"copied {as_bytes(nbytes)} ({nbytes} bytes) in {took:.2f} s "
        f"({as_rate(nbytes / took)}){verified}"
    )


async def _side_by_side(
    chunks: int,
    advance: Advance,
    work: Callable[[int, int, Advance], Awaitable[None]],
) -> None:
    """Do ``work(chunk, slot, advance)`` for all chunks, one at a time in each slot."""
    numbers: Iterator[int] = iter(range(chunks))

    async def worker(slot: int) -> None:
        for i in numbers:
            await work(i, slot, advance)

    async with anyio.create_task_group() as tasks:
        for slot in range(min(SLOTS, chunks)):
            tasks.start_soon(worker, slot)
