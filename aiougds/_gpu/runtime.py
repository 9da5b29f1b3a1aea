"""GPU runtimes, loaded when somebody first asks for one.

The vendors' Python packages find and load the driver; C gets its functions by address
and calls them without the GIL. One process may use both vendors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from aiougds._errors import GPUUnavailableError
from aiougds._ffi import NULL, ffi, lib, text
from aiougds._gpu import cuda, hip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiougds._gpu.streams import Runtime

_NUMBERS: Final[dict[Runtime, int]] = {
    "cuda": lib.UGDS_GPU_CUDA,
    "hip": lib.UGDS_GPU_HIP,
}
_ADDRESSES: Final[dict[Runtime, Callable[[Iterable[tuple[str, int]]], list[int]]]] = {
    "cuda": cuda.addresses,
    "hip": hip.addresses,
}
_IN_USE: Final[dict[Runtime, Callable[[], bool]]] = {
    "cuda": cuda.in_use,
    "hip": hip.in_use,
}
_PACKAGES: Final[dict[Runtime, tuple[Callable[[], bool], Callable[[], None]]]] = {
    "cuda": (cuda.is_near, cuda.import_package),
    "hip": (hip.is_near, hip.import_package),
}
_loaded: Final[set[Runtime]] = set()


def load(runtime: Runtime) -> int:
    """Return the ``UGDS_GPU_*`` number of a runtime that C can call from now on.

    GPUUnavailableError says what is missing, and what to install. Any thread may call
    it; only the first call of a process does anything.
    """
    number = _NUMBERS[runtime]
    if runtime not in _loaded:
        _hand_over(number, _ADDRESSES[runtime](_symbols(number)))
        _loaded.add(runtime)
    return number


def is_loaded(runtime: Runtime) -> bool:
    """Whether :func:`load` has succeeded before. Loads nothing."""
    return runtime in _loaded


def load_what_is_in_use() -> None:
    """Load the runtimes that the process uses already, as far as they can be.

    Off the loop: the first registration of GPU memory, which is made on it, would
    import the vendor's package there. Where it may come to be used, as a framework is
    imported, that package is imported, and nothing initialised: forks go on working.
    """
    for runtime, is_used in _IN_USE.items():
        is_near, import_package = _PACKAGES[runtime]
        if runtime in _loaded:
            continue
        if is_used():
            unavailable(runtime)  # whoever needs it is told why not
        elif is_near():
            with contextlib.suppress(GPUUnavailableError):
                import_package()


def to_load(said: Runtime | None) -> tuple[Runtime, ...]:
    """Return which are to be loaded for what is of that one; None: of whichever."""
    if said is not None:
        return () if said in _loaded else (said,)
    return () if _loaded else tuple(_NUMBERS)


def unavailable(runtime: Runtime) -> str:
    """Load a runtime, or return why its GPUs cannot be used; "" if they can."""
    try:
        load(runtime)
    except GPUUnavailableError as error:
        return str(error)
    return ""


def _symbols(number: int) -> list[tuple[str, int]]:
    version, optional = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    found: list[tuple[str, int]] = []
    while (name := lib.ugds_gpu_symbol(number, len(found), version, optional)) != NULL:
        found.append((ffi.string(name).decode("ascii"), version[0]))
    return found


def _hand_over(number: int, addresses: list[int]) -> None:
    error = ffi.new("struct ugds_error *")
    words = ffi.new("uint64_t[]", addresses)
    if lib.ugds_gpu_load(number, words, len(addresses), error):
        raise GPUUnavailableError(text(error.text))
