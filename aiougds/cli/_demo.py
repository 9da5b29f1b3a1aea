"""``aiougds demo``: store a KV cache on an NVMe namespace, restore it, check it.

The namespace is an embedded controller over a file that the demo makes and removes.
A model of 32 layers, with 8 KV heads of 128 dimensions in 16 bits, has 2 MiB of keys
and values for 512 tokens in each layer: these are the large chunks. Small ones stand
for block tables and partial blocks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import aiougds
from aiougds import testing
from aiougds.cli._cache import LARGE_BYTES, SMALL, SMALL_BYTES, Cache, Measured
from aiougds.cli._common import Loop, add_output, run_on
from aiougds.cli._console import Console
from aiougds.cli._failures import CommandError, RefusedError, UsageError
from aiougds.cli._units import MIB, as_bytes, as_count, as_rate, as_time, positive_size

if TYPE_CHECKING:
    import argparse
    from argparse import _SubParsersAction
    from collections.abc import Generator

DEFAULT_SIZE: Final = 64 * MIB
LEAST_SIZE: Final = LARGE_BYTES


def add_parser(
    commands: _SubParsersAction[argparse.ArgumentParser],
    parents: list[argparse.ArgumentParser],
) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        parents=parents,
        help="write, restore and verify a KV cache on an embedded controller",
        description=(
            "Write a KV cache of random bytes to an embedded NVMe controller over a "
            "new file, restore it, verify every byte, and remove the file."
        ),
    )
    parser.add_argument(
        "--path", help="file to make (default: one in the temporary directory)"
    )
    parser.add_argument(
        "--size",
        type=positive_size,
        default=DEFAULT_SIZE,
        help="bytes in large chunks (64MiB)",
    )
    parser.add_argument(
        "--loop",
        choices=get_args(Loop),
        default="asyncio",
        help="the event loop (asyncio)",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    layers = args.size // LARGE_BYTES
    if not layers:
        raise UsageError(
            f"--size {args.size} is less than one chunk of {as_bytes(LEAST_SIZE)}"
        )
    console = Console(quiet=args.output == "json")
    with _new_file(args.path, Cache.room(layers)) as path:
        return run_on(args.loop, lambda: _demo(path, layers, args.loop, console))


@contextlib.contextmanager
def _new_file(path: str | None, room: int) -> Generator[Path]:
    """Find a name for a file that does not exist yet; it is removed afterwards."""
    with contextlib.ExitStack() as stack:
        if path is None:
            folder = tempfile.TemporaryDirectory(prefix="aiougds-demo-")
            file = Path(stack.enter_context(folder), "kv-cache")
        else:
            file = Path(path)
            if os.path.lexists(file):
                raise RefusedError(
                    f"{file} exists; the demo only writes to a file that it makes "
                    "itself"
                )
            stack.callback(file.unlink, missing_ok=True)
        free = shutil.disk_usage(file.parent).free
        if free < room + MIB:
            raise CommandError(
                f"{file.parent} has {as_bytes(free)} free, {as_bytes(room + MIB)} are "
                "needed; name another file with --path, or give a smaller --size"
            )
        yield file


async def _demo(path: Path, layers: int, loop: str, console: Console) -> int:
    room = Cache.room(layers)
    address = f"emu:{path}?size={room}"
    async with aiougds.open(address) as ns:
        model = ns.controller.info.model
        console.line(
            f"{model}: {ns.controller.capabilities.queue_pairs} queue pairs, "
            f"{as_bytes(room)}, ready in {ns.controller.info.open_ms:.1f} ms"
        )
        async with Cache(ns, layers) as cache:
            console.line(
                f"storing a KV cache: {layers} chunks of {as_bytes(LARGE_BYTES)} (one "
                f"a layer) and {SMALL} of {as_bytes(SMALL_BYTES)}"
            )
            with console.progress("store", cache.nbytes) as advance:
                stored = await cache.store(advance)
            await cache.forget()
            with console.progress("restore", cache.nbytes) as advance:
                restored = await cache.restore(advance)
            wrong = await cache.verify()
            # Measured on the verified chunks, so a wrong one is never passed over.
            small = await cache.measure_small()
            wrong += [chunk for chunk in await cache.verify() if chunk not in wrong]
        faults = testing.counters(ns.controller).iommu_faults
    rows = [stored, *restored, *small]
    verified = not wrong and not faults
    if console.quiet:
        console.json(
            {
                "verified": verified,
                "chunks": layers + SMALL,
                "bytes": cache.nbytes,
                "mismatches": wrong,
                "iommu_faults": faults,
                "controller": model,
                "loop": loop,
                "measurements": [row.as_json() for row in rows],
            }
        )
    else:
        _table(console, rows, loop)
        if verified:
            console.line(
                f"VERIFIED: {layers + SMALL} chunks, {as_bytes(cache.nbytes)}, every "
                "byte is what was stored",
                style="bold green",
            )
    if not verified:
        raise CommandError(
            f"NOT VERIFIED: {len(wrong)} of {layers + SMALL} chunks differ "
            f"({', '.join(wrong[:4])}), {faults} IOMMU faults"
        )
    return 0


def _table(console: Console, rows: list[Measured], loop: str) -> None:
    console.table(
        f"Embedded controller on {loop} (page cache, not an SSD)",
        ("", "count", "throughput", "p50", "p99"),
        [
            (
                row.name,
                as_count(row.count),
                as_rate(row.bytes_per_s),
                as_time(row.latency.percentile(50)),
                as_time(row.latency.percentile(99)),
            )
            for row in rows
        ],
    )
