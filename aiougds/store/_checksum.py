"""Checksums of chunks, from a library; which one a chunk has, its record says.

They begin with a seed of key and generation: the bytes of another chunk, or of an
older one in the same slot, are wrong too.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

from aiougds._errors import CapabilityError
from aiougds._options import one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    Compute = Callable[[Buffer, int], int]

Checksum = Literal["crc32c", "xxh3"]
NAMES: Final[tuple[Checksum, ...]] = ("crc32c", "xxh3")
NO_CHECKSUM: Final = 0
# Above that it is computed in a thread: 10 us and more of a processor.
INLINE_BYTES: Final = 128 << 10


def kind_of(name: Checksum | None) -> int:
    """Return the number that stands for it in records."""
    if name is None:
        return NO_CHECKSUM
    one_of("checksum", name, NAMES)
    return NAMES.index(name) + 1


def seed(key: bytes, generation: int) -> int:
    """Return what a chunk's checksum begins with."""
    return zlib.crc32(key, generation & 0xFFFFFFFF)


def compute(kind: int) -> Compute:
    """Return the function of a kind. CapabilityError where its library is missing."""
    if kind not in _loaded:
        if not 0 < kind <= len(NAMES):
            raise CapabilityError(
                f"chunks with checksums of kind {kind} were put by a newer aiougds"
            )
        name = NAMES[kind - 1]
        package = {"crc32c": "crc32c", "xxh3": "xxhash"}[name]
        try:
            module = import_module(package)
        except ImportError as exc:
            raise CapabilityError(
                f"checksum {name!r} needs the package {package}: pip install "
                f"'aiougds[store]' ({exc})"
            ) from exc
        function = "crc32c" if name == "crc32c" else "xxh3_64_intdigest"
        _loaded[kind] = getattr(module, function)
    return _loaded[kind]


_loaded: Final[dict[int, Compute]] = {}
