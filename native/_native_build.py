"""Describe the module ``aiougds._native`` to cffi: our headers are the cdef."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

INCLUDE = Path(__file__).with_name("include")
HEADERS = (
    "ugds.h", "ugds_emu.h", "ugds_gpu.h", "ugds_stream.h", "ugds_exec.h",
    "ugds_stats.h", "ugds_plan.h", "ugds_own.h",
)  # fmt: skip
# The guard and the includes; `#define NAME NUMBER` is C that cffi understands.
NOT_CDEF = re.compile(r"#\s*(ifndef|endif|include|define\s+\w+\s*$)", re.ASCII)

ffibuilder = FFI()
ffibuilder.cdef(
    "\n".join(
        line
        for name in HEADERS
        for line in (INCLUDE / name).read_text(encoding="ascii").splitlines()
        if not NOT_CDEF.match(line)
    )
)
ffibuilder.set_source(
    "aiougds._native", "\n".join(f'#include "{name}"' for name in HEADERS)
)
