"""``aiougds bench --suite``: all run, what they write agrees, nobody is hidden."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import CommandLine

from aiougds.cli._suites.gpu_peers import GPU_PEERS
from aiougds.cli._suites.peers import HOST_PEERS
from aiougds.cli._suites.record import UNITS

pytestmark = pytest.mark.once

KIB, MIB = 1 << 10, 1 << 20
TINY = (
    "--repeat", 2, "--duration", "5ms", "--warmup", "1ms", "--sizes", "4KiB",
    "--tasks", "1,2", "--batches", "2", "--total", "32KiB", "--span", "16MiB",
)  # fmt: skip
PEERS = [peer.name for peer in HOST_PEERS]
FEW = ["preadv", "pyaio"]
OF_GPUS = [peer.name for peer in GPU_PEERS]
METRICS = {
    "setup": {"import", "open", "register", "first_read", "total"},
    "sync": {"bandwidth", "latency", "p50", "p99", "cpu", "cpu_share"},
    "batch": {"bandwidth", "steady_bandwidth", "first", "later"},
    "poll": {"bandwidth", "latency", "p50", "p99", "cpu", "cpu_share"},
}


def measured(aiougds: CommandLine, suite: str, *args: object) -> dict[str, Any]:
    """Run a suite; return its record."""
    aiougds.succeed("bench", "--suite", suite, *TINY, *args, "--json", "run.json")
    told: dict[str, Any] = json.loads((aiougds.folder / "run.json").read_text())
    (found,) = told["suites"]
    assert (told["schema"], told["version"]) == ("aiougds-bench", 1)
    assert found["name"] == suite
    return found


def told_of(suite: dict[str, Any]) -> dict[str, str]:
    """Who was asked for, and why it is missing ("": it is not)."""
    return {side["name"]: side["why_not"] for side in suite["sides"]}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("suite", list(METRICS))
def test_every_suite_beside_every_peer(
    aiougds: CommandLine, suite: str, loop: str
) -> None:
    address = () if suite != "poll" else ("emu:data?size=16MiB",)
    fresh = suite in ("setup", "batch")  # a process for each figure: fewer of them
    peers = FEW if fresh else PEERS
    few = ("--repeat", 1, "--peers", ",".join([*FEW, *OF_GPUS])) if fresh else ()
    found = measured(aiougds, suite, *address, *few, "--loop", loop)
    modes = ("adaptive", "inline", "interrupt", "poll")
    ours = [f"aiougds {mode}" for mode in modes][
        : 4 if suite in ("sync", "poll") else 1
    ]
    if suite == "poll":
        ours.append("aiougds spinning")
    missing = told_of(found)
    assert list(missing) == [*ours, *peers, *OF_GPUS]
    assert [name for name in missing if missing[name]] == OF_GPUS, missing
    assert missing["cufile"] == "moves memory of a GPU: give --device cuda:0"
    assert "EMBEDDED CONTROLLER over the page cache" in found["device"]["label"]
    shapes = {"setup": 1, "sync": 2, "batch": 1, "poll": 1}[suite]
    assert len(found["cells"]) == shapes * len([*ours, *peers])
    for cell in found["cells"]:
        assert set(cell["metrics"]) == METRICS[suite]
        assert cell["rounds"] == (1 if fresh else 2)
        for name, values in cell["metrics"].items():
            assert values["unit"] == UNITS[name]
            assert 0 <= values["p5"] <= values["median"] <= values["p95"]
            assert values["median"] > 0 or name == "register"


def test_reads_and_writes_on_trio_and_what_peers_say_to_it(
    aiougds: CommandLine,
) -> None:
    found = measured(aiougds, "sync", "--loop", "trio", "--rw", "both")
    assert {cell["rw"] for cell in found["cells"]} == {"read", "write"}
    missing = told_of(found)
    assert not missing["preadv"]
    assert missing["to_thread"] == "needs asyncio, and --loop trio was given"


def test_peers_write_what_they_say(aiougds: CommandLine) -> None:
    address = "emu:data?size=16MiB"
    args = (address, "--rw", "write", "--modes", "inline")
    for name in PEERS:
        (aiougds.folder / "data").unlink(missing_ok=True)
        found = measured(aiougds, "sync", *args, "--peers", name, "--tasks", 1)
        assert [cell["side"] for cell in found["cells"]] == ["aiougds inline", name]
        assert {cell["rw"] for cell in found["cells"]} == {"write"}
    assert any((aiougds.folder / "data").read_bytes())


def test_json_and_csv_agree(aiougds: CommandLine) -> None:
    args = ("--peers", "preadv", "--json", "run.json", "--csv", "run.csv")
    aiougds.succeed("bench", "--suite", "setup,sync", *TINY, *args)
    told = json.loads((aiougds.folder / "run.json").read_text())
    with (aiougds.folder / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [
        {"suite": suite["name"], "metric": metric}
        | {name: str(cell[name]) for name in cell if name != "metrics"}
        | {name: str(value) for name, value in values.items()}
        for suite in told["suites"]
        for cell in suite["cells"]
        for metric, values in cell["metrics"].items()
    ]
    assert rows == expected
    assert len(rows) == 2 * 5 + 5 * 2 * 6


def test_the_same_on_standard_output(aiougds: CommandLine) -> None:
    args = ("--suite", "sync", *TINY, "--peers", "none", "--modes", "inline")
    told = json.loads(aiougds.succeed("bench", *args, "--json"))
    assert [side["name"] for side in told["suites"][0]["sides"]] == ["aiougds inline"]
    machine = told["machine"]
    assert machine["cpus"] == len(os.sched_getaffinity(0))
    assert len(machine["load"]) == 3
    assert machine["loop"] == "asyncio"
    assert told["command"][1:3] == ["bench", "--suite"]


def test_text_for_people(aiougds: CommandLine) -> None:
    out = aiougds.succeed("bench", "--suite", "sync", *TINY, "--uvloop")
    assert "uvloop 0." in out
    assert "load " in out
    assert "emu:<temporary file>: EMBEDDED CONTROLLER over the page cache" in out
    assert "Mean latency of an await, us" in out
    assert "read 4 KiB, 2 tasks" in out
    assert "spread of the rounds" in out


def test_nothing_is_left_of_the_file_that_it_made(aiougds: CommandLine) -> None:
    aiougds.succeed("bench", "--suite", "sync", *TINY, "--peers", "none")
    assert list(aiougds.folder.iterdir()) == []


def test_missing_peers_are_named(aiougds: CommandLine) -> None:
    hidden = aiougds.folder / "hidden"
    hidden.mkdir()
    for name in ("caio", "pyaio", "aiofiles"):
        (hidden / f"{name}.py").write_text("raise ImportError('it is hidden')\n")
    aiougds.environment["PYTHONPATH"] = str(hidden)
    found = measured(aiougds, "sync", "--modes", "inline")
    missing = told_of(found)
    assert [name for name in missing if not missing[name]] == [
        "aiougds inline", "to_thread", "preadv"
    ]  # fmt: skip
    assert "cannot be imported" in missing["pyaio"]
    assert {cell["side"] for cell in found["cells"]} == {
        "aiougds inline", "to_thread", "preadv"
    }  # fmt: skip
    out = aiougds.succeed("bench", "--suite", "sync", *TINY, "--modes", "inline")
    assert "pyaio is missing: pyaio 0." in out


def test_a_peer_that_fails_is_named_and_the_others_go_on(aiougds: CommandLine) -> None:
    hidden = aiougds.folder / "hidden"
    (hidden / "pyaio").mkdir(parents=True)
    (hidden / "pyaio" / "__init__.py").touch()
    (hidden / "pyaio" / "uring.py").write_text(
        "class UringIO:\n"
        "    async def __aenter__(self): raise OSError(1, 'blocked here')\n"
        "    async def __aexit__(self, *args): pass\n"
    )
    aiougds.environment["PYTHONPATH"] = str(hidden)
    args = ("--modes", "inline", "--peers", "pyaio,preadv", "--repeat", 1)
    for suite in ("sync", "batch"):
        found = measured(aiougds, suite, *args)
        assert "blocked here" in told_of(found)["pyaio"]
        assert {cell["side"] for cell in found["cells"]} == {"aiougds inline", "preadv"}


def test_in_memory_there_is_nothing_for_peers(aiougds: CommandLine) -> None:
    for address in ("emu:?size=16MiB", None):
        suite = "sync" if address else "poll"
        found = measured(aiougds, suite, *filter(None, [address]))
        missing = told_of(found)
        assert [name for name in missing if missing[name]] == [*PEERS, *OF_GPUS]
        if address is None:
            assert "a model with simulated latencies" in found["device"]["label"]
            assert "give an ADDRESS" in missing["preadv"]


def test_a_file_for_the_peers(aiougds: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(16 * MIB))
    args = ("emu:?size=16MiB", "--peer-path", other, "--modes", "inline")
    found = measured(aiougds, "sync", *args)
    assert not any(told_of(found)[name] for name in PEERS)
    found = measured(aiougds, "sync", *args, "--rw", "write")
    assert told_of(found)["preadv"] == (
        "peers write only to the file of an embedded controller"
    )


def test_reads_change_nothing(aiougds: CommandLine) -> None:
    image = aiougds.folder / "data"
    data = b"XFSB" + bytes(16 * MIB - 4)
    image.write_bytes(data)
    image.chmod(0o400)
    for suite in METRICS:
        measured(aiougds, suite, "emu:data", "--peers", "caio-aio", "--repeat", 1)
    assert image.read_bytes() == data


@pytest.mark.parametrize("suite", list(METRICS))
def test_writing_over_what_is_known_is_refused(
    aiougds: CommandLine, suite: str
) -> None:
    image = aiougds.folder / "data"
    data = b"XFSB" + bytes(16 * MIB - 4)
    image.write_bytes(data)
    args = ("bench", "emu:data", "--suite", suite, *TINY, "--rw", "both")
    line = aiougds.fail(1, *args)
    assert "nothing was written" in line
    assert image.read_bytes() == data


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--suite", "synk"), "--suite: 'synk' is not known; did you mean 'sync'?"),
        (("--suite", "sync", "--peers", "caio"), "--peers: 'caio' is not known"),
        (("--suite", "sync", "--modes", "fast"), "--modes: 'fast' is not known"),
        (("--suite", "sync", "--sizes", "4KiB,x"), "--sizes: 'x' is not a size"),
        (("--suite", "sync", "--tasks", "0"), "--tasks: '0' is not a whole number"),
        (("--suite", "sync", "--depth", 4), "--depth is of a single load"),
        (("--suite", "sync", "--rw", "mixed"), "suites have --rw both"),
        (("emu:", "--tasks", "4"), "--tasks is of suites: name one with --suite"),
        (("emu:", "--rw", "both"), "a single load has --rw mixed"),
        ((), "an ADDRESS is missing"),
        (("--json", "emu:"), "put --json behind it"),
        (("emu:", "--json", "no/where.json"), "there is no folder"),
        (("--suite", "sync", "--csv", "no/where.csv"), "there is no folder"),
        (("emu:?size=1MiB", "--suite", "sync"), "the suites need at least 16 MiB"),
        (("--suite", "sync", "--sizes", "5000"), "--sizes 5000 is not a multiple"),
        (("--suite", "sync", "--peer-path", "none"), "--peer-path none: No such file"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_what_is_refused(
    aiougds: CommandLine, args: tuple[object, ...], words: str
) -> None:
    assert words in aiougds.fail(2, "bench", *args)


def test_a_single_load_into_a_file(aiougds: CommandLine) -> None:
    args = ("--duration", "20ms", "--warmup", "1ms", "--json", "load.json")
    out = aiougds.succeed("bench", "emu:?size=1MiB", *args)
    told = json.loads((aiougds.folder / "load.json").read_text())
    assert "IOPS" in out
    assert told["read"]["operations"] > 0


def test_figures(aiougds: CommandLine) -> None:
    args = ("--suite", "setup,sync,batch,poll", *TINY, "--peers", "none", "--rw")
    more = ("--repeat", 1, "--plot", "figures")
    out = aiougds.succeed("bench", *args, "both", *more)
    drawn = {path.stem for path in (aiougds.folder / "figures").iterdir()}
    assert drawn == {
        "figure-03-setup", "figure-04-sync-read", "figure-05-sync-write",
        "figure-06-sync-latency-read", "figure-06-sync-latency-write",
        "figure-08-batch-read", "figure-09-batch-write", "figure-10-first-batch-read",
        "figure-10-first-batch-write", "figure-11-steady-read",
        "figure-11-steady-write", "figure-14-poll-read", "figure-14-poll-write",
    }  # fmt: skip
    for path in (aiougds.folder / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"figures/{path.name}" in out


def test_no_figures_without_matplotlib_and_nothing_is_measured(
    aiougds: CommandLine,
) -> None:
    hidden = aiougds.folder / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text("raise ImportError('it is hidden')\n")
    aiougds.environment["PYTHONPATH"] = str(hidden)
    args = ("--suite", "sync", *TINY, "--plot", "figures", "--json", "run.json")
    line = aiougds.fail(1, "bench", *args)
    assert "--plot needs matplotlib (it is hidden): pip install 'aiougds[plot]'" in line
    assert not (aiougds.folder / "run.json").exists()


def test_beside_an_earlier_run(aiougds: CommandLine) -> None:
    args = ("--suite", "sync", *TINY, "--peers", "none", "--modes", "inline")
    aiougds.succeed("bench", *args, "--json", "old.json")
    path = aiougds.folder / "old.json"
    old = json.loads(path.read_text())
    for cell in old["suites"][0]["cells"]:
        for name in ("median", "p5", "p95"):
            cell["metrics"]["latency"][name] /= 1000
    old["machine"]["cpus"] += 1
    path.write_text(json.dumps(old))
    out = aiougds.succeed("bench", *args, "--compare", "old.json")
    assert "another cpus" in out
    assert "2 in both, 2 of them apart" in out
    for text, words in (
        ("{", "is no JSON"),
        ("{}", "is no record of aiougds bench --suite"),
        (json.dumps(old | {"version": 0}), "is of version 0 of the record"),
    ):
        path.write_text(text)
        assert words in aiougds.fail(2, "bench", *args, "--compare", "old.json")


def test_import_brings_nothing_of_it() -> None:
    code = (
        "import sys, aiougds, aiougds.cli; "
        "print([m for m in sys.modules if '_suites.' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sys, aiougds; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "aiougds.cli" not in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "peers" not in done.stdout
    assert "matplotlib" not in done.stdout
