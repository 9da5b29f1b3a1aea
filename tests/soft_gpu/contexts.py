"""CUDA contexts, made as the bindings of CUDA 12 and of CUDA 13 want it."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver


def new_context(device: int) -> tuple[Any, ...]:
    """Return what ``cuCtxCreate`` answers; the context is current then."""
    # 13 has parameters in front of the flags.
    before = () if driver.CUDA_VERSION < 13000 else (None,)
    answer: tuple[Any, ...] = driver.cuCtxCreate(*before, 0, device)
    return answer
