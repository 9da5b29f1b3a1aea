"""The test bed by hand: ``python tests/vm --help``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
runpy.run_module("vm.bed.by_hand", run_name="__main__")
