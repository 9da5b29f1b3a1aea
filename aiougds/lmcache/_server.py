"""``aiougds-lmcache-server``: LMCache's server, with our GDS backend among its own.

LMCache finds backends by looking into a folder while it parses its arguments: a plugin
comes too late. So the folder is appended before, and everything else is LMCache's.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final, cast

BACKENDS: Final = "lmcache.v1.gpu_connector.gds_backends"


def add_backend() -> None:
    """Let LMCache find ``--gds-l1-backend aiougds``."""
    path = cast("list[str]", importlib.import_module(BACKENDS).__path__)
    ours = str(Path(__file__).with_name("gds_backends"))
    if ours not in path:
        path.append(ours)


def main() -> int:
    """Run ``lmcache server`` with the arguments of the command line."""
    try:
        add_backend()
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lmcache"):
            raise
        print(
            f"aiougds-lmcache-server: LMCache is not installed ({error}); "
            "pip install lmcache",
            file=sys.stderr,
        )
        return 1
    importlib.import_module("lmcache.cli.main").main(["server", *sys.argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
