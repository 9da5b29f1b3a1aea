"""Memory of other people's objects: address, length, and why not, in words.

No library is imported for it. In this order: ``(ptr, nbytes)`` and ``(ptr, nbytes,
device)``, torch-like objects (``data_ptr``), ``__cuda_array_interface__``,
``__array_interface__``, DLPack of a GPU, the buffer protocol, DLPack of the host.

What is said to lie on a GPU is a :class:`Claim`: which runtime knows the pointer, and
whether it does at all, is asked later.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    Union,
    cast,
)

from aiougds import _dlpack
from aiougds._errors import MemoryLayoutError, MemoryTypeError, OptionError
from aiougds._ffi import address_of, ffi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

    from aiougds._device import Device
    from aiougds._ffi import CData


class SupportsDataPtr(Protocol):
    """A tensor in the manner of torch."""

    def data_ptr(self) -> int: ...


class SupportsArrayInterface(Protocol):
    """An array in the manner of numpy."""

    @property
    def __array_interface__(self) -> Mapping[str, object]: ...


class SupportsCudaArrayInterface(Protocol):
    """An array in the manner of CuPy and Numba."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, object]: ...


class SupportsDLPack(Protocol):
    """An array that exports DLPack."""

    def __dlpack__(self) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class TorchDevice(Protocol):
    """A device in the manner of torch: ``cuda`` and an ordinal."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


GPUDevice: TypeAlias = str | int | TorchDevice
"""Of a GPU: ``"cuda:0"``, ``"hip:1"``, ``"cuda"`` (its first), a torch device, or an
ordinal (of CUDA where that is there, else of HIP)."""

ForeignMemory: TypeAlias = Union[
    "Buffer",
    SupportsDataPtr,
    SupportsCudaArrayInterface,
    SupportsArrayInterface,
    SupportsDLPack,
    tuple[int, int],
    tuple[int, int, GPUDevice],
]
"""What has memory: the buffer protocol, torch, CUDA and numpy array interfaces, DLPack,
``(ptr, nbytes)``, ``(ptr, nbytes, device)``."""

RuntimeName = Literal["cuda", "hip"]
# torch on ROCm, and CuPy, say cuda and mean HIP: whoever knows the pointer has it.
_EITHER: Final[tuple[RuntimeName, ...]] = ("cuda", "hip")


class Memory:
    """A range of host memory, and what keeps it from going away."""

    __slots__ = ("nbytes", "owner", "ptr", "readonly", "target_refusal")

    host: ClassVar[bool] = True
    """Whether ``ptr`` is an address of this process."""
    found_by_address: ClassVar[bool] = True
    """Whether registered memory that holds ``ptr`` holds this."""
    copyable: ClassVar[bool] = True
    """Whether single bytes of it can be copied."""

    def __init__(
        self,
        ptr: int,
        nbytes: int,
        owner: object,
        *,
        readonly: bool = False,
        target_refusal: str = "",
    ) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.owner = owner
        self.readonly = readonly
        self.target_refusal = target_refusal
        """Why nothing may be read into it, if so."""

    def is_quick_for(self, device: Device) -> bool:
        """Whether mapping takes no longer than for other memory."""
        return True

    def let_go(self) -> None:
        """Nothing will be mapped of it any more."""

    def copy_out(self, to: CData, start: int, nbytes: int) -> None:
        """Copy bytes of it to memory of ours."""
        ffi.memmove(to, ffi.cast("char *", self.ptr + start), nbytes)

    def copy_in(self, start: int, source: CData, nbytes: int) -> None:
        """Copy bytes into it."""
        ffi.memmove(ffi.cast("char *", self.ptr + start), source, nbytes)

    def part(self, start: int, nbytes: int) -> Memory:
        """Return a part of it."""
        return Memory(
            self.ptr + start,
            nbytes,
            self.owner,
            readonly=self.readonly,
            target_refusal=self.target_refusal,
        )


class Where(NamedTuple):
    """The GPU that an object names."""

    runtimes: tuple[RuntimeName, ...]  # that may know it, in the order to be asked in
    device: int | None  # None: it does not say
    said: object = ""  # in whose words


class Claim(Memory):
    """Memory that an object says is a GPU's."""

    __slots__ = ("stream", "what", "where")

    host = False
    found_by_address = False

    def __init__(
        self,
        ptr: int,
        nbytes: int,
        owner: object,
        where: Where,
        what: str,
        *,
        readonly: bool = False,
        target_refusal: str = "",
        stream: int | None = None,
    ) -> None:
        super().__init__(
            ptr, nbytes, owner, readonly=readonly, target_refusal=target_refusal
        )
        self.where = where
        self.what = what
        self.stream = stream
        """A stream that the object wants its use ordered behind."""


