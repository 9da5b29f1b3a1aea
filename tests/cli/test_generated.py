"""Man pages and completions are those of the parsers, and shells take them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
HERE = Path(__file__).resolve().parents[2] / "docs" / "command-line"
COMPLETIONS = HERE / "completions"
MAN = sorted((HERE / "man").glob("*.1"))


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.glob("*/*"))
        if path.suffix != ".pyc"
    }


def test_they_are_what_the_parsers_say(tmp_path: Path) -> None:
    make = [sys.executable, str(HERE / "make.py"), str(tmp_path)]
    subprocess.run(make, check=True)
    made, kept = files(tmp_path), files(HERE)
    stale = [name for name in made | kept if made.get(name) != kept.get(name)]
    assert stale == [], "out of date: nox -s generated writes them anew"


def completed(*words: str) -> set[str]:
    """Return what bash offers for the last word."""
    script = f"""
        source {COMPLETIONS}/aiougds
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        function=$(complete -p aiougds | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $function aiougds "${{@: -1}}" "${{@: -2:1}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    command = ["bash", "-c", script, "bash", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_choices() -> None:
    commands = completed("aiougds", "")
    assert {"demo", "bind", "store"} <= commands
    assert completed("aiougds", "st") == {"store"}
    assert {"format", "check"} <= completed("aiougds", "store", "")
    assert completed("aiougds", "bind", "--conf") == {"--config"}
    assert completed("aiougds", "demo", "--loop", "u") == {"uvloop"}


@pytest.mark.parametrize(
    ("shell", "name"),
    [("bash", "aiougds"), ("zsh", "_aiougds"), ("fish", "aiougds.fish")],
)
def test_a_shell_parses_its_file(shell: str, name: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    subprocess.run([shell, "-n", str(COMPLETIONS / name)], check=True)


@pytest.mark.skipif(shutil.which("man") is None, reason="no man on this machine")
def test_man_has_nothing_to_say_about_a_page() -> None:
    env = os.environ | {"MANROFFSEQ": "", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    for path in MAN:
        done = subprocess.run(
            ["man", "-l", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", str(path)],
            capture_output=True,
            text=True,
            env=env,
        )
        assert (path.name, done.returncode, done.stderr) == (path.name, 0, "")
