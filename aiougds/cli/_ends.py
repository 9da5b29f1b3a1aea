"""The two ends of a copy: a file, or a namespace; both move chunks at byte offsets."""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from anyio import to_thread

from aiougds.cli._failures import CommandError, RefusedError

if TYPE_CHECKING:
    from aiougds import Namespace, Registration, RegistrationSlice

PART: Final = ".part"


class Source(Protocol):
    """Where bytes come from."""

    async def read(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Fill the first ``nbytes`` of ``buf``."""


class Sink(Protocol):
    """Where bytes go, and from where they can be read back."""

    async def write(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Write the first ``nbytes`` of ``buf``."""

    async def finish(self) -> None:
        """Put everything on the medium."""

    async def read(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Read back."""


class FileEnd:
    """An open file. Its system calls run in threads."""

    __slots__ = ("_fd", "name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name

    async def read(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Read exactly ``nbytes``."""
        await to_thread.run_sync(self._read, buf.view[:nbytes], offset)

    def _read(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            got = os.preadv(self._fd, [view[done:]], offset + done)
            if not got:
                raise CommandError(
                    f"{self.name} ends at byte {offset + done}: it became shorter "
                    "while it was copied"
                )
            done += got

    async def write(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Write exactly ``nbytes``."""
        await to_thread.run_sync(self._write, buf.view[:nbytes], offset)

    def _write(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)

    async def finish(self) -> None:
        """Sync it."""
        await to_thread.run_sync(os.fsync, self._fd)


class NamespaceEnd:
    """A namespace from a byte offset on.

    Reads may be of any bytes. A write that ends inside a block reads that block first
    and puts it back with the bytes behind the end as they were.
    """

    __slots__ = ("_base", "_ns")

    def __init__(self, ns: Namespace, base: int) -> None:
        self._ns = ns
        self._base = base

    async def read(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Read exactly ``nbytes``."""
        if nbytes:
            await self._ns.read(
                buf[:nbytes], offset=self._base + offset, edges="bounce"
            )

    async def write(self, buf: RegistrationSlice, offset: int, nbytes: int) -> None:
        """Write ``nbytes``; ``buf`` has room up to the end of the last block."""
        lba = self._ns.lba_bytes
        rest = nbytes % lba
        at = self._base + offset
        if rest:
            last = nbytes - rest
            kept = bytes(buf.view[last:nbytes])
            await self._ns.read(buf[last : last + lba], offset=at + last)
            buf.view[last:nbytes] = kept
            nbytes = last + lba
        await self._ns.write(buf[:nbytes], offset=at)

    async def map(self, reg: Registration) -> None:
        """Make memory reachable for its controller."""
        await reg.map(self._ns)

    async def finish(self) -> None:
        """Flush it."""
        await self._ns.flush()


def digest(view: memoryview) -> bytes:
    """Return a checksum of the bytes; run it in a thread for more than a few KiB."""
    return blake2b(view, digest_size=16).digest()


def open_source(path: str) -> int:
    """Open a file to copy from; return its descriptor."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        os.close(fd)
        what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
        raise CommandError(f"{path} is {what}; name a file to copy from")
    return fd


def source_size(fd: int) -> int:
    """Return the bytes of an open file, or of a block device."""
    return os.lseek(fd, 0, os.SEEK_END)


def same_file(fd: int, path: str) -> bool:
    """Whether a path ("": none) leads to the open file."""
    return (
        bool(path)
        and os.path.exists(path)
        and os.path.samestat(os.fstat(fd), os.stat(path))
    )


def check_target(path: str, *, force: bool) -> None:
    """Refuse a target that is there already (unless ``force``) or is no file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise RefusedError(
            f"{path} exists and is no regular file; nothing was written. Name a file "
            "that does not exist"
        )
    if not force:
        raise RefusedError(
            f"{path} exists; nothing was written. Say --force to replace it"
        )
