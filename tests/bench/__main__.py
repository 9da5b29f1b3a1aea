"""``python tests/bench``: run from anywhere, installed package or not."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # The folder itself came first: then every file here would hide a top-level module.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.run import main

if __name__ == "__main__":
    raise SystemExit(main())
