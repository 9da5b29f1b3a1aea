"""Exit statuses, one-line errors, interrupts, and who may read the output."""

from __future__ import annotations

import importlib.metadata
import signal
from pathlib import Path

import pytest
from helpers.command_line import CommandLine

from aiougds._errors import MediaError, RangeError
from aiougds.cli._failures import CommandError, leaves, sentence, status_of

COMMANDS = ("demo", "info", "copy", "bench", "list", "bind", "unbind", "check")


def test_version_is_the_distributions(aiougds: CommandLine) -> None:
    version = importlib.metadata.version("aiougds")
    assert aiougds.succeed("--version") == f"aiougds {version}\n"


def test_the_script_is_the_same_function() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="aiougds")
    from aiougds.cli import main

    assert script.load() is main


def test_help_names_the_commands_and_addresses(aiougds: CommandLine) -> None:
    told = aiougds.succeed("--help")
    for word in (*COMMANDS, "emu:PATH", "130"):
        assert word in told


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(aiougds: CommandLine, command: str) -> None:
    assert f"usage: aiougds {command}" in aiougds.succeed(command, "--help")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "required: COMMAND"),
        (("fetch",), "invalid choice: 'fetch'"),
        (("bench", "emu:", "--size", "4QB"), "'4QB' is not a size such as 4096"),
        (("bench", "emu:", "--size", "0"), "give at least one byte"),
        (("bench", "emu:", "--depth", "0"), "'0' is not a whole number from 1"),
        (("bench", "emu:", "--mix", "101"), "'101' is not a percentage"),
        (("bench", "emu:", "--duration", "soon"), "'soon' is not a time such as 5"),
        (("bench", "emu:", "--mode", "fast"), "invalid choice: 'fast'"),
        (("info", "nvme0"), "valid are: /dev/ugds/, /dev/ugds_drv, emu:, vfio:"),
        (("info", "emu:?lbas=512"), "did you mean 'lba'?"),
        (("info", "emu:?lba=1000"), "not a power of two"),
        (("bind", "--config", ""), "--config: '' names nothing"),
        (("bench", "emu:", "--json", ""), "--json: '' names nothing"),
        (("bench", "--suite", "setup", "--csv", ""), "--csv: '' names nothing"),
        (("trace", "1", "--chrome", ""), "--chrome: '' names nothing"),
        (("list", "--sysroot", ""), "--sysroot: '' names nothing"),
        (("check", "--sysroot", "/nothing"), "'/nothing' is not a folder"),
    ],
)
def test_wrong_usage_is_status_2(
    aiougds: CommandLine, args: tuple[str, ...], words: str
) -> None:
    assert words in aiougds.fail(2, *args)


def test_failures_are_status_1_in_one_line(
    aiougds: CommandLine, tmp_path: Path
) -> None:
    assert "does not exist" in aiougds.fail(1, "info", "emu:absent.img")
    assert "is a directory" in aiougds.fail(1, "info", f"emu:{tmp_path}")
    assert "is not there" in aiougds.fail(1, "info", "/dev/ugds_drv4096")
    assert "later version" in aiougds.fail(1, "info", "vfio:0000:65:00.0")


def test_debug_shows_the_traceback_before_or_after_the_command(
    aiougds: CommandLine,
) -> None:
    for args in (
        ("--debug", "info", "emu:absent.img"),
        ("info", "emu:absent.img", "--debug"),
    ):
        done = aiougds(*args)
        assert done.returncode == 1
        assert "Traceback (most recent call last)" in done.stderr
        assert "AddressNotFoundError" in done.stderr


def test_an_interrupt_ends_a_command_cleanly(
    aiougds: CommandLine, tmp_path: Path
) -> None:
    slow = f"emu:{tmp_path / 'n.img'}?size=64MiB&latency=50ms&channels=1"
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(64 << 20)
    with aiougds.start("copy", source, slow) as process:
        while not (tmp_path / "n.img").exists():  # it takes three seconds and more
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == ("", "aiougds: error: interrupted\n")


def test_a_reader_that_goes_away_is_no_traceback(aiougds: CommandLine) -> None:
    with aiougds.start("info", "emu:?size=1MiB", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
    assert complaint == ""
    assert process.returncode in (0, 1)  # 0 if all was written before


def test_groups_of_errors_are_taken_apart() -> None:
    inner = ExceptionGroup("inner", [CommandError("b\n  c"), RangeError("d")])
    group = ExceptionGroup("outer", [MediaError("a"), inner])
    assert [sentence(leaf) for leaf in leaves(group)] == ["a", "b c", "d"]
    assert [status_of(leaf) for leaf in leaves(group)] == [1, 1, 1]
    assert status_of(KeyError("a defect")) is None
    assert sentence(FileNotFoundError(2, "gone", "name")) == "name: gone"
