"""Stream and event objects of other people's libraries, as raw handles.

No library is imported for it: whoever gives an object of one has imported it. In this
order: integers, ``ctypes.c_void_p``, torch, CuPy, ``__cuda_stream__`` (cuda.core,
cuda.bindings, numba-cuda), HIP, Numba. Streams and events of most of them show their
handle by the same name, as do contexts and buffers: there the class's name decides.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Sequence
from numbers import Integral
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    SupportsIndex,
    SupportsInt,
    TypeAlias,
    cast,
)

from aiougds._errors import ArgumentError, ArgumentTypeError, RangeError

if TYPE_CHECKING:
    from collections.abc import Callable

Runtime = Literal["cuda", "hip"]

LEGACY: Final = 0
PER_THREAD: Final = 2  # CU_STREAM_PER_THREAD, hipStreamPerThread
DEFAULT_STREAMS: Final = frozenset((LEGACY, PER_THREAD))
_LEGACY_TOO: Final = 1  # CU_STREAM_LEGACY, hipStreamLegacy
_MOST: Final = (1 << 64) - 1


class StreamHandle(NamedTuple):
    """A stream of a GPU runtime."""

    runtime: Runtime | None  # None: the object does not say
    handle: int
    device: int  # -1: the object does not say
    keep: object  # what has to live while operations are ordered on it


class EventHandle(NamedTuple):
    """An event of a GPU runtime."""

    runtime: Runtime | None
    handle: int
    device: int
    keep: object


class OurEvent(Protocol):
    """The event of an operation, or the operation."""

    def __aiougds_event__(self) -> EventHandle: ...


class SupportsCudaStream(Protocol):
    """A stream in the manner of cuda.core."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


class TorchStream(Protocol):
    """A stream in the manner of torch."""

    @property
    def cuda_stream(self) -> int: ...


class TorchEvent(Protocol):
    """An event in the manner of torch."""

    @property
    def cuda_event(self) -> int: ...


class HasPtr(Protocol):
    """A stream or event in the manner of CuPy."""

    @property
    def ptr(self) -> int: ...


class HasHandle(Protocol):
    """A stream or event in the manner of Numba and cuda.core."""

    @property
    def handle(self) -> object: ...


StreamLike: TypeAlias = (
    SupportsInt
    | ctypes.c_void_p
    | SupportsCudaStream
    | TorchStream
    | HasPtr
    | HasHandle
)
"""A stream of torch, CuPy, Numba, cuda.core or hip-python, or a raw handle."""
EventLike: TypeAlias = (
    SupportsInt | ctypes.c_void_p | TorchEvent | HasPtr | HasHandle | OurEvent
)
"""An event of those libraries, a raw handle, or an operation's ``event``."""
After: TypeAlias = EventLike | Sequence[EventLike]
"""What comes first: an event, an operation, or several."""


def stream_of(obj: object) -> StreamHandle:
    """Return the stream that an object is; ArgumentTypeError when it is none."""
    kind = type(obj)
    if kind is int:
        return _checked(None, cast("int", obj), -1, obj)
    reader = _STREAM_READERS.get(kind)
    if reader is None:
        reader = _reader(obj, _STREAMS)
        if reader is None:
            raise ArgumentTypeError(
                f"stream={_shown(obj)} is no stream of a GPU runtime"
                f"{_other(obj, _EVENTS, _AN_EVENT)}; give one of torch, CuPy, Numba or "
                "cuda.core, an object with __cuda_stream__, a HIP stream, or its raw "
                "handle (0: the legacy default stream)"
            )
        _STREAM_READERS[kind] = reader
    runtime, handle, device = reader(obj)
    return _checked(runtime, handle, device, obj)


def key_of(obj: object) -> tuple[Runtime | None, int, int]:
    """Return the same as a key, quickly: handles of a default stream as they are."""
    reader = _STREAM_READERS.get(type(obj))
    return stream_of(obj)[:3] if reader is None else reader(obj)


