"""DLPack, both ways: the tensor in another's capsule, and a capsule of ours."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from aiougds._errors import MemoryLayoutError

if TYPE_CHECKING:
    from collections.abc import Callable

CPU: Final = 1
CUDA: Final = 2
CUDA_HOST: Final = 3
ROCM: Final = 10
ROCM_HOST: Final = 11
CUDA_MANAGED: Final = 13
HOSTS: Final = (CPU, CUDA_HOST, ROCM_HOST)
NO_SYNC: Final = -1  # stream=: order is made by whoever awaits the transfer
_READONLY: Final = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_UINT: Final = 1  # kDLUInt


class _Tensor(ctypes.Structure):
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


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_DELETER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
    )


class Imported(NamedTuple):
    """What a capsule holds. It has to live while the memory is used."""

    ptr: int
    nbytes: int
    contiguous: bool
    readonly: bool
    capsule: object


_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype = ctypes.c_void_p
_get.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = [ctypes.py_object]


def take(export: Callable[..., object], what: str, *, on_gpu: bool) -> Imported:
    """Call ``__dlpack__`` and read the capsule, which is never consumed.

    An unconsumed capsule frees its tensor when it is collected.
    """
    stream = {"stream": NO_SYNC} if on_gpu else {}
    try:
        try:
            capsule = export(max_version=(1, 0), **stream)
        except TypeError:  # a producer of before DLPack 1.0
            capsule = export(**stream)
    except BufferError as exc:
        raise MemoryLayoutError(f"{what} exports no DLPack tensor: {exc}") from exc
    name = _name(capsule)
    readonly = False
    if name == b"dltensor_versioned":
        versioned = _Versioned.from_address(_get(capsule, name))
        readonly = bool(versioned.flags & _READONLY)
        tensor = versioned.tensor
    else:
        tensor = _Tensor.from_address(_get(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    expected, contiguous = 1, True
    for i in reversed(range(tensor.ndim)):
        if tensor.strides and shape[i] > 1 and tensor.strides[i] != expected:
            contiguous = False
        expected *= shape[i]
    nbytes = expected * ((tensor.bits * tensor.lanes + 7) // 8)
    contiguous = contiguous or not nbytes
    ptr = (tensor.data or 0) + tensor.byte_offset
    return Imported(ptr, nbytes, contiguous, readonly, capsule)


# ---- a capsule of ours ----

_lent: Final[dict[int, tuple[_Managed, object, object]]] = {}
_numbers: Final = itertools.count(1)


def _give_back(address: int | None) -> None:
    if address is not None:
        _lent.pop(int(_Managed.from_address(address).context or 0), None)


_give_back_c: Final = _DELETER(_give_back)
_DESTRUCTOR: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# The same calls for an object that is about to go: by its address, uncounted.
_get_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def _unconsumed(capsule: int) -> None:
    # Whoever consumes it renames it, and calls the deleter.
    if _is_raw(capsule, b"dltensor"):
        _give_back(_get_raw(capsule, b"dltensor"))


_unconsumed_c: Final = _DESTRUCTOR(_unconsumed)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR]


def lend(ptr: int, nbytes: int, device: tuple[int, int], owner: object) -> object:
    """Return a capsule of bytes; ``owner`` lives as long as what is made of it."""
    shape = (ctypes.c_int64 * 1)(nbytes)
    managed = _Managed()
    tensor = managed.tensor
    tensor.data = ptr
    tensor.device_type, tensor.device_id = device
    tensor.ndim = 1
    tensor.code, tensor.bits, tensor.lanes = _UINT, 8, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.context = next(_numbers)
    managed.deleter = _give_back_c
    _lent[managed.context] = (managed, shape, owner)
    return _new(ctypes.addressof(managed), b"dltensor", _unconsumed_c)
