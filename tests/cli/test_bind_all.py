"""``aiougds bind --config``: the drives that a file names, as a unit does at boot."""

from __future__ import annotations

import argparse
import json
import threading
from pathlib import Path

import pytest
from helpers.command_line import CommandLine
from helpers.machine import Kernel, Machine

from aiougds.cli import _bind, _devices
from aiougds.cli._bind_all import MissingError
from aiougds.cli._devices import ConfigError, Device, Devices, load
from aiougds.cli._failures import CommandError, RefusedError
from aiougds.cli._host.functions import find
from aiougds.cli._host.system import System

GPT = (512, b"EFI PART")
FIRST, SECOND = "0000:65:00.0", "0000:66:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "root")
    made.nvme()
    made.nvme(SECOND, "nvme1", "S2")
    return made


@pytest.fixture
def kernel(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(machine)
    # It is the running machine here.
    monkeypatch.setattr(_bind, "System", lambda root: made)
    monkeypatch.setattr(System, "real", property(lambda self: True))
    return made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "devices.toml"


def bind(config: Path, text: str, *, yes: bool = True, output: str = "text") -> int:
    config.write_text(f"wait_s = 0\n{text}")
    args = argparse.Namespace(
        config=config, address=None, serial=None, yes=yes, output=output, sysroot="/"
    )
    return _bind.run(args)


def drives(*serials: str, more: str = "") -> str:
    return "\n".join(f'[[device]]\nserial = "{one}"\n{more}' for one in serials)


def driver(kernel: Kernel, address: str = FIRST) -> str | None:
    return find(kernel, address).driver


def failures(config: Path, text: str) -> list[Exception]:
    with pytest.raises(ExceptionGroup) as caught:
        bind(config, text)
    return list(caught.value.exceptions)


def test_all_are_bound_and_a_second_time_changes_nothing(
    kernel: Kernel, config: Path
) -> None:
    assert bind(config, drives("S1", "S2")) == 0
    assert driver(kernel) == driver(kernel, SECOND) == "ugds_drv"
    kernel.log.clear()
    assert bind(config, drives("S1", "S2")) == 0
    assert kernel.log == []


def test_without_yes_it_is_said_and_not_done(
    kernel: Kernel, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bind(config, drives("S2"), yes=False, output="json") == 0
    (move,) = json.loads(capsys.readouterr().out)["moves"]
    assert (move["address"], move["serial"], move["done"]) == (SECOND, "S2", False)
    assert move["steps"]
    assert kernel.log == []


def test_one_that_is_mounted_keeps_no_other_from_it(
    machine: Machine, kernel: Kernel, config: Path
) -> None:
    machine.mount("/dev/nvme0n1", "/data", machine.number("nvme0n1"))
    (error,) = failures(config, drives("S1", "S2", more="overwrite = true\n"))
    assert isinstance(error, RefusedError)
    assert "0000:65:00.0 was not changed" in str(error)
    assert "/data" in str(error)
    assert driver(kernel) == "nvme"
    assert driver(kernel, SECOND) == "ugds_drv"


def test_what_is_stored_there_is_overruled_only_where_it_is_said(
    machine: Machine, kernel: Kernel, config: Path
) -> None:
    with machine.at("/dev/nvme0n1").open("r+b") as file:
        file.seek(GPT[0])
        file.write(GPT[1])
    (error,) = failures(config, drives("S1"))
    assert "partition table" in str(error)
    assert driver(kernel) == "nvme"
    assert bind(config, drives("S1", more="overwrite = true\n")) == 0
    assert driver(kernel) == "ugds_drv"


def test_one_that_is_not_there_or_elsewhere(
    kernel: Kernel, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = drives("S3") + drives("S1", more=f'address = "{SECOND}"\n')
    missing, elsewhere = failures(config, text)
    assert capsys.readouterr().out == ""
    assert isinstance(missing, MissingError)
    assert "no NVMe drive has the serial number S3" in str(missing)
    assert isinstance(elsewhere, RefusedError)
    assert f"S1 is at {FIRST}, and was to be at {SECOND}" in str(elsewhere)
    assert kernel.log == []


def test_one_that_comes_late_is_waited_for(
    machine: Machine, kernel: Kernel, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    original = _bind.bind_all.__globals__["functions"]

    def functions(system: System) -> list[object]:
        if looked.is_set() and not machine.at(f"/dev/{'nvme2'}").exists():
            machine.nvme("0000:67:00.0", "nvme2", "S3")
        looked.set()
        found: list[object] = original(system)
        return found

    monkeypatch.setitem(_bind.bind_all.__globals__, "functions", functions)
    config.write_text(f"wait_s = 20\n{drives('S3')}")
    args = argparse.Namespace(
        config=config, address=None, serial=None, yes=True, output="text", sysroot="/"
    )
    assert _bind.run(args) == 0
    assert driver(kernel, "0000:67:00.0") == "ugds_drv"


def test_a_file_that_names_none(
    kernel: Kernel, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bind(config, "") == 0
    assert capsys.readouterr().out == "nothing to bind\n"


def test_the_file_is_read_as_it_says(config: Path) -> None:
    config.write_text(
        f"wait_s = 2.5\n{drives('S1', more=chr(10))}"
        f'[[device]]\nserial = " S2 "\naddress = "{SECOND}"\noverwrite = true\n'
    )
    second = Device("S2", SECOND, overwrite=True)
    assert load(config) == Devices((Device("S1"), second), 2.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device = 3", "write each drive below a line [[device]]"),
        ("[device]\nserial = 'a'", "write each drive below a line [[device]]"),
        ("[[device]]", "serial = None in [[device]] 1: say the drive's serial"),
        ("[[device]]\nserial = 7", "serial = 7 in [[device]] 1"),
        (drives("a") + drives("b", "a"), "serial 'a' is there twice"),
        (drives("a", more="slot = 'x'\n"), "'slot' in [[device]] 1 is not known"),
        (drives("a", more="address = '65:00.0'\n"), "say a PCI address such as"),
        (drives("a", more="overwrite = 1\n"), "overwrite = 1 in [[device]] 1: true"),
        ("wait = 3", "'wait' at the top is not known; known are device, wait_s"),
        ("wait_s = -1", "wait_s = -1: say a number of seconds from 0 to 600"),
        ("wait_s = true", "wait_s = True: say a number"),
        ("wait_s = nan", "wait_s = nan: say a number"),
        ("serial = ", "is not TOML"),
        ("serial = " + "[" * 5000, "is not TOML"),
    ],
)
def test_what_the_file_cannot_say(config: Path, text: str, words: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert words in str(caught.value)
    assert str(config) in str(caught.value)


def test_bytes_that_are_no_text(config: Path) -> None:
    config.write_bytes(b"wait_s = \xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(config)


def test_from_a_shell(aiougds: CommandLine, tmp_path: Path) -> None:
    done = aiougds("bind", "--config", "none.toml")
    assert done.returncode == 1
    assert done.stderr == "aiougds: error: none.toml: No such file or directory\n"
    config = tmp_path / "devices.toml"
    config.write_text("wait = 1")
    done = aiougds("bind", "--config", str(config))
    assert done.returncode == 2
    assert f"{config}: 'wait' at the top is not known" in done.stderr
    done = aiougds("bind", "65:00.0", "--config", str(config))
    assert (done.returncode, "no ADDRESS" in done.stderr) == (2, True)
    done = aiougds("bind")
    assert (done.returncode, "say which drive" in done.stderr) == (2, True)


def test_errors_are_the_commands_own() -> None:
    assert issubclass(ConfigError, CommandError)
    assert ConfigError.status == 2
    assert _devices.WAIT_S == 30
