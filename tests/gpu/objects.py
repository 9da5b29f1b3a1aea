"""Objects as GPU libraries make them, over memory of a GPU: none is imported."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

from aiougds import _dlpack

DLPACK: Final = {"cuda": _dlpack.CUDA, "hip": _dlpack.ROCM}


class Tensor:
    """As of torch; on ROCm its device type says cuda too."""

    def __init__(
        self,
        ptr: int,
        nbytes: int,
        *,
        device: int | None = 0,
        kind: str = "cuda",
        contiguous: bool = True,
        requires_grad: bool = False,
    ) -> None:
        self.ptr = ptr
        self.size = nbytes
        self.device = SimpleNamespace(type=kind, index=device)
        self.contiguous = contiguous
        self.requires_grad = requires_grad
        self.is_leaf = requires_grad

    def data_ptr(self) -> int:
        return self.ptr

    def is_contiguous(self) -> bool:
        return self.contiguous

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return 1

    def untyped_storage(self) -> object:
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable")
        raise AssertionError("what has data_ptr() is not asked for it")


class CudaArray:
    """As of CuPy (which names its device) or Numba (which does not)."""

    def __init__(
        self,
        ptr: int,
        nbytes: int,
        *,
        device: int | None = None,
        stream: int | None = None,
        readonly: bool = False,
    ) -> None:
        if device is not None:
            self.device = SimpleNamespace(id=device)
        self.__cuda_array_interface__ = {
            "data": (ptr, readonly),
            "shape": (nbytes,),
            "typestr": "|u1",
            "strides": None,
            "version": 3,
            "stream": stream,
        }


class DLPackArray:
    """As of cuda.core, JAX and others."""

    def __init__(self, ptr: int, nbytes: int, device: tuple[int, int]) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.where = device
        self.exported = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        assert stream == -1  # whoever awaits makes the order
        self.exported += 1
        return _dlpack.lend(self.ptr, self.nbytes, self.where, self)


Maker = Callable[[str, int, int], object]

MAKERS: Final[dict[str, Maker]] = {
    "torch": lambda _runtime, ptr, nbytes: Tensor(ptr, nbytes),
    "torch without an index": lambda _runtime, ptr, nbytes: Tensor(
        ptr, nbytes, device=None
    ),
    "CuPy": lambda _runtime, ptr, nbytes: CudaArray(ptr, nbytes, device=0),
    "Numba": lambda _runtime, ptr, nbytes: CudaArray(ptr, nbytes),
    "DLPack": lambda runtime, ptr, nbytes: DLPackArray(
        ptr, nbytes, (DLPACK[runtime], 0)
    ),
    "pointer": lambda runtime, ptr, nbytes: (ptr, nbytes, f"{runtime}:0"),
    "pointer and number": lambda _runtime, ptr, nbytes: (ptr, nbytes, 0),
    "bare pointer": lambda _runtime, ptr, nbytes: (ptr, nbytes),
}