def event_of(obj: object) -> EventHandle:
    """Return the event that an object is; ArgumentTypeError when it is none."""
    kind = type(obj)
    if kind is int:
        return _recorded(None, cast("int", obj), -1, obj)
    if hasattr(kind, "__aiougds_event__"):
        return cast("OurEvent", obj).__aiougds_event__()
    reader = _EVENT_READERS.get(kind)
    if reader is None:
        reader = _reader(obj, _EVENTS)
        if reader is None:
            raise ArgumentTypeError(
                f"event {_shown(obj)} is no event of a GPU runtime"
                f"{_other(obj, _STREAMS, _A_STREAM)}; give the event of an operation, "
                "one of torch, CuPy, Numba or cuda.core, a CUevent or a HIP event, or "
                "its raw handle"
            )
        _EVENT_READERS[kind] = reader
    runtime, handle, device = reader(obj)
    return _recorded(runtime, handle, device, obj)


def _checked(
    runtime: Runtime | None, handle: int, device: int, obj: object
) -> StreamHandle:
    if not 0 <= handle <= _MOST:
        raise RangeError(f"stream={handle}: a handle is between 0 and 2**64 - 1")
    return StreamHandle(
        runtime, LEGACY if handle == _LEGACY_TOO else handle, device, obj
    )


def _recorded(
    runtime: Runtime | None, handle: int, device: int, obj: object
) -> EventHandle:
    if not handle:
        raise ArgumentError(
            f"event {_shown(obj)} has no handle: torch makes it when it is recorded; "
            "record it on its stream first"
        )
    if not 0 < handle <= _MOST:
        raise RangeError(f"event {handle}: a handle is between 1 and 2**64 - 1")
    return EventHandle(runtime, handle, device, obj)


# ---- how each library shows them: (runtime, handle, device) ----

_Read = tuple["Runtime | None", int, int]


def _of_torch() -> Runtime:
    # On ROCm its device type, and the name of the attribute, say cuda all the same.
    version = getattr(sys.modules.get("torch"), "version", None)
    return "hip" if getattr(version, "hip", None) else "cuda"


def _of_cupy() -> Runtime:
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    is_hip = getattr(getattr(cuda, "runtime", None), "is_hip", False)
    return "hip" if is_hip else "cuda"


def _index(obj: object) -> int:
    """Return the ordinal in ``obj.device``, as torch and cuda.core have it."""
    device = getattr(obj, "device", None)
    for name in ("index", "device_id"):
        ordinal = getattr(device, name, None)
        if type(ordinal) is int:
            return ordinal
    return -1


def _number(handle: object) -> int:
    """Return an address, whatever the library wraps it in."""
    value = getattr(handle, "value", handle)  # of ctypes, where None is zero
    return 0 if value is None else int(cast("SupportsInt", value))


def _attribute(name: str, runtime: Callable[[], Runtime]) -> Callable[[object], _Read]:
    def read(obj: object) -> _Read:
        return runtime(), _number(getattr(obj, name)), _index(obj)

    return read


def _protocol_stream(obj: object) -> _Read:
    found = getattr(obj, "__cuda_stream__", None)
    answer = found() if callable(found) else found
    parts = cast("tuple[object, ...]", answer) if isinstance(answer, tuple) else ()
    if len(parts) != 2 or not all(type(part) is int for part in parts):
        raise ArgumentTypeError(
            f"stream={_shown(obj)}: __cuda_stream__ answered {answer!r}, not "
            "(version, handle)"
        )
    version, handle = cast("tuple[int, int]", parts)
    if version != 0:
        raise ArgumentTypeError(
            f"stream={_shown(obj)}: version {version} of __cuda_stream__ is not known "
            "here, 0 is; give its raw handle"
        )
    return "cuda", handle, _index(obj)


