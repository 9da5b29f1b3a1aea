"""Whose stream or event is it? Real objects where a library needs no GPU for them."""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import aiougds
from aiougds._gpu.streams import EventHandle, event_of, stream_of


def library(name: str, **attributes: object) -> type:
    """Return a library's class of that name, whose objects have these attributes."""
    body = {
        key: property(lambda _self, value=value: value)
        for key, value in attributes.items()
    }
    module, kind = name.rsplit(".", 1)
    return type(kind, (), {**body, "__module__": module})


@pytest.fixture
def rocm_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(hip="7.15", cuda=None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)


DEVICE_3 = SimpleNamespace(type="cuda", index=3)
TORCH_STREAM = library("torch.cuda.streams.Stream", cuda_stream=0x1230, device=DEVICE_3)
TORCH_EVENT = library("torch.cuda.streams.Event", cuda_event=0x1240, device=DEVICE_3)


def test_torch_streams_and_events_have_a_device() -> None:
    stream, event = TORCH_STREAM(), TORCH_EVENT()
    assert stream_of(stream) == ("cuda", 0x1230, 3, stream)
    assert event_of(event) == ("cuda", 0x1240, 3, event)


def test_the_generic_streams_of_torch_are_taken() -> None:
    kind = library("torch.Stream", native_handle=0x88, device=DEVICE_3)
    assert stream_of(kind())[:3] == ("cuda", 0x88, 3)
    kind = library("torch.Event", event_id=0x89, device=DEVICE_3)
    assert event_of(kind())[:3] == ("cuda", 0x89, 3)


@pytest.mark.usefixtures("rocm_torch")
def test_torch_on_rocm_says_cuda_and_is_hip() -> None:
    assert stream_of(TORCH_STREAM()).runtime == "hip"
    assert event_of(TORCH_EVENT()).runtime == "hip"


def test_torch_default_stream_is_the_legacy_one_of_its_device() -> None:
    kind = library("torch.cuda.streams.Stream", cuda_stream=0, device=DEVICE_3)
    assert stream_of(kind())[:3] == ("cuda", 0, 3)


def test_torch_event_that_was_never_recorded_is_refused() -> None:
    kind = library("torch.cuda.streams.Event", cuda_event=0, device=None)
    with pytest.raises(aiougds.ArgumentError, match="record it on its stream first"):
        event_of(kind())


def test_a_class_that_derives_from_torchs_is_one() -> None:
    class Mine(TORCH_STREAM):  # type: ignore[misc, valid-type]
        pass

    assert stream_of(Mine())[:3] == ("cuda", 0x1230, 3)


def test_cupy_streams_and_events(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = library("cupy.cuda.stream.Stream", ptr=0x50, device_id=2)()
    event = library("cupy.cuda.stream.Event")()
    event.ptr = 0x60  # the object has it, the class does not
    assert stream_of(stream)[:3] == ("cuda", 0x50, 2)
    assert event_of(event)[:3] == ("cuda", 0x60, -1)
    null = library("cupy.cuda.stream.Stream", ptr=0, device_id=-1)()
    assert stream_of(null)[:3] == ("cuda", 0, -1)

    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=SimpleNamespace(is_hip=True)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert stream_of(stream).runtime == "hip"


def test_numba_streams_and_events() -> None:
    handle = ctypes.c_void_p(0x70)
    stream = library("numba.cuda.cudadrv.driver.Stream", handle=handle)
    event = library("numba.cuda.cudadrv.driver.Event", handle=handle)
    assert stream_of(stream())[:3] == ("cuda", 0x70, -1)
    assert event_of(event())[:3] == ("cuda", 0x70, -1)
    default = library("numba.cuda.cudadrv.driver.Stream", handle=ctypes.c_void_p(None))
    assert stream_of(default())[:3] == ("cuda", 0, -1)


def test_cuda_bindings_handles() -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    runtime = importlib.import_module("cuda.bindings.runtime")
    assert stream_of(driver.CUstream(0x1234))[:3] == ("cuda", 0x1234, -1)
    assert stream_of(runtime.cudaStream_t(0x1234))[:3] == ("cuda", 0x1234, -1)
    assert event_of(driver.CUevent(0x4321))[:3] == ("cuda", 0x4321, -1)
    assert event_of(runtime.cudaEvent_t(0x4321))[:3] == ("cuda", 0x4321, -1)


@pytest.mark.software
def test_hip_python_handles() -> None:
    hip = importlib.import_module("hip").hip
    assert stream_of(hip.ihipStream_t.fromObj(0x77))[:3] == ("hip", 0x77, -1)
    assert event_of(hip.ihipEvent_t.fromObj(0x66))[:3] == ("hip", 0x66, -1)


def test_the_stream_protocol_is_taken_as_method_and_as_attribute() -> None:
    class Method:
        device = SimpleNamespace(device_id=1)

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0x99

    class Attribute:
        __cuda_stream__ = (0, 0x98)

    assert stream_of(Method())[:3] == ("cuda", 0x99, 1)
    assert stream_of(Attribute())[:3] == ("cuda", 0x98, -1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, 0x99), "version 1 of __cuda_stream__"),
        (0x99, "answered 153"),
        ((0, "x"), "answered"),
        ((0, 1, 2), "answered"),
    ],
)
def test_a_protocol_that_is_not_known_is_refused(answer: object, words: str) -> None:
    class Odd:
        def __cuda_stream__(self) -> object:
            return answer

    with pytest.raises(aiougds.ArgumentTypeError, match=words):
        stream_of(Odd())


