"""Sizes, times and paths: read from the command line, written for people."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from aiougds._address import parse_size, parse_time
from aiougds._errors import AddressError

KIB: Final = 1 << 10
MIB: Final = 1 << 20
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(text: str) -> int:
    """Read a size such as 4096, 64KiB or 1.5GiB; argparse shows what is wrong."""
    try:
        return parse_size(text, "size")
    except AddressError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size such as 4096, 64KiB or 1GiB"
        ) from None


def positive_size(text: str) -> int:
    """Read a size that is not 0."""
    value = size(text)
    if not value:
        raise argparse.ArgumentTypeError("the size is 0; give at least one byte")
    return value


def filename(text: str) -> str:
    """Read the name of a file or folder; an empty one would be the folder itself."""
    if not text:
        raise argparse.ArgumentTypeError("'' names nothing; is a variable not set?")
    return text


def filepath(text: str) -> Path:
    """Read the name of a file or folder."""
    return Path(filename(text))


def folder(text: str) -> Path:
    """Read the name of a folder that is there."""
    found = filepath(text)
    if not found.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return found


def seconds(text: str) -> float:
    """Read a time such as 5, 5s or 500ms."""
    plain = text.replace(".", "", 1)
    try:
        value = float(text) if plain.isdigit() else parse_time(text, "") / 1e9
    except AddressError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 5, 5s or 500ms"
        ) from None
    return value


def count(text: str) -> int:
    """Read a whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def percent(text: str) -> int:
    """Read a whole number from 0 to 100."""
    if not (text.isascii() and text.isdigit() and int(text) <= 100):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage, 0 to 100")
    return int(text)


def as_bytes(value: float) -> str:
    """Write bytes: ``64 KiB``, ``1.5 GiB``."""
    power = 0
    while value >= 1024 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    return f"{value:.{0 if value == int(value) else 1}f} {_BINARY[power]}"


def as_rate(bytes_per_s: float) -> str:
    """Write bandwidth, decimal as drives are sold: ``3.52 GB/s``."""
    if bytes_per_s >= 1e9:
        return f"{bytes_per_s / 1e9:.2f} GB/s"
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def as_time(ns: float) -> str:
    """Write a time: ``850 ns``, ``12.3 us``, ``4.5 ms``, ``1.20 s``."""
    if ns < 1e3:
        return f"{ns:.0f} ns"
    if ns < 1e6:
        return f"{ns / 1e3:.1f} us"
    if ns < 1e9:
        return f"{ns / 1e6:.1f} ms"
    return f"{ns / 1e9:.2f} s"


def as_count(value: float) -> str:
    """Write a number with its thousands apart: ``412,300``."""
    return f"{value:,.0f}"
