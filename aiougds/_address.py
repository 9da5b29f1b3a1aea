"""Addresses: ``scheme:path?option=value&...``, and what ``emu:`` understands."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from aiougds._errors import (
    AddressError,
    AddressIsDirectoryError,
    AddressNotFoundError,
    AddressPermissionError,
)
from aiougds._lies import LIES, parse_lies
from aiougds._options import suggest

GIB: Final = 1 << 30
MAX_NAMESPACES: Final = 32
VOLATILE_DEFAULT: Final = 64 << 20
VOLATILE_LEAST: Final = 4 << 10
VOLATILE_MOST: Final = 1 << 40

_UNITS: Final = {
    "": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "m": 1 << 20,
    "mib": 1 << 20, "mb": 10**6, "g": 1 << 30, "gib": 1 << 30, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12, "p": 1 << 50, "pib": 1 << 50,
    "pb": 10**15,
}  # fmt: skip
_TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_SPLIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """An address taken apart; the options are not looked at yet."""

    text: str
    """All of it."""
    scheme: str
    """Which transport, with what separates it from the path."""
    path: str
    """Between scheme and options, unescaped."""
    options: dict[str, str]
    """Names and values, as they were written."""


@dataclass(frozen=True, slots=True)
class EmuNamespace:
    """A namespace of an embedded controller; ``nbytes`` 0: the file's own length."""

    nsid: int
    """Namespace identifier."""
    nbytes: int
    lba_bytes: int
    """Bytes of a block."""
    metadata_bytes: int = 0
    """Metadata of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmuOptions:
    """What an ``emu:`` address asks for: see the table of its options."""

    path: str | None
    create: bool
    namespaces: tuple[EmuNamespace, ...]
    readonly: bool = False
    direct: bool = False
    nodata: bool = False
    vwc: bool = True
    wrr: bool = False
    shadow: bool = False
    step: bool = True
    coalescing: bool = True
    awake: bool = False
    mdts: int = 8
    dstrd: int = 0
    mpsmin: int = 0
    mpsmax: int = 4
    to: int = 20
    aerl: int = 3
    acl: int = 3
    mqes: int = 1023
    awupf: int = 0
    queues: int = 16
    vectors: int = 16
    threads: int = 1
    channels: int = 0
    window: int = 0
    latency_ns: int = 0
    latency_per_kib_ns: int = 0
    jitter_ns: int = 0
    seed: int = 1
    volatile_bytes: int = 0
    cap: int = 0
    vs: int | None = None
    csts: int = 0
    crdt: tuple[int, ...] = ()
    garble: tuple[tuple[str, str, int], ...] = ()
    hostile: tuple[int, int] | None = None


_MOST: Final = (1 << 63) - 1
KMOD_PREFIX: Final = "/dev/ugds_drv"
KMOD_LINKS: Final = "/dev/ugds/"

# Plain numbers of an emu: address, with their limits (NVMe base, clause 3.1.3).
_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "mdts": (0, 20),
    "dstrd": (0, 10),
    "mpsmin": (0, 4),
    "mpsmax": (0, 4),
    "to": (1, 255),
    "aerl": (0, 255),
    "acl": (0, 255),
    "mqes": (1, 65535),
    "awupf": (0, 65535),
    "queues": (1, 128),
    "vectors": (1, 2048),
    "threads": (1, 64),
    "channels": (0, 4096),
    "window": (0, 4096),
    "seed": (0, (1 << 64) - 1),
}
_SWITCHES: Final = (
    "readonly", "direct", "vwc", "shadow", "step", "coalescing", "awake",
)  # fmt: skip
_TIME_OPTIONS: Final = {
    "latency": "latency_ns",
    "latency_per_kib": "latency_per_kib_ns",
    "jitter": "jitter_ns",
}
_OTHERS: Final = ("size", "lba", "namespaces", "arbitration", "data", "volatile", *LIES)
EMU_OPTIONS: Final = (*_NUMBERS, *_SWITCHES, *_TIME_OPTIONS, *_OTHERS)


def split_address(address: str, schemes: tuple[str, ...]) -> Address:
    """Take an address apart; an unknown scheme is refused with the known ones."""
    if not isinstance(address, str):
        raise AddressError(
            f"an address is a string such as 'emu:PATH', not {type(address).__name__}"
        )
    head, _, query = address.partition("?")
    for scheme in schemes:
        if head.startswith(scheme):
            break
    else:
        word = head.partition(":")[0] + ":"
        local = f" For a file: 'emu:{head}'." if os.path.exists(head) else ""
        raise AddressError(
            f"address {address!r} has no known scheme; {suggest(word, schemes)}.{local}"
        )
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise AddressError(
                f"{part!r} in {address!r} is not of the form option=value"
            )
        if name in options:
            raise AddressError(f"option {name!r} is given twice in {address!r}")
        options[name] = value
    path = head[len(scheme) :].replace("%3F", "?").replace("%25", "%")
    return Address(address, scheme, path, options)


def parse_size(text: str, name: str) -> int:
    """Return bytes of ``512``, ``4KiB``, ``1.5GiB``; binary and decimal units."""
    match = _SPLIT.fullmatch(text)
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise AddressError(f"{name}={text!r} is not a size such as 4096, 64KiB or 1GiB")
    number = float(match[1]) if "." in match[1] else int(match[1])
    if number * factor > _MOST:
        raise AddressError(f"{name}={text!r} is more than 2**63 - 1 bytes, the most")
    return int(number * factor)


def parse_time(text: str, name: str) -> int:
    """Return nanoseconds of ``80us``, ``1.5ms``, ``2s``."""
    match = _SPLIT.fullmatch(text)
    factor = _TIMES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise AddressError(f"{name}={text!r} is not a time such as 500ns, 80us or 2ms")
    nanoseconds = float(match[1]) * factor
    if nanoseconds > _MOST:
        raise AddressError(f"{name}={text!r} is more than 2**63 - 1 ns, the most")
    return int(nanoseconds)


def _number(text: str, name: str) -> int:
    low, high = _NUMBERS[name]
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise AddressError(f"{name}={text!r} is not an integer in {low} .. {high}")
    return int(text)


def _switch(text: str, name: str) -> bool:
    if text not in ("0", "1"):
        raise AddressError(f"{name}={text!r} is neither 0 nor 1")
    return text == "1"


def _lba(text: str, name: str) -> int:
    lba = parse_size(text, name)
    if not 512 <= lba <= 65536 or lba & (lba - 1):
        raise AddressError(f"{name}={text!r} is not a power of two in 512 .. 65536")
    return lba


def _volatile(given: dict[str, str]) -> int:
    text = given.get("volatile", "0")
    nbytes = VOLATILE_DEFAULT if text == "1" else parse_size(text, "volatile")
    if nbytes and not VOLATILE_LEAST <= nbytes <= VOLATILE_MOST:
        raise AddressError(
            f"volatile={text!r} is neither 0 nor 1 (64MiB), nor a size of 4KiB .. 1TiB"
        )
    if nbytes and given.get("data") == "none":
        raise AddressError(
            f"volatile={text} with data=none: there is no data that a power cut could "
            "lose; leave one of them out"
        )
    return nbytes


def _check_size(nbytes: int, lba: int, name: str) -> None:
    if nbytes <= 0 or nbytes % lba:
        raise AddressError(
            f"{name}={nbytes} bytes is not a positive multiple of the block size {lba}"
        )


def _namespaces(text: str, size: int, lba: int) -> tuple[EmuNamespace, ...]:
    found: dict[int, EmuNamespace] = {}
    for item in text.split(","):
        parts = item.split(":")
        if (
            not parts[0].isdigit()
            or not 1 <= int(parts[0]) <= 0xFFFFFFFD
            or len(parts) > 3
        ):
            raise AddressError(
                f"namespaces={text!r}: {item!r} is not ID[:SIZE[:LBA[+META]]]"
            )
        block, _, meta = parts[2].partition("+") if len(parts) == 3 else ("", "", "")
        block_bytes = _lba(block, "namespaces") if block else lba
        nbytes = parse_size(parts[1], "namespaces") if len(parts) > 1 else size
        _check_size(nbytes, block_bytes, f"namespace {parts[0]}: size")
        space = EmuNamespace(
            int(parts[0]),
            nbytes,
            block_bytes,
            parse_size(meta, "namespaces") if meta else 0,
        )
        if space.nsid in found:
            raise AddressError(f"namespaces={text!r} names {space.nsid} twice")
        found[space.nsid] = space
    if len(found) > MAX_NAMESPACES:
        raise AddressError(f"{len(found)} namespaces are more than {MAX_NAMESPACES}")
    return tuple(sorted(found.values(), key=lambda space: space.nsid))


def _file_length(path: str, *, size: int | None, readonly: bool) -> int | None:
    """Return the length of an existing file, or None when it is to be made."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        parent = os.path.dirname(path) or "."
        if readonly:
            raise AddressNotFoundError(
                f"{path} does not exist, and what is only read is not made; name a "
                "file that is there"
            ) from None
        if size is None or not os.path.isdir(parent):
            what = path if os.path.isdir(parent) else f"directory {parent}"
            raise AddressNotFoundError(
                f"{what} does not exist; add ?size=1GiB (or another size) to have the "
                "file made in an existing directory"
            ) from None
        return None
    except PermissionError:
        raise AddressPermissionError(
            f"{path} cannot be looked at: a directory above it denies search permission"
        ) from None
    except (NotADirectoryError, ValueError):
        raise AddressNotFoundError(f"{path!r} is not a path of a file") from None
    if os.path.isdir(path):
        raise AddressIsDirectoryError(f"{path} is a directory; name a file")
    if not status.st_size:
        raise AddressError(
            f"{path} is empty, and a namespace needs a block; remove it, and give "
            "a size (size=1GiB) to have it made"
        )
    if size is not None and status.st_size != size:
        raise AddressError(
            f"{path} has {status.st_size} bytes, but size={size} was asked for; leave "
            "size out to use the file as it is"
        )
    return status.st_size


