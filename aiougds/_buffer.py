"""Memory of other people's objects: address, length, and why not, in words.

No library is imported for it. In this order: ``(ptr, nbytes)``, torch-like objects
(``data_ptr``), ``__cuda_array_interface__`` (refused in this version),
``__array_interface__``, the buffer protocol, DLPack.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias, Union, cast

from aiougds._errors import MemoryLayoutError, MemoryTypeError
from aiougds._ffi import address_of, ffi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer


class SupportsDataPtr(Protocol):
    """A tensor in the manner of torch."""

    def data_ptr(self) -> int: ...


class SupportsArrayInterface(Protocol):
    """An array in the manner of numpy."""

    @property
    def __array_interface__(self) -> Mapping[str, object]: ...


class SupportsDLPack(Protocol):
    """An array that exports DLPack."""

    def __dlpack__(self) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


ForeignMemory: TypeAlias = Union[
    "Buffer", SupportsDataPtr, SupportsArrayInterface, SupportsDLPack, tuple[int, int]
]

GPU_LATER: Final = (
    "GPU memory comes with the GPU support of a later version; read into host memory "
    "and copy, for example with .cpu() or a pinned staging tensor"
)
_DLPACK_HOST: Final = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost


class Memory:
    """A range of host memory, and what keeps it from going away."""

    __slots__ = ("nbytes", "owner", "ptr", "readonly", "target_refusal")

    host: ClassVar[bool] = True
    """Whether ``ptr`` is an address of this process."""

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

    def let_go(self) -> None:
        """Nothing will be mapped of it any more."""


def describe(obj: object) -> Memory:
    """Return the memory of an object, or raise what says why it has none to use."""
    if isinstance(obj, tuple):
        return _pair(obj)
    if callable(getattr(obj, "data_ptr", None)):
        return _tensor(obj)
    if _has(obj, "__cuda_array_interface__"):
        raise MemoryLayoutError(f"{_name(obj)} lives on a GPU. {GPU_LATER}")
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict):
        return _array(obj, interface)
    try:
        view = memoryview(cast("Buffer", obj))
    except TypeError:
        pass
    except (BufferError, ValueError) as exc:
        raise MemoryLayoutError(f"{_name(obj)} exports no buffer: {exc}") from exc
    else:
        return _buffer(obj, view)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _dlpack(cast("SupportsDLPack", obj))
    raise MemoryTypeError(
        f"{_name(obj)} has no memory: give a registration or a slice of one, an object "
        "with the buffer protocol, a numpy array, a torch tensor, a DLPack array, or "
        "(ptr, nbytes)"
    )


def _name(obj: object) -> str:
    kind = type(obj)
    return (
        kind.__name__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__name__}")
    )


def _has(obj: object, name: str) -> bool:
    # A property of torch raises RuntimeError on tensors that require grad.
    try:
        return getattr(obj, name, None) is not None
    except RuntimeError:
        return True


def _pair(pair: tuple[object, ...]) -> Memory:
    if len(pair) != 2 or not all(type(part) is int for part in pair):
        raise MemoryTypeError(f"a tuple is (ptr, nbytes), two integers, not {pair!r}")
    ptr, nbytes = cast("tuple[int, int]", pair)
    if ptr <= 0 or nbytes < 0 or ptr + nbytes > 1 << 64:
        raise MemoryLayoutError(
            f"(ptr, nbytes) = ({ptr:#x}, {nbytes}) is no address range"
        )
    return Memory(ptr, nbytes, pair)


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
    if kind != "cpu":
        if kind == "meta":
            raise MemoryLayoutError(f"{_name(obj)} on device 'meta' has no memory")
        raise MemoryLayoutError(f"{_name(obj)} lives on device {kind!r}. {GPU_LATER}")
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
    owner = (obj, storage() if callable(storage) else None)
    return Memory(tensor.data_ptr(), nbytes, owner, target_refusal=refusal)


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
    return Memory(data[0], nbytes, obj, readonly=bool(data[1]))


def _buffer(obj: object, view: memoryview) -> Memory:
    if not view.c_contiguous:
        raise _not_contiguous(obj, "copy it with bytes() or bytearray()")
    if not view.nbytes:
        return Memory(0, 0, view, readonly=view.readonly)
    # Holding the cdata holds the export: a bytearray cannot be resized meanwhile.
    pinned = ffi.from_buffer(cast("Buffer", obj))
    return Memory(
        address_of(pinned), view.nbytes, (pinned, obj), readonly=view.readonly
    )


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _dlpack(obj: SupportsDLPack) -> Memory:
    device = obj.__dlpack_device__()[0]
    if device not in _DLPACK_HOST:
        raise MemoryLayoutError(
            f"{_name(obj)} is on DLPack device {device}. {GPU_LATER}"
        )
    try:
        # An unconsumed capsule frees its tensor when it is collected: hold it.
        capsule = obj.__dlpack__()
    except BufferError as exc:
        raise MemoryLayoutError(
            f"{_name(obj)} exports no DLPack tensor: {exc}"
        ) from exc
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.strides:
        expected = 1
        for i in reversed(range(tensor.ndim)):
            if shape[i] > 1 and tensor.strides[i] != expected:
                raise _not_contiguous(obj, "make it contiguous")
            expected *= shape[i]
    count = 1
    for length in shape:
        count *= length
    nbytes = count * ((tensor.bits * tensor.lanes + 7) // 8)
    return Memory((tensor.data or 0) + tensor.byte_offset, nbytes, (capsule, obj))
