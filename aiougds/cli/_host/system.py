"""The one way to sysfs, procfs and /dev: below a root, which a test may choose."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SLASH: Final = Path("/")


class System:
    """Files below a root. Names begin with ``/`` and are meant inside of the root."""

    __slots__ = ("_prefix", "root")

    def __init__(self, root: Path = SLASH) -> None:
        self.root = root.resolve()
        self._prefix = "" if self.root == SLASH else str(self.root)

    @property
    def real(self) -> bool:
        """Whether this is the running machine, and not a copy of some files of one."""
        return not self._prefix

    def path(self, name: str) -> Path:
        """Return where it is."""
        return Path(self._prefix + name)

    def text(self, name: str) -> str | None:
        """Return what a file holds, stripped; None where it cannot be read."""
        data = self.data(name)
        return (
            None if data is None else data.decode(errors="replace").strip(" \t\r\n\0")
        )

    def data(self, name: str) -> bytes | None:
        """Return what a file holds; None where it cannot be read."""
        try:
            with open(self._prefix + name, "rb") as file:
                return file.read()
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """Return the number that a file holds, decimal or ``0x``; None for all else."""
        try:
            return int(self.text(name) or "", 0)
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return what a folder holds, ``nvme2`` before ``nvme10``; [] without one."""
        try:
            found = os.listdir(self._prefix + folder)
        except OSError:
            return []
        return sorted(found, key=lambda name: (len(name), name))

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return os.path.exists(self._prefix + name)

    def follow(self, name: str) -> str:
        """Return the name that is left when all links are followed."""
        real = os.path.realpath(self._prefix + name)
        return real.removeprefix(self._prefix) or "/"

    def target(self, name: str) -> str | None:
        """Return the last part of what a link points to; None if it is no link."""
        text = self.link(name)
        return None if text is None else os.path.basename(text)

    def link(self, name: str) -> str | None:
        """Return what a link says; None if it is no link or cannot be read."""
        try:
            return os.readlink(self._prefix + name)
        except OSError:
            return None

    def identity(self, name: str) -> int:
        """Return a number that another file of this name, made later, does not have."""
        return os.stat(self._prefix + name).st_ino

    def device(self, name: str) -> str | None:
        """Return ``MAJOR:MINOR`` of a device node; None if it is none."""
        try:
            number = os.stat(self._prefix + name).st_rdev
        except OSError:
            return None
        return f"{os.major(number)}:{os.minor(number)}" if number else None

    def write(self, name: str, text: str) -> None:
        """Write to an attribute, which has to exist, in one call."""
        fd = os.open(self._prefix + name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def claim(self, node: str) -> int:
        """Open a block device for reading so that nobody else can claim it meanwhile.

        The kernel gives ``EBUSY`` if it is mounted, swapped to, part of an array or a
        mapping, or opened by somebody in this same way.
        """
        flags = os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._prefix + node, flags)
