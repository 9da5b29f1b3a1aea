"""Other processes: one that holds a file, one that is nobody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOLD = """
import sys
import aiougds.blocking

with aiougds.blocking.open(sys.argv[1], readonly=sys.argv[2] == "1") as ns:
    print("held", flush=True)
    sys.stdin.read()
"""

AS_NOBODY = """
import os
import sys
import aiougds
import aiougds.blocking

with aiougds.blocking.open("emu:?size=1MiB"):
    pass  # everything that is imported late is imported now
if os.geteuid() == 0:  # whom no permission stops
    os.seteuid(65534)
try:
    aiougds.blocking.open(sys.argv[1], readonly=sys.argv[2] == "1").close()
except aiougds.UGDSError as error:
    print(type(error).__name__, isinstance(error, PermissionError), error)
else:
    print("opened")
"""


WRITE_AND_END = """
import os
import sys
import aiougds.blocking

ns = aiougds.blocking.open(sys.argv[1])
ns.write(bytes.fromhex(sys.stdin.read()), offset=4096, fua=True)
os._exit(0)
"""


@contextmanager
def holding(address: str, *, readonly: bool = False) -> Iterator[int]:
    """Another process has the address open; gives its process identifier."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, address, str(int(readonly))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
            assert process.wait(30) == 0


def write_and_end(address: str, data: bytes) -> None:
    """Have a process write at byte 4096, and end without closing anything."""
    subprocess.run(
        [sys.executable, "-P", "-c", WRITE_AND_END, address],
        check=True,
        input=data.hex(),
        text=True,
        timeout=50,
    )


def opened_as_nobody(address: str, *, readonly: bool = False) -> str:
    """Have a process without privileges open an address; returns what it says."""
    return subprocess.run(
        [sys.executable, "-P", "-c", AS_NOBODY, address, str(int(readonly))],
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
    ).stdout
