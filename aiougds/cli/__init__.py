"""The command line: ``aiougds demo``, ``info``, ``copy`` and ``bench``.

And for whoever looks after the machine: ``list``, ``bind``, ``unbind`` and ``check``.
"""

from __future__ import annotations

from aiougds.cli._main import main

__all__ = ["main"]
