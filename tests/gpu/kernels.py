"""Kernels for a real NVIDIA GPU, as PTX: they need no compiler, the driver is one.

The pattern is a function of a word's place in the file, so a kernel knows every byte
that a transfer has to bring, wherever it was read from.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from gpu.vendors import done

WORD: Final = 4
_MANY: Final = 2654435761  # of Knuth: neighbours have nothing in common
# Registers, and the loop of a grid over the words: %d4 is a word's address, %r8 what
# belongs there.
_EACH_WORD: Final = """
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %d<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %nctaid.x;
    mul.lo.u32 %r5, %r5, %r2;
    ld.param.u64 %d1, [data];
    ld.param.u64 %d2, [first];
    ld.param.u32 %r6, [count];
again:
    setp.ge.u32 %p1, %r4, %r6;
    @%p1 bra over;
    mul.wide.u32 %d4, %r4, 4;
    add.u64 %d4, %d1, %d4;
    cvt.u64.u32 %d5, %r4;
    add.u64 %d5, %d2, %d5;
    cvt.u32.u64 %r8, %d5;
    mul.lo.u32 %r8, %r8, 0x9E3779B1;
    shr.u64 %d6, %d5, 15;
    cvt.u32.u64 %r9, %d6;
    xor.b32 %r8, %r8, %r9;
"""
_NEXT_WORD: Final = """
    add.u32 %r4, %r4, %r5;
    bra again;
over:
    ret;
"""
_PTX: Final = f"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry check(.param .u64 data, .param .u64 first, .param .u32 count,
                      .param .u64 wrong)
{{{_EACH_WORD}
    ld.global.u32 %r7, [%d4];
    setp.eq.u32 %p2, %r7, %r8;
    @%p2 bra right;
    ld.param.u64 %d3, [wrong];
    atom.global.add.u32 %r10, [%d3], 1;
right:{_NEXT_WORD}}}

.visible .entry make(.param .u64 data, .param .u64 first, .param .u32 count)
{{{_EACH_WORD}
    st.global.u32 [%d4], %r8;
{_NEXT_WORD}}}

.visible .entry spin(.param .u64 nanoseconds)
{{
    .reg .pred %p<2>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [nanoseconds];
    mov.u64 %d2, %globaltimer;
again:
    mov.u64 %d3, %globaltimer;
    sub.u64 %d3, %d3, %d2;
    setp.lt.u64 %p1, %d3, %d1;
    @%p1 bra again;
    ret;
}}
\0""".encode()


def pattern_words(first: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return words of the pattern, as the kernels have it."""
    index = np.arange(first, first + count, dtype=np.uint64)
    mixed = (index * _MANY & 0xFFFFFFFF) ^ (index >> 15 & 0xFFFFFFFF)
    return mixed.astype(np.uint32)


class Kernels:
    """Checks, fills and waits on a stream of the current context."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self._driver: Any = driver
        module = done(driver.cuModuleLoadData(_PTX))
        self._check, self._make, self._spin = (
            done(driver.cuModuleGetFunction(module, name))
            for name in (b"check", b"make", b"spin")
        )
        self._wrong = int(done(driver.cuMemAlloc(WORD)))
        done(driver.cuMemsetD32(self._wrong, 0, 1))

    def _launch(
        self, kernel: object, stream: int, blocks: int, *values: tuple[int, Any]
    ) -> None:
        params = tuple(value for value, _ in values), tuple(kind for _, kind in values)
        threads = 256 if blocks > 1 else 1
        done(
            self._driver.cuLaunchKernel(
                kernel, blocks, 1, 1, threads, 1, 1, 0, stream, params, 0
            )
        )

    def check(self, data: int, offset: int, nbytes: int, stream: int = 0) -> None:
        """Count words that are not those of the pattern at an offset of the file."""
        self._launch(
            self._check,
            stream,
            264,
            (data, ctypes.c_uint64),
            (offset // WORD, ctypes.c_uint64),
            (nbytes // WORD, ctypes.c_uint32),
            (self._wrong, ctypes.c_uint64),
        )

    def make(self, data: int, offset: int, nbytes: int, stream: int = 0) -> None:
        """Write what belongs at an offset of the file."""
        self._launch(
            self._make,
            stream,
            264,
            (data, ctypes.c_uint64),
            (offset // WORD, ctypes.c_uint64),
            (nbytes // WORD, ctypes.c_uint32),
        )

    def spin(self, seconds: float, stream: int) -> None:
        """Keep a stream busy for a time."""
        self._launch(self._spin, stream, 1, (int(seconds * 1e9), ctypes.c_uint64))

    def wrong(self) -> int:
        """Return words that were found wrong since the last time; waits for all."""
        done(self._driver.cuCtxSynchronize())
        found = bytearray(WORD)
        done(self._driver.cuMemcpyDtoH(found, self._wrong, WORD))
        done(self._driver.cuMemsetD32(self._wrong, 0, 1))
        done(self._driver.cuCtxSynchronize())
        return int.from_bytes(found, "little")

    def close(self) -> None:
        done(self._driver.cuMemFree(self._wrong))
