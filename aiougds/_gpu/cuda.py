"""Where the functions of the CUDA driver are, asked through cuda-bindings."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import TYPE_CHECKING, Protocol, cast

from aiougds._errors import GPUUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Driver(Protocol):
    """What is used of ``cuda.bindings.driver``."""

    def cuInit(self, flags: int) -> tuple[object]: ...  # noqa: N802
    def cuDeviceGetCount(self) -> tuple[object, int]: ...  # noqa: N802
    def cuGetProcAddress(  # noqa: N802
        self, symbol: bytes, version: int, flags: int
    ) -> tuple[object, int | None, object]: ...


def _driver() -> _Driver:
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as exc:
        raise GPUUnavailableError(
            f"CUDA needs cuda-bindings ({exc}): pip install aiougds[cuda]"
        ) from exc
    if hasattr(driver, "HIP_PYTHON"):
        raise GPUUnavailableError(
            "hip-python-interop has put its own files in the place of cuda-bindings, "
            "so what says cuda here is HIP: uninstall it, and pip install "
            "--force-reinstall cuda-bindings"
        )
    return cast("_Driver", driver)


def in_use() -> bool:
    """Whether the process has initialised the driver. Neither loads nor initialises.

    What initialises it may not fork afterwards, so that is not for us to do.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0)


def is_near() -> bool:
    """Whether a package that uses the driver is imported."""
    torch = sys.modules.get("torch")
    return bool(
        getattr(getattr(torch, "version", None), "cuda", None)
        or sys.modules.keys() & {"cupy", "numba.cuda", "cuda.core"}
    )


def import_package() -> None:
    """Import what finds the driver, which takes a while; initialise nothing."""
    _driver()


def addresses(symbols: Iterable[tuple[str, int]]) -> list[int]:
    """Return one address for each symbol, 0 for what the driver lacks."""
    driver = _driver()
    try:
        (code,) = driver.cuInit(0)
        count = 0 if code else driver.cuDeviceGetCount()[1]
    except RuntimeError as exc:  # the library, or a function of it, is not there
        raise GPUUnavailableError(
            f"no NVIDIA driver: libcuda.so.1 cannot be used ({exc})"
        ) from exc
    if code or not count:
        name = getattr(code, "name", code) if code else "no device"
        raise GPUUnavailableError(f"the NVIDIA driver has no GPU to use: {name}")
    found = (driver.cuGetProcAddress(n.encode(), version, 0) for n, version in symbols)
    return [0 if code else int(address or 0) for code, address, _ in found]
