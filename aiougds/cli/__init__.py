"""The command line: ``aiougds demo``, ``info``, ``copy`` and ``bench``."""

from __future__ import annotations

from aiougds.cli._main import main

__all__ = ["main"]
