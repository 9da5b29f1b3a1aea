"""A wheel in an environment of its own: ``installed.py WHEEL PYTHON``.

It is installed as a user would, runs the demo, and brings what is for man and shells.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SHARED = ("man/man1/aiougds-bind.1", "bash-completion/completions/aiougds")
SHARED += ("zsh/site-functions/_aiougds", "fish/vendor_completions.d/aiougds.fish")


def main() -> None:
    wheel, python = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        bin_ = Path(folder, "bin")
        subprocess.run([python, "-m", "venv", folder], check=True)
        install = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel]
        subprocess.run([bin_ / "python", *install], check=True)
        subprocess.run([bin_ / "aiougds", "demo", "--size", "8MiB"], check=True)
        brought = [Path(folder, "share", name) for name in SHARED]
        missing = [str(path) for path in brought if not path.exists()]
        if missing:
            raise SystemExit(f"{wheel} did not bring {', '.join(missing)}")


if __name__ == "__main__":
    main()