def describe(obj: object) -> Memory:
    """Return the memory of an object, or raise what says why it has none to use."""
    if isinstance(obj, tuple):
        return _pair(cast("tuple[object, ...]", obj))
    if callable(getattr(obj, "data_ptr", None)):
        return _tensor(obj)
    interface = _cuda_interface(obj)
    if interface is not None:
        return _cuda_array(obj, interface)
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict):
        return _array(obj, cast("dict[str, object]", interface))
    gpu = _dlpack_of_gpu(obj)
    if gpu is not None:
        return gpu
    try:
        view = memoryview(cast("Buffer", obj))
    except TypeError:
        pass
    except (BufferError, ValueError) as exc:
        raise MemoryLayoutError(f"{_name(obj)} exports no buffer: {exc}") from exc
    else:
        return _buffer(obj, view)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _dlpack_of_host(cast("SupportsDLPack", obj))
    raise MemoryTypeError(
        f"{_name(obj)} has no memory: give a registration or a slice of one, an object "
        "with the buffer protocol, a numpy array, a torch tensor, an array of CuPy or "
        "Numba, a DLPack array, (ptr, nbytes), or (ptr, nbytes, device)"
    )


def _name(obj: object) -> str:
    kind = type(obj)
    return (
        kind.__name__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__name__}")
    )


def gpu_of(device: object) -> Where:
    """Return the GPU that is named: ``cuda:0``, ``hip``, a torch device, an ordinal."""
    kind, index = _kind_and_index(device)
    runtimes = _RUNTIMES.get(kind)
    if runtimes is None or (index is not None and index < 0):
        raise OptionError(f"device={device!r}: {_DEVICES}")
    return Where(runtimes, index, device)


def _kind_and_index(device: object) -> tuple[str, int | None]:
    kind = getattr(device, "type", None)
    if kind is not None:
        index = getattr(device, "index", None)
        return str(kind), index if isinstance(index, int) else None
    if isinstance(device, int) and not isinstance(device, bool):
        return "", device
    kind, colon, number = str(device).partition(":")
    if not colon:
        return kind or "none", None
    if not (number.isascii() and number.isdecimal()):
        return "none", None
    return kind or "none", int(number)


_RUNTIMES: Final[dict[str, tuple[RuntimeName, ...]]] = {
    "": _EITHER,
    "cuda": _EITHER,
    "hip": ("hip",),
}
_DEVICES: Final = (
    "a GPU is 'cuda:0', 'hip:0', 'cuda' or 'hip' for the first one, a torch device, or "
    "its number"
)


def _pair(pair: tuple[object, ...]) -> Memory:
    if len(pair) not in (2, 3) or not all(type(part) is int for part in pair[:2]):
        raise MemoryTypeError(
            "a tuple is (ptr, nbytes), two integers, or (ptr, nbytes, device), not "
            f"{pair!r}"
        )
    ptr, nbytes = cast("tuple[int, int]", pair[:2])
    if ptr <= 0 or nbytes < 0 or ptr + nbytes > 1 << 64:
        raise MemoryLayoutError(
            f"(ptr, nbytes) = ({ptr:#x}, {nbytes}) is no address range"
        )
    if len(pair) == 2 or str(getattr(pair[2], "type", pair[2])) == "cpu":
        return Memory(ptr, nbytes, pair)
    return Claim(ptr, nbytes, pair, gpu_of(pair[2]), f"{nbytes} bytes at {ptr:#x}")