def parse_kmod(address: Address) -> str:
    """Return the device node of an address of the kernel helper."""
    if address.options:
        name = next(iter(address.options))
        raise AddressError(
            f"{address.scheme}N has no options, but {address.text!r} gives {name!r}; "
            "give keyword arguments to open()"
        )
    if address.scheme == KMOD_PREFIX:
        if not (address.path.isascii() and address.path.isdigit()):
            raise AddressError(
                f"{address.text!r}: {KMOD_PREFIX} is followed by a number, as in "
                f"{KMOD_PREFIX}0"
            )
    elif not address.path:
        raise AddressError(f"{address.text!r} names no device, only their folder")
    return address.scheme + address.path


def parse_emu(address: Address, *, readonly: bool = False) -> EmuOptions:
    """Check an ``emu:`` address; ``readonly``: whatever it says, it is only read.

    Without ``lba`` blocks are 4096 bytes, or 512 where an existing file's length is
    not a multiple of 4096. Namespaces beyond the first live in ``PATH.ns<ID>``.
    """
    given = dict(address.options)
    for name in given:
        if name not in EMU_OPTIONS:
            raise AddressError(
                f"emu: has no option {name!r} (in {address.text!r}); "
                f"{suggest(name, EMU_OPTIONS)}"
            )
    cpus = os.cpu_count() or 1
    direct = _switch(given.get("direct", "0"), "direct")
    if direct and not address.path:
        raise AddressError(
            "direct=1 is of a file, and a namespace in memory has none; name a file"
        )
    # Each of them waits for the disk: as many as it takes to keep that busy.
    threads = 8 if direct else min(8, max(min(4, cpus), cpus // 2))
    values: dict[str, object] = {"threads": threads}
    values |= {n: _number(given[n], n) for n in _NUMBERS if n in given}
    values |= {n: _switch(given[n], n) for n in _SWITCHES if n in given}
    values |= parse_lies(given)
    values |= {
        f: parse_time(given[n], n) for n, f in _TIME_OPTIONS.items() if n in given
    }
    if int(given.get("mpsmax", "4")) < int(given.get("mpsmin", "0")):
        raise AddressError("mpsmax is below mpsmin; give both, or neither")
    if given.get("arbitration", "rr") not in ("rr", "wrr"):
        raise AddressError(
            f"arbitration={given['arbitration']!r} is neither rr nor wrr"
        )
    if given.get("data", "full") not in ("none", "full"):
        raise AddressError(f"data={given['data']!r} is neither none nor full")

    size = parse_size(given["size"], "size") if "size" in given else None
    if size is None and not address.path:
        size = GIB
    lba = _lba(given["lba"], "lba") if "lba" in given else 4096
    spaces = (
        _namespaces(given["namespaces"], size or GIB, lba)
        if "namespaces" in given
        else ()
    )
    first = spaces[0].nbytes if spaces else size
    length = None
    if address.path:
        wanted = first if size is not None or spaces else None
        only_read = readonly or bool(values.get("readonly"))
        length = _file_length(address.path, size=wanted, readonly=only_read)
    if not spaces:
        if length and "lba" not in given and length % 4096:
            lba = 512
        if length is None:
            _check_size(size or 0, lba, "size")
        spaces = (EmuNamespace(1, size or 0, lba),)
    return EmuOptions(
        path=address.path or None,
        create=bool(address.path) and first is not None,
        namespaces=spaces,
        nodata=given.get("data") == "none",
        wrr=given.get("arbitration") == "wrr",
        volatile_bytes=_volatile(given),
        # typed: each was parsed as its field wants it
        **values,  # type: ignore[arg-type]
    )
