"""``aiougds trace``: commands of another process."""

from __future__ import annotations

import json
import operator
import subprocess
from pathlib import Path
from typing import Any

from cli.test_top import busy, runtime  # noqa: F401 (fixtures)
from helpers.command_line import CommandLine

SPELLS = ("300ms", "3s", "15s")  # until a busy machine lets the process do something


def test_json_and_chrome(
    aiougds: CommandLine,
    busy: subprocess.Popen[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    out = tmp_path / "trace.json"
    for spell in SPELLS:
        args = ("--seconds", spell, "--json", "--chrome", out)
        told = json.loads(aiougds.succeed("trace", busy.pid, *args))
        if len(told["commands"]) > 2:
            break
    assert (told["schema"], told["pid"], told["lost_events"]) == (1, busy.pid, 0)
    assert {line["command"] for line in told["commands"]} == {"read", "write"}
    # The first one's doorbell may have been before anybody asked.
    for line in told["commands"][1:]:
        assert line["submitted_ns"] <= line["queued_ns"] <= line["doorbell_ns"]
        assert line["completed_ns"] - line["queued_ns"] >= 100_000
    assert any(line["resumed_ns"] for line in told["commands"])
    events = json.loads(out.read_text())["traceEvents"]
    begun = [event for event in events if event["ph"] == "b"]
    assert {"device", "doorbell"} <= {event["name"] for event in begun}
    well_nested(events)


def well_nested(events: list[dict[str, Any]]) -> None:
    """As the format wants slices of one category and identifier to be."""
    open_ones: dict[tuple[str, int], list[str]] = {}
    first, *slices = events
    assert (first["ph"], first["name"]) == ("M", "process_name")
    for event in sorted(slices, key=operator.itemgetter("ts")):  # a stable sort
        assert isinstance(event["ts"], float)
        assert (event["pid"], event["cat"]) == (first["pid"], "nvme")
        stack = open_ones.setdefault((event["cat"], event["id"]), [])
        if event["ph"] == "b":
            stack.append(event["name"])
        else:
            assert event["ph"] == "e"
            assert stack.pop() == event["name"]
    assert not any(open_ones.values())


def test_text(aiougds: CommandLine, busy: subprocess.Popen[str]) -> None:  # noqa: F811
    for spell in SPELLS:
        out = aiougds.succeed("trace", "emu:", "--seconds", spell, "--last", "3")
        lines = out.splitlines()
        if len(lines) > 5:
            break
    assert lines[0] == "commands"
    assert lines[1].split()[:4] == ["at", "queue", "id", "command"]
    assert len(lines) == 2 + 3 + 1
    assert "0 events lost" in lines[-1]


def test_refusals(aiougds: CommandLine, busy: subprocess.Popen[str]) -> None:  # noqa: F811
    assert "--seconds" in aiougds.fail(2, "trace", busy.pid, "--seconds", "0")
    assert "nothing here" in aiougds.fail(1, "trace", "nobody")
    line = aiougds.fail(1, "trace", busy.pid, "--seconds", "10ms", "--chrome", "/no/f")
    assert line.startswith("aiougds: error: /no/f: No such")