def _not_contiguous(obj: object, remedy: str) -> MemoryLayoutError:
    return MemoryLayoutError(
        f"{_name(obj)} is not contiguous; {remedy}, or pass its parts one by one"
    )


class _Tensor(Protocol):
    device: object
    nbytes: int
    requires_grad: bool
    is_leaf: bool

    def data_ptr(self) -> int: ...
    def is_contiguous(self) -> bool: ...
    def element_size(self) -> int: ...
    def numel(self) -> int: ...


def _tensor(obj: object) -> Memory:
    tensor = cast("_Tensor", obj)
    device = getattr(tensor, "device", "cpu")
    kind = str(getattr(device, "type", device)).partition(":")[0]
    if kind == "meta":
        raise MemoryLayoutError(f"{_name(obj)} on device 'meta' has no memory")
    if kind not in ("cpu", "cuda", "hip"):
        raise MemoryLayoutError(
            f"{_name(obj)} lives on device {kind!r}; memory of the host, of CUDA and "
            "of HIP can be used: copy it there"
        )
    contiguous = getattr(tensor, "is_contiguous", None)
    if callable(contiguous) and not contiguous():
        raise _not_contiguous(obj, "use .contiguous()")
    if callable(getattr(tensor, "numel", None)):
        nbytes = tensor.numel() * tensor.element_size()
    else:
        nbytes = tensor.nbytes
    refusal = ""
    if getattr(tensor, "requires_grad", False):
        refusal = (
            "the tensor requires grad, so autograd would not see the change; read into "
            "tensor.detach(), or open torch.no_grad() and pass tensor.data"
        )
    storage = getattr(tensor, "untyped_storage", None)
    try:
        owner = (obj, storage() if callable(storage) else None)
        ptr = tensor.data_ptr()
    except (RuntimeError, NotImplementedError) as exc:  # sparse, fake, of a subclass
        raise MemoryLayoutError(
            f"{_name(obj)} has no plain memory of its own: {exc}"
        ) from exc
    if kind == "cpu":
        return Memory(ptr, nbytes, owner, target_refusal=refusal)
    return Claim(ptr, nbytes, owner, gpu_of(device), _name(obj), target_refusal=refusal)


def _cuda_interface(obj: object) -> Mapping[str, object] | None:
    try:
        interface = getattr(obj, "__cuda_array_interface__", None)
    except RuntimeError as exc:  # as torch's property, for what requires grad
        raise MemoryLayoutError(
            f"{_name(obj)} shows no __cuda_array_interface__: {exc}"
        ) from exc
    return cast("Mapping[str, object] | None", interface)


