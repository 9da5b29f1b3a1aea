"""Where the functions of the HIP runtime are, asked through hip-python."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import TYPE_CHECKING, Final, Protocol, SupportsInt, cast

from aiougds._errors import GPUUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

OLDEST: Final = 60_000_000  # ROCm 6: before it, kinds of memory had other numbers


class _Runtime(Protocol):
    """What is used of ``hip.hip``."""

    def hipInit(self, flags: int) -> tuple[object]: ...  # noqa: N802
    def hipGetDeviceCount(self) -> tuple[object, int]: ...  # noqa: N802
    def hipRuntimeGetVersion(self) -> tuple[object, int]: ...  # noqa: N802
    def hipGetProcAddress(  # noqa: N802
        self, symbol: bytes, version: int, flags: int
    ) -> tuple[object, SupportsInt | None, object]: ...


def _runtime() -> _Runtime:
    try:
        package = importlib.import_module("hip")
        # An attribute since 10.0, a module of its own before.
        found = getattr(package, "hip", None) or importlib.import_module("hip.hip")
        return cast("_Runtime", found)
    except ImportError as exc:
        raise GPUUnavailableError(
            f"HIP needs hip-python ({exc}): pip install aiougds[hip]"
        ) from exc


def in_use() -> bool:
    """Whether torch has initialised the runtime. Neither loads nor initialises.

    The runtime itself cannot be asked: any call initialises it.
    """
    torch = sys.modules.get("torch")
    of_rocm = getattr(getattr(torch, "version", None), "hip", None)
    asked = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return bool(of_rocm and callable(asked) and asked())


def is_near() -> bool:
    """Whether a package that uses the runtime is imported."""
    torch = sys.modules.get("torch")
    return bool(getattr(getattr(torch, "version", None), "hip", None))


def import_package() -> None:
    """Import what finds the runtime, which takes a while; initialise nothing."""
    _runtime()


def _hsa(name: str) -> int:
    # Not of the HIP library, but of one that it has loaded.
    try:
        hsa = ctypes.CDLL("libhsa-runtime64.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(getattr(hsa, name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def addresses(symbols: Iterable[tuple[str, int]]) -> list[int]:
    """Return one address for each symbol, 0 for what the runtime lacks."""
    hip = _runtime()
    try:
        (code,) = hip.hipInit(0)
        count = 0 if code else hip.hipGetDeviceCount()[1]
        version = hip.hipRuntimeGetVersion()[1]
    except RuntimeError as exc:  # the library, or a function of it, is not there
        raise GPUUnavailableError(
            f"no ROCm runtime: libamdhip64.so cannot be used ({exc})"
        ) from exc
    if code or not count:
        name = getattr(code, "name", code) if code else "no device"
        raise GPUUnavailableError(f"the ROCm runtime has no GPU to use: {name}")
    if version < OLDEST:
        raise GPUUnavailableError(
            f"the ROCm runtime is of version {version // 10_000_000}: 6 or newer is "
            "needed"
        )

    def address(name: str, wanted: int) -> int:
        if name.startswith("hsa_"):
            return _hsa(name)
        code, found, _ = hip.hipGetProcAddress(name.encode(), wanted, 0)
        return 0 if code else int(found or 0)

    return [address(name, wanted) for name, wanted in symbols]
