"""GPU runtimes: the only part of the package that knows CUDA and HIP by name."""

from __future__ import annotations
