"""The file that names the drives of a machine, for ``aiougds bind --config``.

It says which drives by their serial numbers, since addresses change with the slots::

    wait_s = 30                     # for drives that the kernel still looks through

    [[device]]
    serial = "S5XXNA0R123456"
    address = "0000:65:00.0"        # only there, if it is said
    overwrite = false               # true: whatever is stored on it
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiougds.cli._failures import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

WAIT_S: Final = 30.0
MAX_WAIT_S: Final = 600.0
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class ConfigError(UsageError):
    """The file of drives says what cannot be done."""


@dataclass(frozen=True, slots=True)
class Device:
    """A drive that is to be bound."""

    serial: str
    address: str | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Devices:
    """What the file says."""

    devices: tuple[Device, ...]
    wait_s: float = WAIT_S


def load(path: Path) -> Devices:
    """Read the file; raise ConfigError with the place, the value and the remedy."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    _known(path, "at the top", found, ("device", "wait_s"))
    wait_s = found.get("wait_s", WAIT_S)
    if not _is_number(wait_s) or not 0 <= wait_s <= MAX_WAIT_S:
        raise ConfigError(
            f"{path}: wait_s = {wait_s!r}: say a number of seconds from 0 to "
            f"{MAX_WAIT_S:g}"
        )
    listed = found.get("device", [])
    if not isinstance(listed, list) or not all(
        isinstance(one, dict) for one in cast("list[object]", listed)
    ):
        raise ConfigError(f"{path}: device: write each drive below a line [[device]]")
    tables = cast("list[dict[str, object]]", listed)
    devices = tuple(_device(path, number, one) for number, one in enumerate(tables, 1))
    serials = [device.serial for device in devices]
    for serial in serials:
        if serials.count(serial) > 1:
            raise ConfigError(f"{path}: serial {serial!r} is there twice: say it once")
    return Devices(devices, float(wait_s))


def _device(path: Path, number: int, found: dict[str, object]) -> Device:
    where = f"in [[device]] {number}"
    _known(path, where, found, ("address", "overwrite", "serial"))
    serial, address = found.get("serial"), found.get("address")
    overwrite = found.get("overwrite", False)
    if not isinstance(serial, str) or not serial.strip():
        raise ConfigError(
            f"{path}: serial = {serial!r} {where}: say the drive's serial number, "
            "which aiougds list shows"
        )
    if address is not None and not (
        isinstance(address, str) and _ADDRESS.fullmatch(address)
    ):
        raise ConfigError(
            f"{path}: address = {address!r} {where}: say a PCI address such as "
            "0000:65:00.0, or leave it out"
        )
    if not isinstance(overwrite, bool):
        raise ConfigError(f"{path}: overwrite = {overwrite!r} {where}: true or false")
    return Device(serial.strip(), address, overwrite)


def _known(
    path: Path, where: str, found: dict[str, object], known: Collection[str]
) -> None:
    for name in found:
        if name not in known:
            raise ConfigError(
                f"{path}: {name!r} {where} is not known; known are {', '.join(known)}"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
