"""The commands that the documents show run, and print what is shown, in shape.

Those that are run elsewhere (a mark says by whom) are taken apart here, so that most
mistakes are seen at once: grammar, our own options, extras, sessions of nox, JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents.pages import IN_ORDER, ROOT, Block, blocks, blocks_of
from documents.shape import alike
from documents.shell import steps, words_of
from helpers.command_line import BUSY

from aiougds import OptionError
from aiougds._store_options import StoreOptions
from aiougds.cli import _main
from aiougds.lmcache._slab_place import SlabPlace

MIB = 1 << 20
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHELL = blocks("sh", "console")
# What runs here: our own commands, and what makes files where they run.
HARMLESS = {"aiougds", "cat", "head", "ls", "mkdir", "printf", "python", "truncate"}
PROCESS = "4711"  # stands for a process that reads and writes


def ids(block: Block) -> str:
    return block.name


@pytest.fixture(scope="module")
def runtime() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def environment(
    tmp_path_factory: pytest.TempPathFactory, runtime: Path
) -> dict[str, str]:
    """``aiougds`` and ``python`` are those of this environment."""
    programs = tmp_path_factory.mktemp("bin")
    for name, run in {"aiougds": "-m aiougds.cli", "python": ""}.items():
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {run} "$@"\n')
        file.chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIOUGDS_", "COLUMNS", "FORCE_COLOR", "NO_COLOR"))
    }
    return kept | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONSAFEPATH": "1",
        "XDG_RUNTIME_DIR": str(runtime),
    }


@pytest.fixture(scope="module")
def process(environment: dict[str, str]) -> Iterator[str]:
    """The process that is looked at."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "ready\n"
        yield str(busy.pid)
        busy.kill()


def run(block: Block, folder: Path, environment: dict[str, str], process: str) -> None:
    """Run the commands of a block; each has to succeed, and to print what is shown."""
    test_what_runs_is_harmless(block)
    for command, shown in steps(block):
        done = subprocess.run(
            ["sh", "-e", "-c", command.replace(PROCESS, process)],
            capture_output=True,
            text=True,
            timeout=50,
            cwd=folder,
            env=environment | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        if shown:
            assert alike(shown, done.stdout), done.stdout


@pytest.mark.parametrize(
    "block", [b for b in SHELL if not b.mark and b.path not in IN_ORDER], ids=ids
)
def test_it_runs_and_prints_what_is_shown(
    block: Block, tmp_path: Path, environment: dict[str, str], process: str
) -> None:
    for name in ("data.bin", "weights.bin"):
        (tmp_path / name).write_bytes(bytes(2 * MIB))
    run(block, tmp_path, environment, process)


@pytest.mark.parametrize("page", IN_ORDER, ids=lambda page: page.name)
def test_a_page_runs_from_its_beginning(
    page: Path, tmp_path: Path, environment: dict[str, str], process: str
) -> None:
    """In a folder that is empty, as a reader's is."""
    ran = 0
    for block in blocks_of(page):
        if block.mark or block.language not in ("python", "console", "sh"):
            continue
        ran += 1
        if block.language != "python":
            run(block, tmp_path, environment, process)
            continue
        (tmp_path / "first.py").write_text(block.source, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "error", "first.py"],
            capture_output=True,
            text=True,
            timeout=50,
            cwd=tmp_path,
            env=environment,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        assert not block.after or alike(block.after, done.stdout), done.stdout
    assert ran >= 3


def parsed(args: list[str]) -> object:
    """Return the exit status that our parser ends with; None: it takes them."""
    try:
        _main._parser().parse_args(args)
    except SystemExit as error:
        return error.code
    return None


def look_at_ours(words: list[str]) -> None:
    if any("..." in word or word.isupper() for word in words):
        return  # the form of a command
    assert not parsed(words[1:]), words


def look_at_pip(words: list[str]) -> None:
    offered = PROJECT["project"]["optional-dependencies"]
    for word in words:
        for names in re.findall(r"^(?:aiougds|\.)\[(.*)\]$", word):
            assert set(names.split(",")) <= set(offered), word


def look_at_nox(words: list[str]) -> None:
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for name in re.findall(r"-s (\S+)", " ".join(words)):
        named = rf'def {name}\(session|nox\.session\(name="{name}"'
        assert re.search(named, sessions), words


def look_at_paths(words: list[str]) -> None:
    for word in words:
        if re.match(r"(tests|kmod|examples|docs|\.ci)(/|$)", word):
            assert (ROOT / word.split(":")[0]).exists() or word.endswith(".ko"), words


def objects_in(value: object) -> Iterator[dict[str, object]]:
    """Every object of a JSON text."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from objects_in(each)


def look_at_json(text: str) -> int:
    """Parse it; what is said to us is read as we would. Returns how often that was."""
    ours = 0
    for each in objects_in(json.loads(text)):
        if each.get("class_name") == "AiougdsL2Adapter":
            StoreOptions.parse(each["adapter_params"], more=("register_arena",))
        elif each.get("type") == "AiougdsTier":
            others = {"type", "module_path", "enable_kv_events"}
            StoreOptions.parse({k: v for k, v in each.items() if k not in others})
        else:
            continue
        ours += 1
    return ours


def configurations(block: Block) -> Iterator[str]:
    """The JSON texts in the arguments and assignments of a block."""
    for command, _ in steps(block):
        yield from re.findall(r"'(\{[^']*\})'", command)


def look_at_slab(words: list[str]) -> None:
    if "--gds-l1-path" in words:
        place = words[words.index("--gds-l1-path") + 1]
        assert SlabPlace.parse(place, 1 << 30).address == place.partition("#")[0]


@pytest.mark.parametrize("block", SHELL, ids=ids)
def test_it_could_run(block: Block) -> None:
    for command, _ in steps(block):
        subprocess.run(["sh", "-n", "-c", command], check=True)
        for words in words_of(command):
            look_at_paths(words)
            look_at_slab(words)
            program = words[0].removeprefix(".venv/bin/").removeprefix("sudo ")
            if program == "aiougds":
                look_at_ours(words)
            elif program in ("pip", "pip3"):
                look_at_pip(words)
            elif program == "nox":
                look_at_nox(words)


def test_what_is_configured_would_be_taken() -> None:
    texts = [text for block in SHELL for text in configurations(block)]
    assert sum(look_at_json(text) for text in texts) >= 4
    with pytest.raises(OptionError, match="slot_bites"):
        look_at_json('{"type": "AiougdsTier", "addresses": "emu:", "slot_bites": 1}')


@pytest.mark.parametrize("block", [b for b in SHELL if not b.mark], ids=ids)
def test_what_runs_is_harmless(block: Block) -> None:
    used = {words[0] for command, _ in steps(block) for words in words_of(command)}
    assert used <= HARMLESS, "mark it: run by"


def test_readme_has_two_commands() -> None:
    commands = [b.source for b in SHELL if b.path == ROOT / "README.md"]
    assert len(commands) == 2
    for command in commands:
        assert command.count("\n") == 1
        assert command.startswith("sh .ci/setup && ")