def _cuda_array(obj: object, interface: Mapping[str, object]) -> Memory:
    try:
        ptr, readonly = cast("tuple[int, bool]", interface["data"])
        shape = cast("tuple[int, ...]", interface["shape"])
        size = int(str(interface["typestr"])[2:])
        strides = cast("tuple[int, ...] | None", interface.get("strides"))
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise MemoryLayoutError(
            f"{_name(obj)} has a __cuda_array_interface__ without data, shape and "
            f"typestr: {exc!r}"
        ) from exc
    if interface.get("mask") is not None:
        raise MemoryLayoutError(f"{_name(obj)} has a mask; pass its data alone")
    nbytes = size
    for length in shape:
        nbytes *= length
    if strides is not None and nbytes and not _is_dense(shape, strides, size):
        raise _not_contiguous(obj, "use ascontiguousarray() of its library")
    # CuPy names the device of an array, Numba does not.
    ordinal = getattr(getattr(obj, "device", None), "id", None)
    where = Where(_EITHER, ordinal if isinstance(ordinal, int) else None)
    if where.device is not None:
        where = where._replace(said=f"device {where.device}")
    stream = interface.get("stream")
    return Claim(
        int(ptr or 0),
        nbytes,
        obj,
        where,
        _name(obj),
        readonly=bool(readonly),
        stream=stream if isinstance(stream, int) else None,
    )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether the items lie side by side, in C's order or in Fortran's."""
    for axes in (range(len(shape)), reversed(range(len(shape)))):
        expected = size
        for axis in reversed(list(axes)):
            if shape[axis] > 1 and strides[axis] != expected:
                break
            expected *= shape[axis]
        else:
            return True
    return False


def _array(obj: object, interface: dict[str, object]) -> Memory:
    data = interface.get("data")
    if not isinstance(data, tuple):
        return _buffer(obj, memoryview(cast("Buffer", obj)))
    flags = getattr(obj, "flags", None)
    if flags is not None and not getattr(flags, "forc", True):
        raise _not_contiguous(obj, "use numpy.ascontiguousarray()")
    nbytes = getattr(obj, "nbytes", None)
    if not isinstance(nbytes, int):
        nbytes = int(str(interface["typestr"])[2:])
        for length in cast("tuple[int, ...]", interface["shape"]):
            nbytes *= length
    if flags is None and interface.get("strides") is not None:
        raise _not_contiguous(obj, "copy it")
    if "O" in str(interface.get("typestr", "")):
        raise MemoryLayoutError(f"{_name(obj)} holds Python objects, not data")
    ptr, readonly = cast("tuple[int, object]", data)
    return Memory(ptr, nbytes, obj, readonly=bool(readonly))


def _buffer(obj: object, view: memoryview) -> Memory:
    if not view.c_contiguous:
        raise _not_contiguous(obj, "copy it with bytes() or bytearray()")
    if not view.nbytes:
        return Memory(0, 0, view, readonly=view.readonly)
    # Holding the view holds the export: a bytearray cannot be resized meanwhile. Not a
    # cdata of a memoryview: CPython 3.11 crashes when it collects a memoryview that is
    # exported, and whoever holds a task that failed holds both in a cycle.
    return Memory(
        address_of(ffi.from_buffer(view)), view.nbytes, view, readonly=view.readonly
    )


def _dlpack_of_gpu(obj: object) -> Memory | None:
    """Return what an object exports of a GPU; None: it is no such object."""
    where = getattr(obj, "__dlpack_device__", None)
    export = getattr(obj, "__dlpack__", None)
    if not callable(where) or not callable(export):
        return None
    kind, device = cast("tuple[int, int]", where())
    kind = int(kind)  # an enumeration of some libraries
    if kind in _dlpack.HOSTS:
        return None
    if kind == _dlpack.CUDA_MANAGED:
        raise managed(_name(obj))
    if kind not in (_dlpack.CUDA, _dlpack.ROCM):
        raise MemoryLayoutError(
            f"{_name(obj)} is on DLPack device {kind}; memory of the host, of CUDA "
            f"({_dlpack.CUDA}) and of ROCm ({_dlpack.ROCM}) can be used"
        )
    got = _dlpack.take(export, _name(obj), on_gpu=True)
    if not got.contiguous:
        raise _not_contiguous(obj, "make it contiguous")
    runtimes: tuple[RuntimeName, ...] = _EITHER if kind == _dlpack.CUDA else ("hip",)
    return Claim(
        got.ptr,
        got.nbytes,
        (got.capsule, obj),
        Where(runtimes, int(device), f"DLPack device ({kind}, {device})"),
        _name(obj),
        readonly=got.readonly,
    )


def managed(what: str) -> MemoryLayoutError:
    """Return the refusal of memory that its driver moves about."""
    return MemoryLayoutError(
        f"{what} is managed memory, which its driver moves between host and GPU, so "
        "that no device can be given its address; use plain device memory, or pinned "
        "host memory"
    )


def _dlpack_of_host(obj: SupportsDLPack) -> Memory:
    got = _dlpack.take(obj.__dlpack__, _name(obj), on_gpu=False)
    if not got.contiguous:
        raise _not_contiguous(obj, "make it contiguous")
    return Memory(got.ptr, got.nbytes, (got.capsule, obj), readonly=got.readonly)
