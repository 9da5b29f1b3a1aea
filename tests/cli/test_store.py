"""``aiougds store``: format, info, check and bench."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from helpers.command_line import CommandLine

from aiougds import store


def made(aiougds: CommandLine, *more: str) -> None:
    aiougds.succeed(
        "store", "format", "emu:disk?size=16MiB", "--slot-size", "64KiB", *more
    )


def test_format_and_info(aiougds: CommandLine) -> None:
    made(aiougds, "--slot-size", "4KiB", "--key-bytes", "100")
    told = json.loads(aiougds.succeed("store", "info", "emu:disk", "--json"))
    assert (told["version"], told["key_bytes"]) == (2, 100)
    (device,) = told["devices"]
    assert [one["slot_bytes"] for one in device["classes"]] == [4096, 65536]
    assert "Chunk store" in aiougds.succeed("store", "info", "emu:disk")


def test_what_is_there_is_refused(aiougds: CommandLine) -> None:
    made(aiougds)
    err = aiougds.fail(1, "store", "format", "emu:disk", "--slot-size", "4KiB")
    assert "aiougds chunk store" in err
    assert "--serial" in err
    (aiougds.folder / "blank").write_bytes(bytes(1 << 20))
    err = aiougds.fail(1, "store", "info", "emu:blank")
    assert "holds no chunk store" in err


def test_check(aiougds: CommandLine, tmp_path: Path) -> None:
    made(aiougds)
    disk = aiougds.folder / "disk"

    async def fill() -> list[int]:
        async with store.open([f"emu:{disk}"], checksum="crc32c") as chunks:
            for n in range(20):
                await chunks.put(b"%d" % n, b"x" * (1 + n * 3001))
            pool = chunks._shards[0].slots.pools[0]
            return [pool.at(chunks.chunk(b"%d" % n).slot) for n in range(20)]

    at = asyncio.run(fill())
    told = json.loads(aiougds.succeed("store", "check", "emu:disk", "--data", "--json"))
    assert (told["chunks"], told["verified"], told["problems"]) == (20, 20, [])
    with disk.open("r+b") as file:
        file.seek(at[7])
        file.write(b"damage")
        file.seek(at[9] + 4096)
        file.write(b"damage")
    done = aiougds("store", "check", "emu:disk", "--data")
    assert done.returncode == 1
    assert "b'7': its header is damaged" in done.stdout
    assert "b'9': its checksum is wrong" in done.stdout


def test_bench_leaves_what_is_there(aiougds: CommandLine) -> None:
    made(aiougds)
    told = json.loads(
        aiougds.succeed(
            "store", "bench", "emu:disk", "--size", "9999", "--chunks", "100", "--json"
        )
    )
    assert set(told) == {"put_many", "get_many", "get", "delete_many"}
    checked = json.loads(aiougds.succeed("store", "check", "emu:disk", "--json"))
    assert checked["chunks"] == 0
    err = aiougds.fail(2, "store", "bench", "emu:disk", "--chunks", "100000")
    assert "slots that are free" in err
