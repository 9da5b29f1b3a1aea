"""What a benchmark asks of a GPU besides transfers: streams, waiting, and some work.

The work is filling memory of the GPU's own: both vendors have it, and it needs neither
a compiler nor anything of the processor while it runs.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, Protocol

from aiougds._errors import GPUUnavailableError
from aiougds._gpu.runtime import unavailable

SCRATCH: Final = 64 << 20
NON_BLOCKING: Final = 1


class GPU(Protocol):
    """One GPU. Streams are objects of its vendor's package."""

    @property
    def address(self) -> str:
        """Such as ``cuda:0``."""
        ...

    @property
    def name(self) -> str:
        """As its driver calls it."""
        ...

    def stream(self) -> Any:  # noqa: ANN401
        """Make a stream, which waits for no other."""
        ...

    def wait(self, stream: Any) -> None:  # noqa: ANN401
        """Block until a stream has done all."""
        ...

    def fill(self, stream: Any, nbytes: int) -> None:  # noqa: ANN401
        """Have a stream fill so many bytes of scratch memory."""
        ...

    def close(self) -> None:
        """Give streams and memory back."""
        ...


def _done(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
    code, *rest = answer
    if int(code):
        name = getattr(code, "name", code)
        raise GPUUnavailableError(f"the GPU's runtime answered {name}")
    return rest[0] if rest else None


class _Fills:
    """What both have in common."""

    address: str
    name: str
    scratch: Any
    streams: list[Any]

    def fill(self, stream: Any, nbytes: int) -> None:  # noqa: ANN401
        while nbytes > 0:
            self._fill(stream, min(nbytes, SCRATCH))
            nbytes -= SCRATCH

    def _fill(self, stream: Any, nbytes: int) -> None:  # noqa: ANN401
        raise NotImplementedError


class _Cuda(_Fills):
    """Through cuda-bindings."""

    def __init__(self, ordinal: int) -> None:
        self._driver: Any = importlib.import_module("cuda.bindings.driver")
        self.address = f"cuda:{ordinal}"
        self._device = _done(self._driver.cuDeviceGet(ordinal))
        name = _done(self._driver.cuDeviceGetName(100, self._device))
        self.name = name.split(b"\0")[0].decode()
        context = _done(self._driver.cuDevicePrimaryCtxRetain(self._device))
        self._before = _done(self._driver.cuCtxGetCurrent())
        _done(self._driver.cuCtxSetCurrent(context))
        self.scratch = _done(self._driver.cuMemAlloc(SCRATCH))
        self.streams = []

    def stream(self) -> Any:  # noqa: ANN401
        self.streams.append(_done(self._driver.cuStreamCreate(NON_BLOCKING)))
        return self.streams[-1]

    def wait(self, stream: Any) -> None:  # noqa: ANN401
        _done(self._driver.cuStreamSynchronize(stream))

    def _fill(self, stream: Any, nbytes: int) -> None:  # noqa: ANN401
        _done(self._driver.cuMemsetD8Async(self.scratch, 1, nbytes, stream))

    def close(self) -> None:
        for stream in self.streams:
            _done(self._driver.cuStreamDestroy(stream))
        _done(self._driver.cuMemFree(self.scratch))
        _done(self._driver.cuCtxSetCurrent(self._before))
        _done(self._driver.cuDevicePrimaryCtxRelease(self._device))


class _Hip(_Fills):
    """Through hip-python."""

    def __init__(self, ordinal: int) -> None:
        package = importlib.import_module("hip")
        # An attribute since 10.0, a module of its own before.
        found = getattr(package, "hip", None) or importlib.import_module("hip.hip")
        self._hip: Any = found
        self.address = f"hip:{ordinal}"
        self._before = _done(self._hip.hipGetDevice())
        _done(self._hip.hipSetDevice(ordinal))
        name = _done(self._hip.hipDeviceGetName(100, ordinal))
        self.name = bytes(name).split(b"\0")[0].decode()
        self.scratch = _done(self._hip.hipMalloc(SCRATCH))
        self.streams = []

    def stream(self) -> Any:  # noqa: ANN401
        self.streams.append(_done(self._hip.hipStreamCreateWithFlags(NON_BLOCKING)))
        return self.streams[-1]

    def wait(self, stream: Any) -> None:  # noqa: ANN401
        _done(self._hip.hipStreamSynchronize(stream))

    def _fill(self, stream: Any, nbytes: int) -> None:  # noqa: ANN401
        _done(self._hip.hipMemsetAsync(self.scratch, 1, nbytes, stream))

    def close(self) -> None:
        for stream in self.streams:
            _done(self._hip.hipStreamDestroy(stream))
        _done(self._hip.hipFree(self.scratch))
        _done(self._hip.hipSetDevice(self._before))


def find_gpu(address: str | None) -> GPU:
    """Return the GPU of that name, or the first that can be used.

    GPUUnavailableError says why there is none.
    """
    vendor, _, ordinal = (address or "").partition(":")
    reasons: list[str] = []
    if vendor in ("", "cuda"):
        reason = unavailable("cuda")
        if not reason:
            return _Cuda(int(ordinal or 0))
        reasons.append(reason)
    if vendor in ("", "hip"):
        reason = unavailable("hip")
        if not reason:
            return _Hip(int(ordinal or 0))
        reasons.append(reason)
    raise GPUUnavailableError("; ".join(reasons) or f"{address} is no GPU")