def test_core_events_have_their_handle_in_an_object() -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    handle = driver.CUevent(0x31)
    device = SimpleNamespace(device_id=4)
    kind = library("cuda.core._event.Event", handle=handle, device=device)
    assert event_of(kind())[:3] == ("cuda", 0x31, 4)


def test_raw_handles_say_no_runtime() -> None:
    assert stream_of(0x5000) == (None, 0x5000, -1, 0x5000)
    assert stream_of(0) == (None, 0, -1, 0)
    assert stream_of(1).handle == 0, "the legacy stream has two names"
    assert stream_of(2).handle == 2
    assert stream_of(ctypes.c_void_p(0x5000))[:3] == (None, 0x5000, -1)
    assert event_of(0x5000) == (None, 0x5000, -1, 0x5000)


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.intp])
def test_integers_of_numpy_are_raw_handles(kind: type) -> None:
    assert stream_of(kind(0x5000))[:3] == (None, 0x5000, -1)
    assert stream_of(kind(1)).handle == 0
    assert event_of(kind(0x5000))[:3] == (None, 0x5000, -1)
    assert type(stream_of(kind(0x5000)).handle) is int
    with pytest.raises(aiougds.ArgumentError, match="has no handle"):
        event_of(kind(0))


def streams_and_events() -> list[tuple[str, object, object]]:
    """Return a stream and an event of each library, which share their attributes."""
    driver = importlib.import_module("cuda.bindings.driver")
    runtime = importlib.import_module("cuda.bindings.runtime")
    hip = importlib.import_module("hip").hip
    shown = {"ptr": 0x50, "handle": ctypes.c_void_p(0x50)}

    def pair(module: str) -> tuple[object, object]:
        stream, event = (library(f"{module}.{k}", **shown) for k in ("Stream", "Event"))
        return stream(), event()

    return [
        ("bindings", driver.CUstream(0x50), driver.CUevent(0x50)),
        ("runtime", runtime.cudaStream_t(0x50), runtime.cudaEvent_t(0x50)),
        ("hip", hip.ihipStream_t.fromObj(0x50), hip.ihipEvent_t.fromObj(0x50)),
        ("torch", TORCH_STREAM(), TORCH_EVENT()),
        ("cupy", *pair("cupy.cuda.stream")),
        ("numba", *pair("numba.cuda.cudadrv.driver")),
    ]


@pytest.mark.software  # of hip-python too
@pytest.mark.parametrize("kind", range(6))
def test_a_stream_is_no_event_nor_the_reverse(kind: int) -> None:
    """A driver that is given one for the other reads what is not there."""
    _, stream, event = streams_and_events()[kind]
    assert stream_of(stream).handle
    assert event_of(event).handle
    with pytest.raises(aiougds.ArgumentTypeError, match=r"no event .*, but a stream:"):
        event_of(stream)
    with pytest.raises(aiougds.ArgumentTypeError, match=r"no stream .*, but an event,"):
        stream_of(event)


@pytest.mark.software
def test_other_things_that_have_a_handle_are_neither() -> None:
    """Contexts and addresses of the bindings, buffers of cuda.core, HIP's pointers."""
    driver = importlib.import_module("cuda.bindings.driver")
    hip = importlib.import_module("hip").hip
    buffer = library("cuda.core._memory._buffer.Buffer", handle=driver.CUdeviceptr(64))
    for thing in (
        driver.CUcontext(0x50),
        driver.CUdeviceptr(0x50),
        hip.hipDeviceProp_t(),
        buffer(),
        library("cupy.cuda.memory.MemoryPointer", ptr=0x50)(),
    ):
        with pytest.raises(aiougds.ArgumentTypeError, match="is no stream"):
            stream_of(thing)
        with pytest.raises(aiougds.ArgumentTypeError, match="is no event"):
            event_of(thing)


def test_our_own_events_are_no_streams() -> None:
    class Ours:
        cuda_event = 7

        def __aiougds_event__(self) -> EventHandle:
            return EventHandle("hip", 7, 1, self)

    with pytest.raises(aiougds.ArgumentTypeError, match="but an event"):
        stream_of(Ours())


def test_cupy_on_rocm_says_cuda_by_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = library(
        "cupy.cuda.stream.Stream", ptr=0x50, device_id=0, __cuda_stream__=(0, 0x50)
    )
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=SimpleNamespace(is_hip=True)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert stream_of(stream())[:3] == ("hip", 0x50, 0)


def test_our_own_events_say_what_they_are() -> None:
    class Ours:
        def __aiougds_event__(self) -> EventHandle:
            return EventHandle("hip", 7, 1, self)

    ours = Ours()
    assert event_of(ours) == ("hip", 7, 1, ours)


@pytest.mark.parametrize("bad", [None, True, 1.5, "0x10", b"", object(), [], int])
def test_anything_else_is_a_typed_error(bad: object) -> None:
    with pytest.raises(aiougds.ArgumentTypeError, match=r"stream=.* is no stream"):
        stream_of(bad)
    with pytest.raises(aiougds.ArgumentTypeError, match=r"event .* is no event"):
        event_of(bad)


@pytest.mark.parametrize("bad", [-1, 1 << 64])
def test_numbers_that_are_no_handles_are_refused(bad: int) -> None:
    with pytest.raises(aiougds.RangeError, match="a handle is between"):
        stream_of(bad)
    with pytest.raises(aiougds.RangeError, match="a handle is between"):
        event_of(bad)
    with pytest.raises(aiougds.ArgumentError, match="has no handle"):
        event_of(0)
