"""``aiougds info``: the same facts for people and, under stable names, for programs."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.command_line import CommandLine

MIB = 1 << 20


def test_json_has_stable_names(aiougds: CommandLine) -> None:
    told = json.loads(
        aiougds.succeed("info", "emu:?size=8MiB&lba=512&mdts=0&queues=4", "-o", "json")
    )
    assert set(told) == {
        "address", "state", "controller", "capabilities", "namespaces"
    }  # fmt: skip
    assert told["address"] == "emu:?size=8MiB&lba=512&mdts=0&queues=4"
    assert told["state"] == "live"
    assert {"serial", "model", "firmware", "version", "page_bytes"} <= set(
        told["controller"]
    )
    capabilities = told["capabilities"]
    assert capabilities["transport"] == "emu"
    assert capabilities["direct"] is False
    assert capabilities["mdts_bytes"] == 0
    assert capabilities["queue_pairs"] == 4
    assert told["namespaces"] == [
        {
            "nsid": 1,
            "nbytes": 8 * MIB,
            "lba_bytes": 512,
            "blocks": 16384,
            "usable": True,
            "reason": "",
        }
    ]


def test_text_says_the_same(aiougds: CommandLine) -> None:
    out = aiougds.succeed("info", "emu:?size=8MiB&mdts=0")
    lines = [line.split() for line in out.splitlines()]
    assert ["state", "live"] in lines
    assert ["mdts_bytes", "no", "limit"] in lines
    assert ["transport", "emu"] in lines
    assert ["1", "8", "MiB", "4", "KiB", "2048", "yes"] in lines


def test_every_namespace_is_listed_also_what_cannot_be_used(
    aiougds: CommandLine,
) -> None:
    address = "emu:?namespaces=2:1MiB,7:2MiB:512+8,300:4MiB"
    told = json.loads(aiougds.succeed("info", address, "--json"))
    assert [ns["nsid"] for ns in told["namespaces"]] == [2, 7, 300]
    assert [ns["usable"] for ns in told["namespaces"]] == [True, False, True]
    assert "metadata" in told["namespaces"][1]["reason"]
    assert "metadata" in aiougds.succeed("info", address)


def test_a_file_is_opened_read_only(aiougds: CommandLine, tmp_path: Path) -> None:
    image = tmp_path / "n.img"
    image.write_bytes(bytes(MIB))
    image.chmod(0o400)
    told = json.loads(aiougds.succeed("info", f"emu:{image}", "--json"))
    assert told["capabilities"]["readonly"] is True
    assert image.read_bytes() == bytes(MIB)
    assert list(tmp_path.iterdir()) == [image]
