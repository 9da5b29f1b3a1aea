"""The file in which other processes see what a controller does.

It lies in the user's runtime directory, for its user alone, and is gone when the
controller is closed. A process that was killed leaves it; whoever opens the next
controller sweeps it away. What it holds is of ``docs/how-to/observability.md``.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import stat
import sys
from errno import EMEDIUMTYPE
from typing import TYPE_CHECKING, Final

from aiougds._options import runtime_folder
from aiougds._tallies import TEXT, TEXT_END

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = "aiougds"
SUFFIX: Final = ".stats"
STARTED_AT: Final = 24
ADDRESS_MOST: Final = 400  # six bytes for a character at most
_numbers: Final = itertools.count(1)


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Segment:
    """A controller's file, or why there is none."""

    __slots__ = ("fd", "owner", "path", "reason")

    def __init__(self, fd: int, path: str, reason: str) -> None:
        self.fd = fd
        self.path = path
        self.reason = reason
        self.owner = os.getpid()

    def describe(self, told: dict[str, object]) -> None:
        """Write whose it is, and what it is about."""
        if self.fd < 0:
            return
        started = start_ticks(self.owner).to_bytes(8, sys.byteorder)
        os.pwrite(self.fd, started, STARTED_AT)
        os.pwrite(self.fd, _fitting(told), TEXT)

    def settle(self, error: int) -> None:
        """Take C's word for whether the statistics are in it."""
        if self.fd < 0 or not error:
            return
        folder = os.path.dirname(self.path)
        reason = (
            f"{folder} is not in memory (tmpfs), and writing it back would stall I/O"
            if error == -EMEDIUMTYPE
            else f"{folder}: {os.strerror(-error)}"
        )
        self.remove()
        self.reason = reason

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def remove(self) -> None:
        """Remove the file. What is mapped goes on until it is unmapped."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        if self.owner == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(fd)
        self.path = ""


def _fitting(told: dict[str, object]) -> bytes:
    """Return it as JSON; what is too long for its place is left out, or cut."""
    address = str(told.get("address", ""))[:ADDRESS_MOST]
    for less in ({}, {"command": ""}, {"command": "", "address": address}):
        text = json.dumps(told | less, separators=(",", ":")).encode()
        if len(text) < TEXT_END - TEXT:
            break
    return text


def none(reason: str) -> Segment:
    """Return what stands for no file."""
    return Segment(-1, "", reason)


def make(folder: str | None = None) -> Segment:
    """Make an empty file for the statistics of a controller that is to be opened."""
    where = runtime_folder() if folder is None else folder
    if not where:
        return none("there is no XDG_RUNTIME_DIR")
    home = os.path.join(where, FOLDER)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(home, 0o700)
        refusal = _unsafe(home)
        if refusal:
            return none(refusal)
        sweep(home)
        pid = os.getpid()
        path = os.path.join(home, f"{pid}-{next(_numbers)}{SUFFIX}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a process that had this number before
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        return none(f"{home}: {error.strerror}")
    # Held for as long as the controller is open. A sweeper has it for a moment only.
    fcntl.flock(fd, fcntl.LOCK_EX)
    return Segment(fd, path, "")


def _unsafe(home: str) -> str:
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode):
        return f"{home} is no folder"
    if found.st_uid != os.geteuid():
        return f"{home} belongs to user {found.st_uid}"
    if found.st_mode & 0o022:
        return f"{home} can be written by others"
    return ""


def sweep(home: str) -> None:
    """Remove the files of processes that are gone."""
    for path in files(home):
        _sweep_one(path)


def _sweep_one(path: str) -> None:
    name = os.path.basename(path)
    pid = int(name.partition("-")[0])
    if pid == os.getpid():
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        # In another container the number may be another's process: the lock decides.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        started = int.from_bytes(os.pread(fd, 8, STARTED_AT), sys.byteorder)
        alive = start_ticks(pid)  # 0 in the file: its owner has not come to that yet
        if not alive or (started and alive != started):
            os.unlink(path)
    except OSError:
        return
    finally:
        os.close(fd)


def files(home: str) -> Iterator[str]:
    """Return the paths of what may be segments."""
    try:
        names = sorted(os.listdir(home))
    except OSError:
        return
    for name in names:
        pid, dash, rest = name.partition("-")
        if dash and pid.isdecimal() and rest.endswith(SUFFIX):
            yield os.path.join(home, name)


def home_of(folder: str) -> str:
    """Return where the segments of a runtime directory lie."""
    return os.path.join(folder, FOLDER)
