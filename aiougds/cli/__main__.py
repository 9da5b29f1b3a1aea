"""``python -m aiougds.cli`` is the same as ``aiougds``."""

from __future__ import annotations

import sys

from aiougds.cli._main import main

if __name__ == "__main__":
    sys.exit(main())
