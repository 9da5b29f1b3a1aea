"""Runs one program or Python script by hand, with the plan's modules loaded.

A script finds its ground by ``vm.guest.ground.here()``.
"""

from __future__ import annotations

import os
import runpy
import sys

from vm.guest.ground import here


def main(words: list[str]) -> None:
    ground = here()
    for module in ground.plan["modules"]:
        ground.load(module)
    if words[0].endswith(".py"):
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    else:
        os.execvp(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1:])
