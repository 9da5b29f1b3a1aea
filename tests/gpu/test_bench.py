"""``aiougds bench --suite stream`` on a GPU of each vendor, by its own name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu.rig import GPU

from aiougds.cli import main
from aiougds.cli._suites.peers import HOST_PEERS

pytestmark = pytest.mark.soft_gpu
TINY = (
    "--repeat", "2", "--duration", "5ms", "--warmup", "1ms", "--sizes", "4KiB,64KiB",
    "--span", "16MiB",
)  # fmt: skip


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_stream_suite(
    gpu: GPU, loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "run.json", tmp_path / "figures"
    args = ("bench", f"emu:{tmp_path}/data?size=16MiB", "--suite", "stream", *TINY)
    more = ("--device", f"{gpu.name}:0", "--rw", "both", "--loop", loop)
    assert main([*args, *more, "--json", str(out), "--plot", str(figures)]) == 0
    (suite,) = json.loads(out.read_text())["suites"]
    assert suite["device"]["memory"].startswith(f"{gpu.name}:0, ")
    assert ("software" in suite["device"]["memory"]) == hasattr(gpu.soft, "forget")
    assert suite["device"]["memory"] in capsys.readouterr().out
    cells = suite["cells"]
    ours = ["aiougds on stream", "aiougds awaited"]
    one = [cell for cell in cells if not cell["batch"] and cell["side"] in ours]
    assert len(one) == 2 * 2 * 2
    assert all(cell["metrics"]["latency"]["median"] > 0 for cell in one)
    schedules = [cell for cell in cells if cell["batch"]]
    assert [cell["rw"] for cell in schedules] == ["read", "write"]
    for cell in schedules:
        assert set(cell["metrics"]) == {"sequential", "overlapped", "pipelined"}
        assert all(values["median"] > 0 for values in cell["metrics"].values())
    (missing,) = [side for side in suite["sides"] if side["name"] == "cufile on stream"]
    assert missing["why_not"]
    assert {path.stem for path in figures.iterdir()} == {
        f"figure-{name}-{rw}" for name in ("12-stream", "13-schedules")
        for rw in ("read", "write")
    }  # fmt: skip


def test_the_others_in_memory_of_a_gpu(gpu: GPU, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    args = ("bench", f"emu:{tmp_path}/data?size=16MiB", "--suite", "sync", *TINY)
    hosts = ",".join(peer.name for peer in HOST_PEERS)
    more = ("--device", f"{gpu.name}:0", "--modes", "inline", "--peers", hosts)
    assert main([*args, *more, "--json", str(out)]) == 0
    (suite,) = json.loads(out.read_text())["suites"]
    assert {cell["side"] for cell in suite["cells"]} == {"aiougds inline"}
    for side in suite["sides"][1:]:
        assert side["why_not"]


def test_a_gpu_that_is_not_there(
    gpu: GPU, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("bench", f"emu:{tmp_path}/data?size=16MiB", "--suite", "stream", *TINY)
    for name in (f"{gpu.name}:77", f"{gpu.name}:x", "tpu:0"):
        assert main([*args, "--device", name]) == 2
        assert f"--device {name}: " in capsys.readouterr().err
