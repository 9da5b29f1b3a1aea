"""Describe the module ``aiougds._native`` to cffi: ``include/ugds.h`` is the cdef."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

HEADER = Path(__file__).with_name("include") / "ugds.h"
# The guard and the includes; `#define NAME NUMBER` is C that cffi understands.
NOT_CDEF = re.compile(r"#\s*(ifndef|endif|include|define\s+\w+\s*$)", re.ASCII)

ffibuilder = FFI()
ffibuilder.cdef(
    "\n".join(
        line
        for line in HEADER.read_text(encoding="ascii").splitlines()
        if not NOT_CDEF.match(line)
    )
)
ffibuilder.set_source("aiougds._native", '#include "ugds.h"')