def _cupy(obj: object) -> _Read:
    device = getattr(obj, "device_id", -1)
    return _of_cupy(), _number(getattr(obj, "ptr", None)), device if device >= 0 else -1


def _itself(runtime: Runtime) -> Callable[[object], _Read]:
    return lambda obj: (runtime, int(cast("SupportsInt", obj)), -1)


def _pointer(obj: object) -> _Read:
    return None, _number(obj), -1


def _integer(obj: object) -> _Read:
    return None, operator.index(cast("SupportsIndex", obj)), -1


class _Known(NamedTuple):
    """Classes of a library that have an attribute, and how to read their objects."""

    packages: tuple[str, ...]  # none: of any
    attribute: str
    read: Callable[[object], _Read]
    named: str = ""  # what the name of the class says: others have the attribute too


_HIP: Final = ("hip", "rocm")
_HANDLE: Final = _attribute("handle", lambda: "cuda")
_STREAMS: Final = (
    _Known(("torch",), "cuda_stream", _attribute("cuda_stream", _of_torch)),
    _Known(("torch",), "native_handle", _attribute("native_handle", _of_torch)),
    _Known(("cupy",), "ptr", _cupy, "stream"),  # on ROCm its protocol says cuda too
    _Known(("cuda",), "__int__", _itself("cuda"), "stream"),  # of the bindings
    _Known((), "__cuda_stream__", _protocol_stream),
    _Known(_HIP, "__int__", _itself("hip"), "stream"),
    _Known(("numba",), "handle", _HANDLE, "stream"),
)
_EVENTS: Final = (
    _Known(("torch",), "cuda_event", _attribute("cuda_event", _of_torch)),
    _Known(("torch",), "event_id", _attribute("event_id", _of_torch)),
    _Known(("cupy",), "ptr", _cupy, "event"),
    _Known(_HIP, "__int__", _itself("hip"), "event"),
    _Known(("cuda",), "handle", _HANDLE, "event"),
    _Known(("cuda",), "__int__", _itself("cuda"), "event"),
    _Known(("numba",), "handle", _HANDLE, "event"),
)
_AN_EVENT: Final = ", but an event, behind which after= orders a transfer"
_A_STREAM: Final = ", but a stream: record an event on it, and give that"
# By type, once it is known: the look below costs more than the rest of an enqueue.
_STREAM_READERS: Final[dict[type, Callable[[object], _Read]]] = {}
_EVENT_READERS: Final[dict[type, Callable[[object], _Read]]] = {}


def _reader(obj: object, known: tuple[_Known, ...]) -> Callable[[object], _Read] | None:
    if isinstance(obj, bool):
        return None
    if isinstance(obj, ctypes.c_void_p):
        return _pointer
    if isinstance(obj, Integral):  # of numpy, as an array of handles holds them
        return _integer
    return _library_reader(obj, known)


def _library_reader(
    obj: object, known: tuple[_Known, ...]
) -> Callable[[object], _Read] | None:
    kind = type(obj)
    # Events have streams, and streams make events: who says what it is, is believed.
    if known is _EVENTS and hasattr(kind, "__cuda_stream__"):
        return None
    # A class that derives from a library's is one of it.
    names = [(base.__module__.split(".")[0], base.__name__) for base in kind.__mro__]
    for row in known:
        mine = any(
            (not row.packages or package in row.packages) and row.named in name.lower()
            for package, name in names
        )
        if mine and hasattr(obj, row.attribute):
            return row.read
    like_torch = known[0]
    return like_torch.read if hasattr(obj, like_torch.attribute) else None


def _other(obj: object, known: tuple[_Known, ...], words: str) -> str:
    return words if _library_reader(obj, known) is not None else ""


def _shown(obj: object) -> str:
    kind = type(obj)
    plain = obj is None or isinstance(obj, (bool, int, float, str))
    return repr(obj) if plain else f"{kind.__module__}.{kind.__qualname__} object"
